// SPDX-License-Identifier: Apache-2.0
// Copies into memory that a peer reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/faster_way.hpp"

namespace sluice::backends {

/// Copies by the caches, or past them, as was faster lately. Stores wait for lines that the peer has read before, and
/// if those travel slowly, it reads what comes from memory sooner. For one stream.
class MeasuredCopy {
 public:
  static constexpr std::size_t kLeastBytes = 4 * 1024;  ///< of fewer, the time is not measured

  /// `bytes`: more than `kLeastBytes`. No reader sees a later store before the copy.
  void operator()(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

 private:
  FasterWay ways_;
  std::uint32_t turn_ = 0;
};

}  // namespace sluice::backends
