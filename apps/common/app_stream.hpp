// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/sluice.hpp>

#include <optional>
#include <utility>

namespace apps {

enum class StreamKind { inline_, host, cuda };

/// Where the work of a program runs in order: in the calling thread, on a host stream, or on a GPU's stream. One source
/// serves all.
class AppStream {
 public:
  /// Of the host: inline or a host stream.
  explicit AppStream(StreamKind kind) {
    if (kind == StreamKind::host) handle_ = sluice::Stream::host(host_.emplace());
  }
  /// A GPU's, on which work enqueues what it does by itself.
  explicit AppStream(sluice::Stream gpu) : handle_(gpu) {}
  AppStream(const AppStream&) = delete;
  AppStream& operator=(const AppStream&) = delete;

  sluice::Stream handle() const { return handle_; }

  /// Runs `work` after everything enqueued before it: when the host stream gets there; else at once.
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
  sluice::Stream handle_;
};

}  // namespace apps
