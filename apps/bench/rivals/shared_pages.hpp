// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/sluice.hpp>

#include <cstddef>

namespace bench {

/// Zeroed memory that a pair of ranks shares, with nothing of the library in between: this rank's, and the peer's as it
/// is seen here. Made by both at once; a channel carries no more than where it is. It is to be used no more when one of
/// them destroys it.
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
  bool mapped_theirs_;  // not in threads of one process, which see each other's memory as it is
};

}  // namespace bench
