// SPDX-License-Identifier: Apache-2.0
// One stream memory operation: its checked arguments, and its execution.
#pragma once

#include "tests/emucuda/driver.hpp"

namespace emucuda {

class WordOperation {
 public:
  /// Refuses what a device would not do; says nothing of the future.
  static CUresult check(const CUstreamBatchMemOpParams& asked, int device, WordOperation& operation);
  CUresult perform(Turn& turn) const;

 private:
  CUresult find_word(CUdeviceptr address, std::size_t bytes, int device);
  CUresult check_wait(const CUstreamBatchMemOpParams& asked, int device);
  CUresult check_write(const CUstreamBatchMemOpParams& asked, int device);
  template <class Word>
  CUresult wait(Turn& turn) const;
  template <class Word>
  void write() const;

  CUstreamBatchMemOpType type_{};
  CUdeviceptr address_ = 0;
  Pieces word_;
  std::uint64_t value_ = 0;
  unsigned flags_ = 0;
};

}  // namespace emucuda
