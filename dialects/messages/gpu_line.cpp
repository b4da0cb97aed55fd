// SPDX-License-Identifier: Apache-2.0
#include "dialects/messages/gpu_line.hpp"

#include <sluice/stream.hpp>

#include <cstdint>
#include <optional>
#include <utility>

#include "c/handles.hpp"
#include "device/handshake.hpp"
#include "dialects/common/host_line.hpp"
#include "dialects/common/outcome.hpp"
#include "dialects/messages/host_operation.hpp"
#include "dialects/messages/lane.hpp"

namespace sluice::stream_mpi {
namespace {

using device::Handshake;

/// An item of the host stream. If it throws, the stream drops the items behind it, which would use the buffers.
struct AwaitSignal {
  std::shared_ptr<Handshake> handshake;
  std::uint64_t number;

  /// Goes on with messages that have started meanwhile: the GPU may compute for long.
  void operator()() const {
    const auto ready = [this] {
      progress_lanes();
      return handshake->signalled(number) || handshake->ended();
    };
    (void)wait_until(kForever, ready);
    if (!handshake->signalled(number) || handshake->given_up())
      throw Refused(MPI_ERR_OTHER, "a GPU's stream does not run any more");
  }
};

/// An item of the host stream. One that is dropped answers, too.
class Answer {
 public:
  Answer(std::shared_ptr<Handshake> handshake, std::uint64_t number)
      : handshake_(std::move(handshake)), number_(number) {}
  Answer(Answer&&) noexcept = default;
  Answer(const Answer&) = delete;
  Answer& operator=(Answer&&) = delete;
  Answer& operator=(const Answer&) = delete;
  ~Answer() { (*this)(); }

  void operator()() {
    if (const auto handshake = std::exchange(handshake_, nullptr)) handshake->answer(number_);
  }

 private:
  std::shared_ptr<Handshake> handshake_;
  std::uint64_t number_;
};

class LineOfGpu final : public Line {
 public:
  LineOfGpu(const Context& context, Stream stream)
      : handshake_(std::make_shared<Handshake>(stream)), host_{HostStream({.name = "stream MPI of a GPU"}), nullptr},
        line_(context, &variable_) {}
  LineOfGpu(const LineOfGpu&) = delete;
  LineOfGpu& operator=(const LineOfGpu&) = delete;
  ~LineOfGpu() override {
    if (used_) (void)wait();
    handshake_->end();
  }

  std::optional<Stream> gpu() const override { return handshake_->stream(); }
  void check() const override { handshake_->check(); }

  void start(OperationList operations) override {
    const std::uint64_t number = handshake_->signal();
    used_ = true;
    in_order([&] {
      await(number);
      line_.start(operations);
    });
  }

  void wait_all(OperationList operations) override {
    const std::uint64_t number = handshake_->signal_and_wait();
    used_ = true;
    in_order([&] {
      Answer answer(handshake_, number);
      await(number);
      line_.wait_all(operations);
      host_.stream.run(std::move(answer));
    });
  }

  /// The program may have destroyed the stream after the last wait, if it has given it nothing since.
  int wait() override {
    const int refused = guarded("stream MPI, on a GPU's stream", [&] {
      if (std::exchange(used_, false) && !handshake_->given_up()) await(handshake_->signal());
    });
    const int met = line_.wait();
    return met == 0 ? refused : met;
  }

 private:
  void await(std::uint64_t number) { host_.stream.run(AwaitSignal{handshake_, number}); }

  /// The GPU's stream has its part already. Without the host's part it must not wait for ever.
  template <class Enqueue>
  void in_order(Enqueue enqueue) {
    try {
      enqueue();
    } catch (...) {
      handshake_->end();
      throw;
    }
  }

  std::shared_ptr<Handshake> handshake_;
  bool used_ = false;  // since the last wait
  sluice_host_stream host_;
  sluice_host_stream* variable_ = &host_;
  HostLine line_;
};

}  // namespace

std::unique_ptr<Line> make_gpu_line(const Context& context, Stream stream) {
  return std::make_unique<LineOfGpu>(context, stream);
}

}  // namespace sluice::stream_mpi
