// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>

namespace bench {

/// Zeroed memory of this rank and of its peer, which both of them have mapped without the library. Both ranks make this
/// object at the same time. Neither may use the memory after one of them has destroyed its object.
class SharedPages {
 public:
  /// The place at which the peer finds a rank's memory.
  struct Place {
    pid_t process;
    int file;           ///< open in that process
    std::byte* memory;  ///< for a peer that is a thread of that process
  };
  /// Gives a value to the peer and returns the peer's value. Called by both ranks.
  using Exchange = std::function<Place(const Place& mine)>;

  SharedPages(std::size_t bytes, const Exchange& exchange);
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
