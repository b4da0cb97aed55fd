// SPDX-License-Identifier: Apache-2.0
// The kernels that pack and unpack: all boxes of all messages in one launch, or one box.
#pragma once

#include <sluice/kokkos/box.hpp>
#include <sluice/kokkos/queue.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace sluice::kokkos::detail {

template <class T>
concept AnyView = Kokkos::is_view_v<T>;

enum class Way : std::uint8_t { pack, unpack };

/// Fails to compile, with a reason, unless kernels of `Exec` can move the View.
template <class Exec, class View, Way kWay>
constexpr bool check_view() {
  static_assert(Kokkos::is_execution_space_v<Exec>, "an instance of an execution space of Kokkos is needed");
  static_assert(Kokkos::is_view_v<View>, "a View of Kokkos is needed; of an mdspan, its view_of");
  static_assert(Kokkos::SpaceAccessibility<Exec, typename View::memory_space>::accessible,
                "the execution space cannot reach the View: it is in other memory");
  static_assert(std::is_trivially_copyable_v<typename View::value_type>, "elements are moved as bytes");
  static_assert(kWay == Way::pack || !std::is_const_v<typename View::value_type>,
                "what is received is written: the elements are const");
  return true;
}

/// Piece::message of elements that are copied to others of the same View, and not into a message.
inline constexpr Index kMirror = -1;

/// A box of elements, and its place in a message.
struct Piece {
  Box box;
  Index message = 0;
  Index at = 0;     ///< in bytes, from the message's begin, a multiple of `kAligned`; of a mirror, from the box
  Index view = 0;   ///< whose elements these are
  Index first = 0;  ///< how many work items the pieces before it are
  Index rows = 1;   ///< of an item
};

inline constexpr std::size_t kMostViews = 8;

/// The distances in bytes between the Views of one call and those that the pieces were made of.
using Shifts = Kokkos::Array<Index, kMostViews>;

/// Pieces begin at multiples of this many bytes in a message.
inline constexpr Index kAligned = 16;

/// Returns the piece of a work item. `first` of each piece is the number of its first item.
template <class Part>
KOKKOS_INLINE_FUNCTION const Part& with_item(const Part* pieces, Index count, Index item) {
  Index number = 0;
  for (Index end = count; end - number > 1;) {
    const Index middle = (number + end) / 2;
    (pieces[middle].first <= item ? number : end) = middle;
  }
  return pieces[number];
}

/// True if a work item is one element, as on a GPU; on the host it is some rows.
template <class Exec>
inline constexpr bool kByElement = !kOnHost<Exec>;

/// The size of a work item of the host, if a row is no longer: large enough to hide the cost of a call.
inline constexpr Index kItemBytes = 4096;

/// Returns how many rows of `bytes` bytes are one work item.
template <class Exec>
Index rows_of_item(Index bytes) {
  return kByElement<Exec> ? 1 : std::max(Index{1}, kItemBytes / std::max(Index{1}, bytes));
}

/// Returns how many work items `all_rows` rows of `run` elements are.
template <class Exec>
Index items_of(Index run, Index all_rows, Index rows) {
  return kByElement<Exec> ? run * all_rows : (all_rows + rows - 1) / rows;
}

/// A word of 16 bytes: GPUs move it in one access.
struct alignas(16) Pair {
  std::uint64_t low, high;
};

template <class Word>
KOKKOS_INLINE_FUNCTION void copy_words(std::byte* to, const std::byte* from, Index bytes) {
  const auto words = bytes / static_cast<Index>(sizeof(Word));
  for (Index i = 0; i < words; ++i) reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
}

/// Copies one element, in words that are as aligned as its type.
KOKKOS_INLINE_FUNCTION void copy_element(std::byte* to, const std::byte* from, Index bytes, Index word) {
  switch (word) {
    case 1: return copy_words<std::uint8_t>(to, from, bytes);
    case 2: return copy_words<std::uint16_t>(to, from, bytes);
    case 4: return copy_words<std::uint32_t>(to, from, bytes);
    case 8: return copy_words<std::uint64_t>(to, from, bytes);
    default: return copy_words<Pair>(to, from, bytes);
  }
}

/// Copies `count` rows of `bytes` bytes, at these distances. For a size that the compiler knows, memcpy is not called.
inline void copy_rows(std::byte* to, Index to_step, const std::byte* from, Index from_step, Index bytes, Index count) {
  const auto copy = [=](auto size) {
    for (Index i = 0; i < count; ++i)
      std::memcpy(to + i * to_step, from + i * from_step, static_cast<std::size_t>(size));
  };
  switch (bytes) {
    case 1: return copy(std::integral_constant<int, 1>());
    case 4: return copy(std::integral_constant<int, 4>());
    case 8: return copy(std::integral_constant<int, 8>());
    default: return copy(bytes);
  }
}

/// The memory that a message is packed in. A struct, as a View of pointers would have two dimensions.
struct Slot {
  std::byte* data = nullptr;
};

/// A list in memory that kernels of `Exec` read. A handle.
template <class T, class Exec>
using Table = Kokkos::View<T*, typename Exec::memory_space>;

/// Copies a list to where kernels read it. Blocks the host until that has happened.
template <class T, class Exec>
Table<T, Exec> table_of(const Exec& exec, const std::vector<T>& items) {
  Table<T, Exec> table(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, "sluice: table"), items.size());
  if constexpr (kOnHost<Exec>) {
    std::copy(items.begin(), items.end(), table.data());
  } else {
    Kokkos::deep_copy(exec, table, Kokkos::View<const T*, Kokkos::HostSpace>(items.data(), items.size()));
    exec.fence("sluice: table");
  }
  return table;
}

/// The place of a box in a message, where its elements lie one behind the other; if `packed` is null, the distance in
/// bytes from each element to the one that it is copied to.
struct Place {
  std::byte* packed = nullptr;
  Index distance = 0;
};

/// Moves the rows [begin, end) of a box that is `shift` bytes away. One loop moves rows at one distance.
template <Way kWay>
void move_rows(const Box& box, Index shift, const Place& place, Index begin, Index end) {
  const Index bytes = box.run() * box.element;
  const int outer = box.outer();
  const Index extent = outer < box.rank ? box.extents[outer] : 1;
  const Index step = outer < box.rank ? box.strides[outer] * box.element : 0;
  for (Index row = begin; row < end;) {
    const Index count = std::min(end - row, extent - row % extent);
    std::byte* const field = box.row(row) + shift;
    if (place.packed == nullptr) {
      copy_rows(field + place.distance, step, field, step, bytes, count);
    } else if (kWay == Way::pack) {
      copy_rows(place.packed + row * bytes, bytes, field, step, bytes, count);
    } else {
      copy_rows(field, step, place.packed + row * bytes, bytes, bytes, count);
    }
    row += count;
  }
}

/// Moves item number `item` of a box that is `shift` bytes away: an element, or `rows` rows.
template <class Exec, Way kWay>
KOKKOS_FUNCTION void move_item(const Box& box, Index rows, Index shift, const Place& place, Index item) {
  if constexpr (kByElement<Exec>) {
    std::byte* const element = box.at(item) + shift;
    std::byte* const other = place.packed == nullptr ? element + place.distance : place.packed + item * box.element;
    copy_element(kWay == Way::pack ? other : element, kWay == Way::pack ? element : other, box.element, box.word);
  } else {
    KOKKOS_IF_ON_HOST((move_rows<kWay>(box, shift, place, item * rows, std::min((item + 1) * rows, box.rows()));))
  }
}

template <class Exec, Way kWay>
struct Move {
  const Piece* pieces = nullptr;
  Index count = 0;              ///< of pieces
  const Slot* slots = nullptr;  ///< of message m: slots[m * depth + slot]
  Index depth = 1;
  Index slot = 0;
  Shifts shifts = {};

  KOKKOS_FUNCTION void operator()(Index item) const {
    if (count == 0) return;  // launched to be loaded
    const Piece& it = with_item(pieces, count, item);
    const bool mirrors = it.message == kMirror;
    const Place place{mirrors ? nullptr : slots[it.message * depth + slot].data + it.at, it.at};
    move_item<Exec, kWay>(it.box, it.rows, shifts[it.view], place, item - it.first);
  }
};

/// Launches both kernels with nothing to do: a GPU loads a kernel at its first launch, and may then wait for streams
/// that wait for a peer.
template <template <class, Way> class Kernel, class Exec>
void load_kernels(const Exec& exec) {
  launch(exec, "sluice: load", 1, Kernel<Exec, Way::pack>{});
  launch(exec, "sluice: load", 1, Kernel<Exec, Way::unpack>{});
}

template <Way kWay>
inline constexpr const char* kLabel = kWay == Way::pack ? "sluice: pack" : "sluice: unpack";

/// Packs one box, or unpacks it.
template <class Exec, Way kWay>
struct MoveBox {
  Box box;
  Index rows = 1;  ///< of an item
  std::byte* packed = nullptr;

  KOKKOS_FUNCTION void operator()(Index item) const {
    if (packed != nullptr) move_item<Exec, kWay>(box, rows, 0, {packed}, item);
  }
};

/// A box with the size of its kernels.
template <class Exec>
struct SizedBox {
  explicit SizedBox(const Box& of)
      : box(of), rows(rows_of_item<Exec>(of.run() * of.element)), items(items_of<Exec>(of.run(), of.rows(), rows)),
        bytes(of.bytes()) {}

  /// Enqueues the packing into `packed`, or the unpacking. Copies of `kept` live until the host has launched the
  /// kernel.
  template <Way kWay, class... Kept>
  void move(const Queue<Exec>& queue, std::byte* packed, const Kept&... kept) const {
    queue.move(kLabel<kWay>, items, bytes, MoveBox<Exec, kWay>{box, rows, packed}, kept...);
  }

  Box box;
  Index rows;  ///< of an item
  Index items;
  Index bytes;
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
      const SizedBox<Exec> sized(piece.box);
      piece.first = items_;
      piece.rows = sized.rows;
      items_ += sized.items;
      bytes_ += sized.bytes;
    }
    pieces_ = table_of(exec, pieces);
  }

  /// Enqueues the kernel. `keep` lives until the host has launched it.
  template <Way kWay>
  void enqueue(const Queue<Exec>& queue, Index slot, const std::shared_ptr<const void>& keep,
               const Shifts& shifts) const {
    const Move<Exec, kWay> move{pieces_.data(), static_cast<Index>(pieces_.extent(0)), slots_.data(), depth_, slot,
                                shifts};
    queue.move(kLabel<kWay>, items_, bytes_, move, keep, pieces_, slots_);
  }

 private:
  Index depth_ = 1;
  Index items_ = 0;
  Index bytes_ = 0;
  Table<Piece, Exec> pieces_;
  Table<Slot, Exec> slots_;
};

}  // namespace sluice::kokkos::detail
