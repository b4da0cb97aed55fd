// SPDX-License-Identifier: Apache-2.0
// Operations in the order of a GPU's stream, and what kind of stream a pointer is.
#include "dialects/common/line.hpp"

#include <sluice/c/stream.hpp>
#include <sluice/error.hpp>

#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "device/handshake.hpp"
#include "dialects/common/host_line.hpp"
#include "dialects/common/job.hpp"
#include "dialects/common/outcome.hpp"

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
    (void)handshake();  // nothing can be mapped behind a stream that waits
  }

  std::optional<Stream> gpu() const override { return gpu_stream(*variable_); }
  void check() override { handshake()->check(); }

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
    noting([&] { context_.synchronize(*gpu()); });
    noting([&] { faults_.note(Job::current()->untold.take()); });
    return faults_.take();
  }

 private:
  /// The handshake of the stream that the variable names now.
  const std::shared_ptr<device::Handshake>& handshake() {
    const auto found = std::ranges::find(handshakes_, *gpu(), [](const auto& one) { return one->stream(); });
    if (found != handshakes_.end()) return *found;
    return handshakes_.emplace_back(std::make_shared<device::Handshake>(*gpu()));
  }

  void leave(OperationList operations) {
    const auto& stream = handshake();
    const Place start{stream, stream->signal()};
    for (const auto* operation : operations) (*operation)->leave(start);
  }

  void take_back(OperationList operations) {
    bool put_aside = false;
    for (const auto* operation : operations) noting([&] { put_aside = (*operation)->take_back() || put_aside; });
    if (put_aside) noting([&] { handshake()->answer_behind_own_stream(handshake()->signal_and_wait()); });
  }

  template <class Work>
  void noting(Work work) {
    faults_.note(guarded("stream MPI, on a GPU's stream", work));
  }

  Context context_;
  void* const* variable_;
  std::vector<std::shared_ptr<device::Handshake>> handshakes_;
  Faults faults_;
};

}  // namespace

bool is_host_stream(void* handle) {
  sluice_host_stream* const candidate = static_cast<sluice_host_stream*>(handle);
  alignas(sluice_host_stream) std::byte copy[sizeof(sluice_host_stream)];
  const iovec to{copy, sizeof copy};
  const iovec from{candidate, sizeof copy};
  if (handle == nullptr || process_vm_readv(getpid(), &to, 1, &from, 1, 0) != sizeof copy) return false;
  try {
    return stream_of(sluice_stream_host(candidate)).kind() == Stream::Kind::host;
  } catch (const Error& error) {
    return error.code() != Code::misuse;
  }
}

std::unique_ptr<Line> make_host_line(const Context& context) { return std::make_unique<HostLine>(context); }

std::unique_ptr<Line> make_line(const Context& context, void* const* variable) {
  if (is_host_stream(*variable))
    return std::make_unique<HostLine>(context, reinterpret_cast<sluice_host_stream* const*>(variable));
  return std::make_unique<GpuLine>(context, variable);
}

}  // namespace sluice::stream_mpi
