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
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace sluice::kokkos {

/// Of an edge: own elements next to it, or the ghosts beyond.
enum class Side : std::uint8_t { own, ghosts };

/// When a rank that is its own neighbour, on a grid that wraps around, fills the ghosts that it owns itself: as those
/// of others, by `unpack`; or at once, by `pack`.
enum class OwnGhosts : std::uint8_t { with_others, at_once };

/// Which elements of View number `view` lie in direction `offset`: see HaloOptions.
template <std::size_t D>
using Ranges = std::function<Range(std::size_t view, const Offset<D>& offset, Side side)>;

/// Whether messages without gaps, of one View in one direction, are packed too, or go from the View and land in it.
enum class Gapless : std::uint8_t { packed, in_place };

/// A block of a grid.
template <std::size_t D>
struct Block {
  Rank rank = 0;
  Cartesian<D> grid;
  std::int64_t width = 1;  ///< of its ghosts
  Stencil<D> stencil;
  Ranges<D> ranges = {};  ///< unset: `width` elements next to each edge, or beyond
};

namespace detail {

/// From where a message in direction `offset` comes.
template <std::size_t D>
Offset<D> opposite(Offset<D> offset) {
  for (int& step : offset) step = -step;
  return offset;
}

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

/// The same of View number `number` of a block, which may say it itself.
template <std::size_t D, class View>
Range range_of(const Block<D>& block, const View& view, std::size_t number, const Offset<D>& offset, Side side) {
  return block.ranges ? block.ranges(number, offset, side) : range_of<D>(view, block.width, offset, side);
}

/// "1,0,-1"
template <std::size_t D>
std::string name_of(const Offset<D>& offset) {
  std::string name;
  for (const int step : offset) name += (name.empty() ? "" : ",") + std::to_string(step);
  return name;
}

/// A slot of its own cache lines: its two ends are written and read on different cores.
inline constexpr Index kSlotAligned = 64;

inline Index round_up(Index bytes, Index to) { return (bytes + to - 1) / to * to; }

}  // namespace detail

/// What a Halo packs, for programs that move the messages themselves, through MPI for example: one way of an exchange,
/// from own elements to ghosts or back. Its messages, each of `depth` slots, and the kernels that pack and unpack them.
/// Both ends of a message have its elements in the same order. Views are as a Halo takes them.
///
/// `pack` and `unpack` only enqueue; nothing else orders a slot's use. A handle.
template <class Exec, std::size_t D, class... Views>
class Packing {
  using Index = detail::Index;
  template <class T>
  using Table = detail::Table<T, Exec>;

  /// What goes between this rank and a peer: the elements at these offsets of the one that has them as ghosts.
  struct Message {
    Rank peer = 0;
    std::vector<Offset<D>> offsets;
  };

  /// One end of a way: its messages, where they are packed, and what is in them.
  struct End {
    std::vector<Message> messages;
    Memory memory;
    std::vector<Slice> slices;        // of message m to another rank, or from it: its slots, one behind the other
    std::vector<detail::Slot> slots;  // of message m, slot s: [m * depth + s]
    Index in_place = 0;               // how many messages are
    std::vector<detail::Piece> pieces;
    std::array<std::vector<detail::Part>, sizeof...(Views)> parts;  // of each View
    std::vector<Index> bytes;                                       // of a slot of each message
    std::vector<std::string> contents;
  };

 public:
  /// What one exchange moves: Views like those that the packing was made of.
  struct Moved {
    detail::Shifts shifts;
    std::tuple<Views...> views;
    std::shared_ptr<const void> kept;  // what kernels use, as long as they are not launched
  };

  Packing() = default;
  /// Blocks the host until its tables are where kernels read them, and the kernels are loaded.
  /// @param from  whose elements are packed: own ones, for the peers' ghosts; or ghosts, for their owners
  /// @param gapless  the same at all ranks; in_place for a depth of 1, and for the Views given here alone
  /// @throws Error with Code::mismatch if this rank is its own neighbour and its elements do not fit into its ghosts
  Packing(Context& context, const Exec& exec, const Block<D>& block, Index depth, const std::tuple<Views...>& views,
          Side from, OwnGhosts own = OwnGhosts::with_others, Gapless gapless = Gapless::packed)
      : rank_(block.rank), depth_(depth), gapless_(gapless) {
    const Side to = from == Side::own ? Side::ghosts : Side::own;
    std::vector<Message> sent = messages(block, from);
    std::vector<Message> received = messages(block, to);
    check_own(sent, block, views);
    if (own == OwnGhosts::at_once) {
      for (auto* all : {&sent, &received}) std::erase_if(*all, [&](const Message& one) { return one.peer == rank_; });
    }
    out_ = end_of(std::move(sent), block, views, from);
    in_ = end_of(std::move(received), block, views, to);
    if (own == OwnGhosts::at_once) add_mirrors(block, views, from);
    allocate(context, exec, out_, nullptr);
    allocate(context, exec, in_, &out_);
    own_ = {{}, views, std::make_shared<const Kept>(out_.memory, in_.memory, views)};
    slots_in_ = detail::table_of(exec, in_.slots);
    pack_ = detail::Moves<Exec>(exec, out_.pieces, detail::table_of(exec, out_.slots), depth);
    unpack_ = detail::Moves<Exec>(exec, in_.pieces, slots_in_, depth);
    detail::Moves<Exec>::load(exec);
  }

  /// The Views it was made of, and others of the same extents and strides.
  const Moved& own() const { return own_; }
  Moved others(const std::tuple<Views...>& views) const {
    return {shifts_to(views, std::index_sequence_for<Views...>()), views,
            std::make_shared<const Kept>(out_.memory, in_.memory, views)};
  }

  void pack(const Queue<Exec>& queue, Index slot, const Moved& moved) const {
    pack_.template enqueue<detail::Way::pack>(queue, "sluice: pack", slot, moved.kept, moved.shifts);
  }
  void unpack(const Queue<Exec>& queue, Index slot, const Moved& moved) const {
    unpack_.template enqueue<detail::Way::unpack>(queue, "sluice: unpack", slot, moved.kept, moved.shifts);
  }

  /// `f(peer, slots, contents)` for each message to another rank, or from one: its slots, one behind the other, and
  /// what is in each in words, "direction/View:type[extents]" of each piece, the same at both ends: see ChannelOptions.
  template <class F>
  void for_each_sent(F f) const {
    for_each(out_, f);
  }
  template <class F>
  void for_each_received(F f) const {
    for_each(in_, f);
  }

  /// There are no messages, nor anything that the rank copies itself.
  bool empty() const { return out_.messages.empty() && in_.messages.empty() && out_.pieces.empty(); }

  /// How many messages to other ranks, and from them, are not packed.
  Index sent_in_place() const { return out_.in_place; }
  Index received_in_place() const { return in_.in_place; }

  /// A message goes from this rank to itself: it is unpacked where it was packed.
  bool to_itself() const { return std::ranges::count(out_.messages, rank_, &Message::peer) > 0; }

  /// What came, for kernels that combine it instead of unpacking.
  const std::vector<detail::Part>& parts(std::size_t view) const { return in_.parts[view]; }
  const Table<detail::Slot>& slots() const { return slots_in_; }

 private:
  using Kept = std::tuple<Memory, Memory, std::tuple<Views...>>;

  template <std::size_t... I>
  detail::Shifts shifts_to(const std::tuple<Views...>& views, std::index_sequence<I...>) const {
    const auto address = [](const auto& view) { return reinterpret_cast<std::intptr_t>(view.data()); };
    return {{(address(std::get<I>(views)) - address(std::get<I>(own_.views)))...}};
  }

  /// With whom, in the order that both ends know: by the stencil of who has the ghosts.
  static std::vector<Message> messages(const Block<D>& block, Side side) {
    std::map<Rank, std::vector<Offset<D>>> by_peer;
    for (const Offset<D>& offset : block.stencil) {
      const auto peer = block.grid.neighbour(block.rank, side == Side::ghosts ? offset : detail::opposite<D>(offset));
      if (peer) by_peer[*peer].push_back(offset);
    }
    std::vector<Message> all;
    for (auto& [peer, offsets] : by_peer) all.push_back({peer, std::move(offsets)});
    return all;
  }

  /// What the messages hold: for each offset, each View's elements.
  End end_of(std::vector<Message> messages, const Block<D>& block, const std::tuple<Views...>& views, Side side) const {
    End end;
    for (Message& message : messages) {
      const auto m = static_cast<Index>(end.messages.size());
      const auto first = end.pieces.size();
      Index at = 0;
      std::string contents;
      for (const Offset<D>& offset : message.offsets) {
        const Offset<D> seen = side == Side::own ? detail::opposite<D>(offset) : offset;
        const Index place = std::ranges::find(block.stencil, offset) - block.stencil.begin();
        std::size_t number = 0;
        const auto add = [&](const auto& view) {
          const auto range = detail::range_of(block, view, number, seen, side);
          const detail::Box box = detail::box_of(view, range);
          if (box.count() != 0) {
            contents += (contents.empty() ? "" : " ") + detail::name_of<D>(offset) + '/' + std::to_string(number) +
                        ':' + detail::contents_of(view, range);
            end.pieces.push_back({box, m, at, static_cast<Index>(number)});
            end.parts[number].push_back({range, m, at, place});
          }
          ++number;
          at += detail::round_up(box.bytes(), detail::kAligned);
        };
        std::apply([&](const auto&... view) { (add(view), ...); }, views);
      }
      if (at == 0) continue;  // nothing to send: the peer sees that, too
      end.messages.push_back(std::move(message));
      end.contents.push_back(std::move(contents));
      // Of one piece: no more than that, at both ends, as either may have it in place.
      const bool alone = gapless_ == Gapless::in_place && end.pieces.size() == first + 1;
      end.bytes.push_back(alone ? end.pieces.back().box.bytes() : detail::round_up(at, detail::kSlotAligned));
    }
    for (auto& parts : end.parts) std::ranges::sort(parts, {}, &detail::Part::order);
    return end;
  }

  /// Of each message to this rank itself: its own elements are like the ghosts, as channels find of others.
  void check_own(const std::vector<Message>& messages, const Block<D>& block, const std::tuple<Views...>& views) const {
    for (const Message& message : messages) {
      if (message.peer != rank_) continue;
      for (const Offset<D>& offset : message.offsets) {
        const auto said = [&](Side side) {
          const End end = end_of({{rank_, {offset}}}, block, views, side);
          return end.contents.empty() ? std::string("nothing") : end.contents.front();
        };
        if (said(Side::own) != said(Side::ghosts))
          throw Error(Code::mismatch, rank_, rank_, 0, 0,
                      "a rank that is its own neighbour has \"" + said(Side::own) + "\" for ghosts of \"" +
                          said(Side::ghosts) + "\" (direction/View:type[extents])");
      }
    }
  }

  /// What `pack` copies from one place of a View to another: what this rank would send to itself.
  void add_mirrors(const Block<D>& block, const std::tuple<Views...>& views, Side from) {
    for (const Offset<D>& offset : block.stencil) {
      if (block.grid.neighbour(block.rank, offset) != block.rank) continue;
      Index number = 0;
      const auto add = [&](const auto& view) {
        const auto place = static_cast<std::size_t>(number);
        const auto own =
            detail::box_of(view, detail::range_of(block, view, place, detail::opposite<D>(offset), Side::own));
        const auto ghosts = detail::box_of(view, detail::range_of(block, view, place, offset, Side::ghosts));
        const auto& source = from == Side::own ? own : ghosts;
        const Index distance = (from == Side::own ? ghosts : own).data - source.data;
        out_.pieces.push_back({source, detail::kMirror, distance, number++});
      };
      std::apply([&](const auto&... view) { (add(view), ...); }, views);
    }
  }

  /// Where the messages of an end are packed. One of this rank to itself is unpacked where it was packed: `out` has it.
  void allocate(Context& context, const Exec& exec, End& end, const End* out) const {
    const std::vector<const detail::Piece*> gapless = gapless_pieces(end);
    const auto of_its_own = [&](std::size_t m) {
      return gapless[m] != nullptr || (out != nullptr && end.messages[m].peer == rank_);
    };
    const auto bytes = [&](std::size_t m) { return detail::round_up(end.bytes[m] * depth_, detail::kSlotAligned); };
    Index all = 0;
    for (std::size_t m = 0; m < end.messages.size(); ++m) all += of_its_own(m) ? 0 : bytes(m);
    if (all != 0)
      end.memory = context.allocate(static_cast<std::size_t>(all), detail::kSpaceOf<Exec>, detail::device_of(exec));
    Index at = 0;
    for (std::size_t m = 0; m < end.messages.size(); ++m) {
      const auto size = static_cast<std::size_t>(end.bytes[m] * depth_);
      if (gapless[m] != nullptr) {
        end.slices.push_back(context.region(gapless[m]->box.data, size).all());
      } else if (of_its_own(m)) {
        end.slices.push_back(out->slices[place_of(*out, rank_)]);
      } else {
        end.slices.push_back(end.memory.slice(static_cast<std::size_t>(at), size));
        at += bytes(m);
      }
      for (Index slot = 0; slot < depth_; ++slot) end.slots.push_back({end.slices.back().data() + slot * end.bytes[m]});
    }
    end.in_place = std::ranges::count_if(gapless, [](const auto* piece) { return piece != nullptr; });
    std::erase_if(end.pieces, [&](const detail::Piece& piece) {
      return piece.message != detail::kMirror && gapless[static_cast<std::size_t>(piece.message)] != nullptr;
    });
  }

  static std::size_t place_of(const End& end, Rank peer) {
    return static_cast<std::size_t>(std::ranges::find(end.messages, peer, &Message::peer) - end.messages.begin());
  }

  /// Of each message the one piece that it is and that needs no packing, or null.
  std::vector<const detail::Piece*> gapless_pieces(const End& end) const {
    std::vector<const detail::Piece*> found(end.messages.size(), nullptr);
    if (gapless_ == Gapless::packed) return found;
    std::vector<int> pieces(end.messages.size(), 0);
    for (const detail::Piece& piece : end.pieces) {
      if (piece.message == detail::kMirror) continue;
      const auto m = static_cast<std::size_t>(piece.message);
      const bool may = ++pieces[m] == 1 && piece.box.contiguous() && end.messages[m].peer != rank_;
      found[m] = may ? &piece : nullptr;
    }
    return found;
  }

  template <class F>
  void for_each(const End& end, F f) const {
    for (std::size_t m = 0; m < end.messages.size(); ++m) {
      if (end.messages[m].peer != rank_) f(end.messages[m].peer, end.slices[m], end.contents[m]);
    }
  }

  End out_;
  End in_;
  Rank rank_ = 0;
  Index depth_ = 1;
  Gapless gapless_ = Gapless::packed;
  Table<detail::Slot> slots_in_;
  detail::Moves<Exec> pack_;
  detail::Moves<Exec> unpack_;
  Moved own_;
};

}  // namespace sluice::kokkos
