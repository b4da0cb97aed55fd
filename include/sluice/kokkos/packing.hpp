// SPDX-License-Identifier: Apache-2.0
// Which elements of its Views a block exchanges with which rank, and where they are packed: whatever moves the
// messages.
#pragma once

#include <sluice/context.hpp>
#include <sluice/kokkos/cartesian.hpp>
#include <sluice/kokkos/moves.hpp>
#include <sluice/kokkos/reduce.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

namespace sluice::kokkos::detail {

enum class Side : std::uint8_t { own, ghosts };

/// The elements in direction `offset`: own ones next to that edge, or the ghosts beyond it. Dimensions behind the first
/// D are whole.
template <std::size_t D, class View>
Range range_of(const View& view, Index width, const Offset<D>& offset, Side side) {
  Range range;
  for (std::size_t k = 0; k < View::rank(); ++k) {
    const auto extent = static_cast<Index>(view.extent(k));
    if (k >= D) {
      range.end[k] = extent;
    } else if (offset[k] == 0) {
      range.begin[k] = width;
      range.end[k] = extent - width;
    } else {
      const Index inset = side == Side::own ? width : 0;
      range.begin[k] = offset[k] > 0 ? extent - inset - width : inset;
      range.end[k] = range.begin[k] + width;
    }
  }
  return range;
}

template <class View>
Box box_of(const View& view, const Range& range) {
  return box_of(view, {range.begin, View::rank()}, {range.end, View::rank()});
}

/// The own elements within `width` of an edge, in ranges that do not overlap.
template <std::size_t D, class View>
std::vector<Range> shell_of(const View& view, Index width) {
  std::vector<Range> all;
  Range inner = range_of<D>(view, width, Offset<D>{}, Side::own);
  for (std::size_t k = 0; k < D; ++k) {
    const Index begin = inner.begin[k];
    const Index end = inner.end[k];
    const Index low = std::min(begin + width, end);
    const Index high = std::max(low, end - width);
    const auto add = [&](Index from, Index to) {
      Range range = inner;
      range.begin[k] = from;
      range.end[k] = to;
      if (from < to) all.push_back(range);
    };
    add(begin, low);
    add(high, end);
    inner.begin[k] = low;
    inner.end[k] = high;
  }
  return all;
}

/// A block of a grid.
template <std::size_t D>
struct Block {
  Rank rank = 0;
  Cartesian<D> grid;
  Index width = 1;  ///< of its ghosts
  Stencil<D> stencil;
};

/// One way of an exchange, from own elements to ghosts or back: its messages, each of `depth` slots, and the kernels
/// that pack and unpack them.
template <class Exec, std::size_t D, class... Views>
class Packing {
 public:
  /// What goes between this rank and a peer: the elements at these offsets of the one that has them as ghosts.
  struct Message {
    Rank peer = 0;
    std::vector<Offset<D>> offsets;
  };

  /// One end of a way: its messages, where they are packed, and what is in them.
  struct End {
    std::vector<Message> messages;
    Memory memory;
    std::vector<Slot> slots;  // of message m, slot s: [m * depth + s]
    std::vector<Piece> pieces;
    std::array<std::vector<Part>, sizeof...(Views)> parts;  // of each View
    std::vector<Index> bytes;                               // of a slot of each message
  };

  /// What one exchange moves: Views like those that the packing was made of.
  struct Moved {
    Shifts shifts;
    std::tuple<Views...> views;
    std::shared_ptr<const void> kept;  // what kernels use, as long as they are not launched
  };

  Packing() = default;
  /// @param from  whose elements are packed: own ones, for the peers' ghosts; or ghosts, for their owners
  Packing(Context& context, const Exec& exec, const Block<D>& block, Index depth, const std::tuple<Views...>& views,
          Side from)
      : out_(end_of(block, views, from)), in_(end_of(block, views, from == Side::own ? Side::ghosts : Side::own)),
        rank_(block.rank), depth_(depth) {
    allocate(context, exec, out_, nullptr);
    allocate(context, exec, in_, &out_);
    own_ = {{}, views, std::make_shared<const Kept>(out_.memory, in_.memory, views)};
    slots_in_ = table_of(exec, in_.slots);
    pack_ = Moves<Exec>(exec, out_.pieces, table_of(exec, out_.slots), depth);
    unpack_ = Moves<Exec>(exec, in_.pieces, slots_in_, depth);
    Moves<Exec>::load(exec);
  }

  /// The Views it was made of, and others.
  const Moved& own() const { return own_; }
  Moved others(const std::tuple<Views...>& views) const {
    return {shifts_to(views, std::index_sequence_for<Views...>()), views,
            std::make_shared<const Kept>(out_.memory, in_.memory, views)};
  }

  void pack(const Queue<Exec>& queue, Index slot, const Moved& moved) const {
    pack_.template enqueue<Way::pack>(queue, "sluice: pack", slot, moved.kept, moved.shifts);
  }
  void unpack(const Queue<Exec>& queue, Index slot, const Moved& moved) const {
    unpack_.template enqueue<Way::unpack>(queue, "sluice: unpack", slot, moved.kept, moved.shifts);
  }

  /// `f(peer, slots)` for each message to another rank, or from one.
  template <class F>
  void for_each_sent(F f) const {
    for_each(out_, f);
  }
  template <class F>
  void for_each_received(F f) const {
    for_each(in_, f);
  }

  /// A message goes from this rank to itself: it is unpacked where it was packed.
  bool to_itself() const { return std::ranges::count(out_.messages, rank_, &Message::peer) > 0; }

  /// What came, for kernels that combine it instead of unpacking.
  const std::vector<Part>& parts(std::size_t view) const { return in_.parts[view]; }
  const Table<Slot, Exec>& slots() const { return slots_in_; }

 private:
  using Kept = std::tuple<Memory, Memory, std::tuple<Views...>>;

  template <std::size_t... I>
  Shifts shifts_to(const std::tuple<Views...>& views, std::index_sequence<I...>) const {
    const auto address = [](const auto& view) { return reinterpret_cast<std::intptr_t>(view.data()); };
    return {{(address(std::get<I>(views)) - address(std::get<I>(own_.views)))...}};
  }

  static Offset<D> opposite(Offset<D> offset) {
    for (int& step : offset) step = -step;
    return offset;
  }

  /// With whom, in the order that both ends know: by the stencil of who has the ghosts.
  static std::vector<Message> messages(const Block<D>& block, Side side) {
    std::map<Rank, std::vector<Offset<D>>> by_peer;
    for (const Offset<D>& offset : block.stencil) {
      const auto peer = block.grid.neighbour(block.rank, side == Side::ghosts ? offset : opposite(offset));
      if (peer) by_peer[*peer].push_back(offset);
    }
    std::vector<Message> all;
    for (auto& [peer, offsets] : by_peer) all.push_back({peer, std::move(offsets)});
    return all;
  }

  /// What the messages hold: for each offset, each View's elements.
  static End end_of(const Block<D>& block, const std::tuple<Views...>& views, Side side) {
    End end;
    end.messages = messages(block, side);
    for (std::size_t m = 0; m < end.messages.size(); ++m) {
      Index at = 0;
      for (const Offset<D>& offset : end.messages[m].offsets) {
        const Offset<D> seen = side == Side::own ? opposite(offset) : offset;
        const Index place = std::ranges::find(block.stencil, offset) - block.stencil.begin();
        std::size_t number = 0;
        const auto add = [&](const auto& view) {
          const auto range = range_of<D>(view, block.width, seen, side);
          const Box box = box_of(view, range);
          end.pieces.push_back({box, static_cast<Index>(m), at, static_cast<Index>(number)});
          end.parts[number++].push_back({range, static_cast<Index>(m), at, place});
          at += (box.bytes() + kAligned - 1) / kAligned * kAligned;
        };
        std::apply([&](const auto&... view) { (add(view), ...); }, views);
      }
      end.bytes.push_back(at);
    }
    for (auto& parts : end.parts) std::ranges::sort(parts, {}, &Part::order);
    return end;
  }

  /// Where the messages of an end are packed. One of this rank to itself is unpacked where it was packed: `out` has it.
  void allocate(Context& context, const Exec& exec, End& end, const End* out) const {
    const auto is_own = [&](std::size_t m) { return out != nullptr && end.messages[m].peer == rank_; };
    Index all = 0;
    for (std::size_t m = 0; m < end.messages.size(); ++m) all += is_own(m) ? 0 : end.bytes[m] * depth_;
    if (all != 0) end.memory = context.allocate(static_cast<std::size_t>(all), kSpaceOf<Exec>, device_of(exec));
    Index at = 0;
    for (std::size_t m = 0; m < end.messages.size(); ++m) {
      std::byte* first = nullptr;
      if (is_own(m)) {
        const auto same = std::ranges::find(out->messages, rank_, &Message::peer) - out->messages.begin();
        first = out->slots[static_cast<std::size_t>(same * depth_)].data;
      } else {
        first = end.memory.data() + at;
        at += end.bytes[m] * depth_;
      }
      for (Index slot = 0; slot < depth_; ++slot) end.slots.push_back({first + slot * end.bytes[m]});
    }
  }

  template <class F>
  void for_each(const End& end, F f) const {
    for (std::size_t m = 0; m < end.messages.size(); ++m) {
      if (end.messages[m].peer == rank_) continue;
      const auto at = end.slots[m * static_cast<std::size_t>(depth_)].data - end.memory.data();
      f(end.messages[m].peer,
        end.memory.slice(static_cast<std::size_t>(at), static_cast<std::size_t>(end.bytes[m] * depth_)));
    }
  }

  End out_;
  End in_;
  Rank rank_ = 0;
  Index depth_ = 1;
  Table<Slot, Exec> slots_in_;
  Moves<Exec> pack_;
  Moves<Exec> unpack_;
  Moved own_;
};

}  // namespace sluice::kokkos::detail
