// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/sluice.hpp>

#include <optional>
#include <utility>

namespace apps {

enum class StreamKind { inline_, host };

/// Where the work of a program runs in order: in the calling thread, or on a host stream. One source serves both.
class AppStream {
 public:
  explicit AppStream(StreamKind kind) {
    if (kind == StreamKind::host) host_.emplace();
  }

  sluice::Stream handle() { return host_ ? sluice::Stream::host(*host_) : sluice::Stream::program_order(); }

  /// Runs `work` after everything enqueued before it: at once, or when the host stream gets there.
  template <class F>
  void run(F work) {
    if (host_) {
      host_->run(std::move(work));
    } else {
      work();
    }
  }

 private:
  std::optional<sluice::HostStream> host_;
};

}  // namespace apps
