// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/sluice.hpp>

#include <cstddef>

namespace bench {

/// Zeroed memory that a pair of ranks shares without the library: this rank's, and the peer's as it is mapped here.
/// Both make it at once; a channel carries only the name of the file. Neither may use it after one of them has
/// destroyed it.
class SharedPages {
 public:
  SharedPages(sluice::Context& context, sluice::Rank peer, std::size_t bytes);
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  std::byte* mine() const { return mine_; }
  std::byte* theirs() const { return theirs_; }

 private:
  std::size_t bytes_;
  std::byte* mine_;
  std::byte* theirs_;
  bool mapped_theirs_;  // false in threads of one process, which see each other's memory directly
};

}  // namespace bench
