// SPDX-License-Identifier: Apache-2.0
// Operations in the order of a GPU's stream, and what kind of stream a pointer is.
#include "dialects/common/line.hpp"

#include <sluice/error.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "c/handles.hpp"
#include "device/handshake.hpp"
#include "dialects/common/host_line.hpp"
#include "dialects/common/job.hpp"
#include "dialects/common/outcome.hpp"
#include "dialects/common/progress.hpp"
#include "dialects/common/wait_until.hpp"

namespace sluice::stream_mpi {
namespace {

/// The program's GPU runtime is in its process. CUDA's and HIP's streams cannot be told apart.
Stream gpu_stream(void* handle) {
  static const bool hip = dlsym(RTLD_DEFAULT, "hipStreamCreate") != nullptr;
  return hip ? Stream::hip(static_cast<ihipStream_t*>(handle)) : Stream::cuda(static_cast<CUstream_st*>(handle));
}

class GpuLine final : public Line {
 public:
  GpuLine(Context context, void* const* variable) : context_(std::move(context)), variable_(variable) {
    try {
      context_.synchronize(*gpu(), Timeout::zero());
    } catch (const Error& error) {
      if (error.code() == Code::unsupported || error.code() == Code::bad_argument) throw;
      // Else the stream has work to do, or a channel of the program has failed: the stream itself can be driven.
      if (error.code() != Code::timeout) (void)report("stream MPI");
    }
    // Now, since nothing can be mapped behind a stream that waits.
    has_background_ = guarded("stream MPI", [this] { (void)handshake(); }) == 0;
  }

  std::optional<Stream> gpu() const override { return gpu_stream(*variable_); }
  void check() const override { device::Handshake::check_capture(*gpu()); }

  void start(OperationList operations) override {
    take_back(operations);  // a queue may have ended between a start and its wait
    for (const auto* operation : operations) noting([&] { (*operation)->enqueue_start(*gpu()); });
    const auto incomplete = [](const auto* operation) { return (*operation)->incomplete(); };
    if (std::ranges::any_of(operations, incomplete)) noting([&] { leave(operations); });
  }

  // All puts come first: a peer may be waiting for them while this stream waits for a message of that peer. A put that
  // waits for a late receiver holds back what is behind it.
  void wait_all(OperationList operations) override {
    take_back(operations);
    for (const auto* operation : operations) noting([&] { (*operation)->enqueue_credited(*gpu()); });
    for (const auto* operation : operations) noting([&] { (*operation)->enqueue_move(*gpu()); });
    for (const auto* operation : operations) noting([&] { (*operation)->enqueue_wait(*gpu()); });
  }

  int wait() override {
    const MpiProgress progress;
    noting([&] { await_signal(); });  // MPI makes no progress during a wait in the driver
    noting([&] { context_.synchronize(*gpu()); });
    noting([&] { faults_.note(Job::current()->untold.take()); });
    return faults_.take();
  }

 private:
  /// Blocks until the stream has run its work.
  void await_signal() {
    if (!has_background_) return;
    const auto stream = handshake();
    if (stream->given_up()) return;
    const std::uint64_t number = stream->signal();
    (void)wait_until(kForever, [&] { return stream->signalled(number) || stream->ended(); });
  }

  /// The handshake of the stream that the variable names now. One that was given up is replaced when its stream has
  /// passed it.
  std::shared_ptr<device::Handshake> handshake() {
    constexpr std::size_t kMostKept = 8;  // the program may have destroyed their streams
    const Stream stream = *gpu();
    const auto found = std::ranges::find_if(handshakes_, [&](const auto& one) { return one->is_of(stream); });
    const bool known = found != handshakes_.end();
    if (known && !((*found)->given_up() && (*found)->idle())) return *found;
    if (known || handshakes_.size() >= kMostKept)
      std::erase_if(handshakes_, [](const auto& one) { return one->idle(); });
    return handshakes_.emplace_back(std::make_shared<device::Handshake>(stream));
  }

  /// A stream that has refused a signal leaves nothing: the wait puts.
  void leave(OperationList operations) {
    if (!has_background_) return;
    const auto stream = handshake();
    if (stream->given_up()) return;
    const Place start{stream, stream->signal()};
    for (const auto* operation : operations) (*operation)->leave(start);
  }

  void take_back(OperationList operations) {
    std::shared_ptr<device::Handshake> last;
    for (const auto* operation : operations) {
      const auto putting = (*operation)->take_back();
      if (putting != nullptr && putting != last) await_puts(*putting);
      if (putting != nullptr) last = putting;
    }
  }

  /// Later work on the stream waits for what the own stream of `putting` has been given. If the stream is another
  /// GPU's, or refuses to wait, the host waits.
  void await_puts(const device::Handshake& putting) {
    bool waits = false;
    noting([&] {
      const auto here = handshake();
      if (here->given_up() || here->own_stream() != putting.own_stream()) return;
      here->answer_behind_own_stream(here->signal_and_wait());
      waits = true;
    });
    if (!waits) putting.await_own_stream();
  }

  template <class Work>
  void noting(Work work) {
    faults_.note(guarded("stream MPI, on a GPU's stream", work));
  }

  Context context_;
  void* const* variable_;
  std::vector<std::shared_ptr<device::Handshake>> handshakes_;
  bool has_background_ = false;
  Faults faults_;
};

}  // namespace

std::unique_ptr<Line> make_host_line(const Context& context) { return std::make_unique<HostLine>(context); }

std::unique_ptr<Line> make_line(const Context& context, void* const* variable) {
  if (c::is_host_stream(*variable))
    return std::make_unique<HostLine>(context, reinterpret_cast<sluice_host_stream* const*>(variable));
  return std::make_unique<GpuLine>(context, variable);
}

}  // namespace sluice::stream_mpi
