// SPDX-License-Identifier: Apache-2.0
// Packing: which elements of its Views a block exchanges with which rank, and where they are packed.
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
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace sluice::kokkos {

/// A side of a block's edge: own elements next to it, or the ghosts beyond.
enum class Side : std::uint8_t { own, ghosts };

/// When a rank that is its own neighbour, on a grid that wraps around, fills the ghosts that it owns itself: with the
/// ghosts from other ranks, by `unpack`; or at once, by `pack`.
enum class OwnGhosts : std::uint8_t { with_others, at_once };

/// Returns which elements of View number `view` lie in direction `offset`: see HaloOptions.
template <std::size_t D>
using Ranges = std::function<Range(std::size_t view, const Offset<D>& offset, Side side)>;

/// How messages without gaps, of one View in one direction, are moved: packed like others, or sent from the View and
/// received in it.
enum class Gapless : std::uint8_t { packed, in_place };

/// A rank's block of a grid.
template <std::size_t D>
struct Block {
  Rank rank = 0;
  Cartesian<D> grid;
  std::int64_t width = 1;  ///< of its ghosts
  Stencil<D> stencil;
  Ranges<D> ranges = {};  ///< unset: `width` elements next to each edge, or beyond
};

namespace detail {

/// The direction that a message in direction `offset` comes from.
template <std::size_t D>
Offset<D> opposite(Offset<D> offset) {
  for (int& step : offset) step = -step;
  return offset;
}

/// The elements of View number `number` in direction `offset`: own ones next to that edge, or the ghosts beyond it. The
/// block's own `ranges` say which, if it has them; else dimensions after the first D are whole.
template <std::size_t D>
Range range_of(const Block<D>& block, const auto& view, std::size_t number, const Offset<D>& offset, Side side) {
  if (block.ranges) return block.ranges(number, offset, side);
  const Index width = block.width;
  Range range;
  for (std::size_t k = 0; k < view.rank(); ++k) {
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

/// "1,0,-1"
template <std::size_t D>
std::string name_of(const Offset<D>& offset) {
  std::string name;
  for (const int step : offset) name += (name.empty() ? "" : ",") + std::to_string(step);
  return name;
}

/// Slots begin at multiples of a cache line, as different cores write and read neighbouring slots.
inline constexpr Index kSlotAligned = 64;

inline Index round_up(Index bytes, Index to) { return (bytes + to - 1) / to * to; }

}  // namespace detail

/// Packs like a Halo, for programs that move the messages themselves, through MPI for example: one way of an exchange,
/// from own elements to ghosts or back. It has the messages, each of `depth` slots, and the kernels that pack and
/// unpack them. Both ends of a message have its elements in the same order. Views are as a Halo takes them.
///
/// `pack` and `unpack` only enqueue; the program orders the use of each slot. A handle: copies share the slots. One
/// thread at a time, in the order of the queue.
template <class Exec, std::size_t D, class... Views>
class Packing {
  using Index = detail::Index;
  using Slots = detail::Table<detail::Slot, Exec>;

  /// The elements that one rank gets from or sends to a peer, at these offsets of the rank that has them as ghosts.
  struct Message {
    Rank peer = 0;
    std::vector<Offset<D>> offsets = {};
    Index bytes = 0;                // of a slot
    std::byte* in_place = nullptr;  // the elements in the View, if they are not packed
    Slice slots = {};               // one behind the other
    std::string contents = {};
  };

  /// One end of a way: its messages, and the pieces of Views in them.
  struct End {
    std::vector<Message> messages;
    Memory memory;
    std::vector<detail::Slot> slots;  // of message m, slot s: [m * depth + s]
    std::vector<detail::Piece> pieces;
    std::array<std::vector<detail::Part>, sizeof...(Views)> parts;  // of each View
  };

 public:
  /// The Views of one exchange, of the same shape as those that the packing was made of.
  struct Moved {
    detail::Shifts shifts;
    std::tuple<Views...> views;
    std::shared_ptr<const void> kept;  // lives until kernels that use it are launched
  };

  /// Empty: nothing is moved.
  Packing() = default;
  /// Allocates the slots, copies tables to where kernels read them, and loads the kernels; blocks the host until then.
  /// @param from  whose elements are packed: own ones, for the peers' ghosts; or ghosts, for their owners
  /// @param gapless  the same at all ranks; in_place for a depth of 1, and for the Views given here alone
  /// @throws Error{Code::mismatch} if this rank is its own neighbour and its elements do not fit into its ghosts;
  ///   otherwise like Context::allocate and Context::region
  Packing(Context& context, const Exec& exec, const Block<D>& block, Index depth, const std::tuple<Views...>& views,
          Side from, OwnGhosts own = OwnGhosts::with_others, Gapless gapless = Gapless::packed)
      : rank_(block.rank), depth_(depth), gapless_(gapless) {
    const Side to = from == Side::own ? Side::ghosts : Side::own;
    const auto end_with = [&](Side side, bool own_message, bool others) {
      std::vector<Message> all = messages(block, side);
      std::erase_if(all, [&](const Message& one) { return !(one.peer == rank_ ? own_message : others); });
      return end_of(std::move(all), block, views, side);
    };
    const End own_out = end_with(from, true, false), own_in = end_with(to, true, false);
    check_own(own_out, own_in);
    const bool unpacks_own = own == OwnGhosts::with_others;
    out_ = end_with(from, unpacks_own, true);
    in_ = end_with(to, unpacks_own, true);
    if (!unpacks_own) add_mirrors(own_out, own_in);
    allocate(context, exec, out_, Slice());
    const auto to_own = std::ranges::find(out_.messages, rank_, &Message::peer);
    allocate(context, exec, in_, to_own != out_.messages.end() ? to_own->slots : Slice());
    own_ = {{}, views, std::make_shared<const Kept>(out_.memory, in_.memory, views)};
    slots_in_ = detail::table_of(exec, in_.slots);
    pack_ = detail::Moves<Exec>(exec, out_.pieces, detail::table_of(exec, out_.slots), depth);
    unpack_ = detail::Moves<Exec>(exec, in_.pieces, slots_in_, depth);
    detail::load_kernels<detail::Move>(exec);
  }

  /// The Views that the packing was made of.
  const Moved& own() const { return own_; }
  /// Other Views of the same extents and strides, which the caller has checked.
  Moved others(const std::tuple<Views...>& views) const {
    const auto address = [](const auto& view) { return reinterpret_cast<std::intptr_t>(view.data()); };
    Moved moved{{}, views, std::make_shared<const Kept>(out_.memory, in_.memory, views)};
    detail::for_each_below<sizeof...(Views)>(
        [&](auto i) { moved.shifts[i()] = address(std::get<i>(views)) - address(std::get<i>(own_.views)); });
    return moved;
  }

  /// Enqueues the kernel that packs the elements into slot number `slot`, below depth, of each message.
  void pack(const Queue<Exec>& queue, Index slot, const Moved& moved) const {
    pack_.template enqueue<detail::Way::pack>(queue, slot, moved.kept, moved.shifts);
  }
  /// Enqueues the kernel that unpacks this slot of each message.
  void unpack(const Queue<Exec>& queue, Index slot, const Moved& moved) const {
    unpack_.template enqueue<detail::Way::unpack>(queue, slot, moved.kept, moved.shifts);
  }

  /// Calls `f(peer, slots, contents)` for each message to another rank, or from one: its slots, one behind the other,
  /// and a description of a slot, "direction/View:type[extents]" of each piece, the same at both ends: see
  /// ChannelOptions.
  void for_each_sent(auto f) const { for_each(out_, f); }
  void for_each_received(auto f) const { for_each(in_, f); }

  /// True if there are no messages, nor anything that the rank copies itself.
  bool empty() const { return out_.messages.empty() && in_.messages.empty() && out_.pieces.empty(); }

  /// The numbers of messages to other ranks, and from them, that are not packed.
  Index sent_in_place() const { return in_place_of(out_); }
  Index received_in_place() const { return in_place_of(in_); }

  /// True if a message goes from this rank to itself: it is unpacked where it was packed.
  bool to_itself() const { return std::ranges::count(out_.messages, rank_, &Message::peer) > 0; }

  /// The received pieces of a View, and the slots, for kernels that combine them instead of unpacking.
  const std::vector<detail::Part>& parts(std::size_t view) const { return in_.parts[view]; }
  const Slots& slots() const { return slots_in_; }

 private:
  using Kept = std::tuple<Memory, Memory, std::tuple<Views...>>;

  /// The messages to or from each peer, in the order that both ends know: that of the stencil of the rank with the
  /// ghosts.
  static std::vector<Message> messages(const Block<D>& block, Side side) {
    std::map<Rank, std::vector<Offset<D>>> by_peer;
    for (const Offset<D>& offset : block.stencil) {
      const auto peer = block.grid.neighbour(block.rank, side == Side::ghosts ? offset : detail::opposite<D>(offset));
      if (peer) by_peer[*peer].push_back(offset);
    }
    std::vector<Message> all;
    for (auto& [peer, offsets] : by_peer) all.push_back({.peer = peer, .offsets = std::move(offsets)});
    return all;
  }

  /// Lists what the messages hold: for each offset, each View's elements.
  End end_of(std::vector<Message> messages, const Block<D>& block, const std::tuple<Views...>& views, Side side) const {
    End end;
    for (Message& message : messages) {
      const auto m = static_cast<Index>(end.messages.size());
      const auto first = end.pieces.size();
      Index at = 0;
      std::string& contents = message.contents;
      for (const Offset<D>& offset : message.offsets) {
        const Offset<D> seen = side == Side::own ? detail::opposite<D>(offset) : offset;
        const Index place = std::ranges::find(block.stencil, offset) - block.stencil.begin();
        detail::for_each_below<sizeof...(Views)>([&](auto number) {
          const auto& view = std::get<number>(views);
          const auto range = detail::range_of(block, view, number, seen, side);
          const detail::Box box = detail::box_of(view, range);
          if (box.count() != 0) {
            contents += (contents.empty() ? "" : " ") + detail::name_of<D>(offset) + '/' + std::to_string(number) +
                        ':' + detail::contents_of(view, range);
            end.pieces.push_back({box, m, at, static_cast<Index>(number)});
            end.parts[number].push_back({range, m, at, place});
          }
          at += detail::round_up(box.bytes(), detail::kAligned);
        });
      }
      if (at == 0) continue;  // nothing to send, at either end
      // A message of one piece is no larger than the piece, at both ends, as either may have it in place.
      const bool alone = gapless_ == Gapless::in_place && end.pieces.size() == first + 1;
      const detail::Box& last = end.pieces.back().box;
      message.bytes = alone ? last.bytes() : detail::round_up(at, detail::kSlotAligned);
      if (alone && last.contiguous() && message.peer != rank_) message.in_place = last.data;
      end.messages.push_back(std::move(message));
    }
    for (auto& parts : end.parts) std::ranges::sort(parts, {}, &detail::Part::order);
    return end;
  }

  /// Compares the two ends of the message of this rank to itself, like channels do with those of other ranks.
  void check_own(const End& source, const End& target) const {
    const auto contents = [](const End& end) {
      return end.messages.empty() ? std::string("nothing") : end.messages.front().contents;
    };
    if (contents(source) != contents(target))
      throw Error(Code::mismatch, rank_, rank_, 0, 0,
                  "a rank that is its own neighbour sends itself \"" + contents(source) + "\" in place of \"" +
                      contents(target) + "\" (direction/View:type[extents])");
  }

  /// Lists what `pack` copies from one place of a View to another: the pieces of the messages of this rank to itself,
  /// which both ends have in the same order.
  void add_mirrors(const End& source, const End& target) {
    for (std::size_t p = 0; p < source.pieces.size(); ++p) {
      const detail::Piece& one = source.pieces[p];
      out_.pieces.push_back({one.box, detail::kMirror, target.pieces[p].box.data - one.box.data, one.view});
    }
  }

  /// Gives each message of an end its slots: in the View itself, or `own` for that of this rank to itself, which is
  /// unpacked where it was packed, or else in memory of the end.
  void allocate(Context& context, const Exec& exec, End& end, const Slice& own) const {
    const auto is_own = [&](const Message& one) { return one.peer == rank_ && own.data() != nullptr; };
    const auto aligned = [&](const Message& one) {
      const bool elsewhere = one.in_place != nullptr || is_own(one);
      return elsewhere ? 0 : detail::round_up(one.bytes * depth_, detail::kSlotAligned);
    };
    Index all = 0;
    for (const Message& one : end.messages) all += aligned(one);
    if (all != 0)
      end.memory = context.allocate(static_cast<std::size_t>(all), detail::kSpaceOf<Exec>, detail::device_of(exec));
    Index at = 0;
    for (Message& one : end.messages) {
      const auto size = static_cast<std::size_t>(one.bytes * depth_);
      one.slots = one.in_place != nullptr ? context.region(one.in_place, size).all()
                  : is_own(one)           ? own
                                          : end.memory.slice(static_cast<std::size_t>(at), size);
      at += aligned(one);
      for (Index slot = 0; slot < depth_; ++slot) end.slots.push_back({one.slots.data() + slot * one.bytes});
    }
    std::erase_if(end.pieces, [&](const detail::Piece& piece) {
      return piece.message != detail::kMirror &&
             end.messages[static_cast<std::size_t>(piece.message)].in_place != nullptr;
    });
  }

  static Index in_place_of(const End& end) {
    return std::ranges::count_if(end.messages, [](const Message& one) { return one.in_place != nullptr; });
  }
  void for_each(const End& end, auto f) const {
    for (const Message& one : end.messages) {
      if (one.peer != rank_) f(one.peer, one.slots, one.contents);
    }
  }

  End out_;
  End in_;
  Rank rank_ = 0;
  Index depth_ = 1;
  Gapless gapless_ = Gapless::packed;
  Slots slots_in_;
  detail::Moves<Exec> pack_;
  detail::Moves<Exec> unpack_;
  Moved own_;
};

}  // namespace sluice::kokkos
