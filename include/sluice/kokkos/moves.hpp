// SPDX-License-Identifier: Apache-2.0
// The kernel that packs or unpacks all boxes of all messages in one launch.
#pragma once

#include <sluice/kokkos/box.hpp>
#include <sluice/kokkos/queue.hpp>
#include <sluice/kokkos/seeded.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sluice::kokkos::detail {

/// A box of elements, and where it is packed.
struct Piece {
  Box box;
  Index message = 0;
  Index at = 0;     ///< in bytes, from the message's begin; a multiple of `kAligned`
  Index view = 0;   ///< whose elements these are
  Index first = 0;  ///< how many work items the pieces before it are
};

inline constexpr std::size_t kMostViews = 8;

/// By how many bytes the Views of one call are away from those that the pieces were made of.
struct Shifts {
  Index of_view[kMostViews] = {};
};

/// Pieces begin at multiples of this many bytes in a message.
inline constexpr Index kAligned = 16;

/// What one call of a kernel copies: a row on the host, an element on a GPU.
template <class Exec>
inline constexpr bool kByElement = !kOnHost<Exec>;

template <class Exec>
Index items_of(const Box& box) {
  return kByElement<Exec> ? box.count() : box.rows();
}

/// An element of a size that types have goes in one access.
KOKKOS_INLINE_FUNCTION void copy_element(std::byte* to, const std::byte* from, Index bytes) {
  if (bytes == 8) {
    *reinterpret_cast<std::uint64_t*>(to) = *reinterpret_cast<const std::uint64_t*>(from);
  } else if (bytes == 4) {
    *reinterpret_cast<std::uint32_t*>(to) = *reinterpret_cast<const std::uint32_t*>(from);
  } else {
    for (Index i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

/// Where a message is packed. A View of pointers would be one of two dimensions.
struct Slot {
  std::byte* data = nullptr;
};

/// A list where kernels of `Exec` can read it. A handle.
template <class T, class Exec>
using Table = Kokkos::View<T*, typename Exec::memory_space>;

/// Blocks the host until the list is there.
template <class T, class Exec>
Table<T, Exec> table_of(const Exec& exec, const std::vector<T>& items) {
  Table<T, Exec> table(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, "sluice: table"), items.size());
  Kokkos::deep_copy(exec, table, Kokkos::View<const T*, Kokkos::HostSpace>(items.data(), items.size()));
  exec.fence("sluice: table");
  return table;
}

enum class Way : std::uint8_t { pack, unpack };

template <class Exec, Way kWay>
struct Move {
  Table<Piece, Exec> pieces;
  Table<Slot, Exec> slots;  ///< of message m: slots[m * depth + slot]
  Index depth = 1;
  Index slot = 0;
  Shifts shifts;

  KOKKOS_FUNCTION void operator()(Index item) const {
    if (pieces.extent(0) == 0) return;  // launched to be loaded
    Index piece = 0;
    for (auto end = static_cast<Index>(pieces.extent(0)); end - piece > 1;) {
      const Index middle = (piece + end) / 2;
      (pieces(middle).first <= item ? piece : end) = middle;
    }
    const Box& box = pieces(piece).box;
    std::byte* const packed = slots(pieces(piece).message * depth + slot).data + pieces(piece).at;
    const Index shift = shifts.of_view[pieces(piece).view];
    item -= pieces(piece).first;
    if constexpr (kByElement<Exec>) {
      copy(box.at(item) + shift, packed + item * box.element, box.element);
    } else {
      const Index bytes = box.run() * box.element;
      copy(box.row(item) + shift, packed + item * bytes, bytes);
    }
  }

 private:
  KOKKOS_FUNCTION static void copy(std::byte* field, std::byte* packed, Index bytes) {
    std::byte* const to = kWay == Way::pack ? packed : field;
    const std::byte* const from = kWay == Way::pack ? field : packed;
    if constexpr (kByElement<Exec>) {
      copy_element(to, from, bytes);
    } else {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
  }
};

/// Pieces of several messages, moved by one kernel.
template <class Exec>
class Moves {
 public:
  Moves() = default;
  /// `slots`: of message m, slot s, at [m * depth + s].
  Moves(const Exec& exec, std::vector<Piece> pieces, Table<Slot, Exec> slots, Index depth)
      : depth_(depth), slots_(std::move(slots)) {
    for (Piece& piece : pieces) {
      piece.first = items_;
      items_ += items_of<Exec>(piece.box);
    }
    pieces_ = table_of(exec, pieces);
  }

  /// Launches both kernels with nothing to do: a GPU loads a kernel at its first launch, and may wait then for streams
  /// that wait for a peer.
  static void load(const Exec& exec) {
    launch(exec, "sluice: load", 1, Move<Exec, Way::pack>{});
    launch(exec, "sluice: load", 1, Move<Exec, Way::unpack>{});
  }

  template <Way kWay>
  void enqueue(const Queue<Exec>& queue, const std::string& label, Index slot, std::shared_ptr<const void> keep,
               const Shifts& shifts = {}) const {
    const Move<Exec, kWay> move{pieces_, slots_, depth_, slot, shifts};
    if (kWay == Way::unpack && seeded("unpacked_at_once")) return launch(queue.exec(), label, items_, move);
    queue.parallel_for(label, items_, move, std::move(keep));
  }

 private:
  Index depth_ = 1;
  Index items_ = 0;
  Table<Piece, Exec> pieces_;
  Table<Slot, Exec> slots_;
};

}  // namespace sluice::kokkos::detail
