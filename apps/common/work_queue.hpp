// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/options.hpp"

#include <sluice/sluice.hpp>

#include <optional>
#include <utility>

namespace apps {

/// The order in which the work of a program without Kokkos runs: in the calling thread, or on a host stream.
class WorkQueue {
 public:
  explicit WorkQueue(StreamKind kind) {
    if (kind == StreamKind::host) host_.emplace(sluice::HostStream::Options{.stop_after_failure = true});
  }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  sluice::Stream stream() { return host_ ? sluice::Stream::host(*host_) : sluice::Stream::program_order(); }
  void run(auto work) {
    if (host_) return host_->run(std::move(work));
    work();
  }
  /// Ends the host stream, as its destructor does: nothing runs on it any more.
  void end() noexcept { host_.reset(); }

 private:
  std::optional<sluice::HostStream> host_;
};

}  // namespace apps
