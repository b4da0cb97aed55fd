// SPDX-License-Identifier: Apache-2.0
// Memory that a rank attaches to its part of a window of MPI_Win_create_dynamic.
#pragma once

#include <sluice/context.hpp>
#include <sluice/window.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace sluice::mpi_rma {

/// Pieces of a window of Sluice's, whose offsets are the addresses of the memory. Pieces consist of whole pages, and
/// regions of MPI's of bytes: a page that a region fills in part only is a piece of its own, which other regions may
/// share. So one request opens all nodes of a list that lie in one page, and a peer may access the other bytes of that
/// page: such an access is erroneous, and is not noticed. Any thread: calls take turns, also while one waits for peers.
class Attached {
 public:
  /// Attaches the whole region, or nothing.
  /// @throws Refused{MPI_ERR_RMA_ATTACH} if a part of the region is attached already, or it cannot be pinned
  void attach(Context& context, Window& window, std::byte* base, std::size_t bytes);
  /// Returns once no peer accesses the region. @throws Refused{MPI_ERR_ARG} if no region that begins at `base` is
  /// attached; Error{Code::timeout}: call it again
  void detach(Window& window, const std::byte* base);

 private:
  struct Piece {
    std::uintptr_t at;
    std::size_t bytes;
    bool shared;  ///< a page that other regions may have a part of
  };
  struct Region {
    std::uintptr_t end;
    std::vector<Piece> pieces;
  };
  static std::vector<Piece> pieces_of(std::uintptr_t begin, std::uintptr_t end);
  bool overlaps(std::uintptr_t begin, std::uintptr_t end) const;
  void take(Context& context, Window& window, const Piece& piece);
  void drop(Window& window, const Piece& piece);
  void drop_all(Window& window, std::vector<Piece>& pieces);
  void take_back(Window& window, std::vector<Piece>& pieces) noexcept;
  void attach_bytes(Context& context, Window& window, std::uintptr_t begin, std::uintptr_t end);

  std::mutex mutex_;
  std::map<std::uintptr_t, Region> regions_;      // by address
  std::multiset<std::uintptr_t> empty_;           // regions of 0 bytes
  std::map<std::uintptr_t, std::size_t> shared_;  // by address of the page: how many regions have a part of it
};

}  // namespace sluice::mpi_rma
