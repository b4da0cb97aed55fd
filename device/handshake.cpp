// SPDX-License-Identifier: Apache-2.0
#include "device/handshake.hpp"

#include <chrono>

#include "base/log.hpp"
#include "base/words.hpp"
#include "device/gpu.hpp"
#include "device/reach.hpp"
#include "device/retire.hpp"

namespace sluice::device {
namespace {

Driver& supported_driver(Stream stream) {
  check_supported(stream, -1);
  return *device::driver(stream.kind());
}

/// Returns the GPU of the stream. @throws GpuError
int refuse_capture(Driver& driver, Stream stream) {
  const StreamState state = driver.look_at(stream.handle());
  if (state.capture != 0) throw GpuError("the stream captures a graph");
  return state.device;
}

}  // namespace

struct Handshake::Impl final : StreamUser {
  struct GiveBack {
    void operator()(base::Progress* word) const noexcept { base::give_back(*word); }
  };
  using OwnedWord = std::unique_ptr<base::Progress, GiveBack>;

  /// Its parking wakes no thread: those that look at it sleep for short times.
  static OwnedWord word_for(Driver& driver) {
    OwnedWord word(&base::take_progress());
    word->parking.silence();
    reach_for_ever(driver, base::page_of(word->word), base::Progress::kPage);
    return word;
  }

  explicit Impl(Stream its_stream)
      : stream(its_stream), driver(supported_driver(its_stream)), gpu(driver.device_of(its_stream.handle())),
        own(driver.own_stream(gpu)) {
    const OnDevice current(driver, gpu);
    try {
      driver.load_kernels(gpu);
    } catch (const std::exception&) {
      if (words_by_kernels()) throw;
    }
  }

  bool may_be_parked() const noexcept override {
    return !unknown && (!base::reached(signalled->word, last.load()) || !base::reached(passed->word, last_wait.load()));
  }

  int check() const {
    if (over) throw GpuError("the stream was given up, after it or its thread had refused work");
    return refuse_capture(driver, stream);
  }

  std::uint64_t give(bool waits) {
    const int device = check();
    const std::uint64_t number = last + 1;
    last = number;  // before the stream has the work: `may_be_parked`
    if (waits) last_wait = number;
    try {
      on_gpu(GpuCall(stream, device), [&](Lane lane) {
        lane.gpu->write(signalled->word, number);
        if (!waits) return;
        lane.gpu->wait(answered->word, number);
        lane.gpu->write(passed->word, number);
      });
    } catch (...) {
      await_own_stream();
      end();
      pass_behind(device, number);
      throw;
    }
    return number;
  }

  /// The driver may have taken a part of the work. The stream waits for nothing any more, and writes the words behind
  /// what it has. If that is refused too, it may write them, or not.
  void pass_behind(int device, std::uint64_t number) noexcept {
    try {
      on_gpu(GpuCall(stream, device), [&](Lane lane) {
        lane.gpu->write(signalled->word, number);
        lane.gpu->write(passed->word, number);
      });
    } catch (const std::exception&) {
      unknown = true;
    }
  }

  /// It might write an answer over the poison.
  void await_own_stream() noexcept {
    try {
      driver.synchronize(own.handle());
    } catch (const std::exception&) {  // the GPU's context has failed
      unknown = true;
    }
  }

  bool own_stream_has_answered() const noexcept { return base::reached(answered->word, last_own_answer.load()); }

  void end() noexcept {
    over = true;
    base::raise(answered->word, base::kPoison, answered->parking);
  }

  const Stream stream;
  Driver& driver;
  const int gpu;
  const Stream own;  // `lost` queries it, too
  const OwnedWord signalled = word_for(driver);
  const OwnedWord answered = word_for(driver);
  const OwnedWord passed = word_for(driver);
  std::atomic<std::uint64_t> last{0};
  std::atomic<std::uint64_t> last_wait{0};
  std::atomic<std::uint64_t> last_own_answer{0};
  std::atomic<bool> over{false};
  std::atomic<bool> unknown{false};
  std::atomic<bool> lost{false};
  std::atomic<base::Clock::time_point> next_query{};
};

Handshake::Handshake(Stream stream) : impl_(std::make_unique<Impl>(stream)) { add_user(*impl_); }

Handshake::~Handshake() {
  const auto soon = base::Clock::now() + std::chrono::seconds(1);
  const auto lost = [&] { return impl_->driver.lost(impl_->gpu); };
  const auto answered = [&] { return impl_->own_stream_has_answered() || lost(); };
  // Else the own stream answers later, behind what the program's stream waits for.
  if (base::wait_until(impl_->answered->parking, answered, soon)) end();
  const auto in_time = [&] { return !impl_->may_be_parked() || lost(); };
  const bool passed = base::wait_until(impl_->passed->parking, in_time, soon);
  if (passed && !impl_->unknown) {
    remove_user(*impl_);
    impl_.reset();
  } else {
    base::log(base::LogLevel::warn, "a GPU's stream has not passed the work of stream MPI: its words are kept");
    static_cast<void>(impl_.release());
  }
  reap();
}

Stream Handshake::stream() const noexcept { return impl_->stream; }
Stream Handshake::own_stream() const noexcept { return impl_->own; }
void Handshake::check() const { impl_->check(); }
void Handshake::check_capture(Stream stream) { (void)refuse_capture(supported_driver(stream), stream); }
bool Handshake::is_of(Stream stream) const {
  return impl_->stream == stream && impl_->driver.device_of(stream.handle()) == impl_->gpu;
}
bool Handshake::idle() const noexcept { return !impl_->unknown && !impl_->may_be_parked(); }
bool Handshake::given_up() const noexcept { return impl_->over; }

std::uint64_t Handshake::signal() { return impl_->give(false); }
std::uint64_t Handshake::signal_and_wait() { return impl_->give(true); }

bool Handshake::signalled(std::uint64_t number) const noexcept { return base::reached(impl_->signalled->word, number); }

/// Asks the driver now and then.
bool Handshake::ended() noexcept {
  constexpr auto kEvery = std::chrono::milliseconds(1);
  if (impl_->over || impl_->lost) return true;
  const auto now = base::Clock::now();
  if (now < impl_->next_query.load()) return false;
  impl_->next_query = now + kEvery;
  return impl_->lost = impl_->driver.lost(impl_->gpu);
}

void Handshake::answer(std::uint64_t number) noexcept {
  if (impl_->over) return;
  base::raise(impl_->answered->word, number, impl_->answered->parking);
  if (impl_->over) impl_->end();
}

void Handshake::answer_behind_own_stream(std::uint64_t number) noexcept {
  impl_->last_own_answer = number;
  try {
    on_gpu(GpuCall(impl_->own, impl_->gpu), [&](Lane lane) { lane.gpu->write(impl_->answered->word, number); });
  } catch (const std::exception&) {
    impl_->await_own_stream();
    answer(number);
  }
}

void Handshake::await_own_stream() const noexcept { impl_->await_own_stream(); }
void Handshake::end() noexcept { impl_->end(); }

}  // namespace sluice::device
