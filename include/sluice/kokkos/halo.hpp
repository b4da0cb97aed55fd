// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/context.hpp>
#include <sluice/kokkos/cartesian.hpp>
#include <sluice/kokkos/moves.hpp>
#include <sluice/kokkos/reduce.hpp>

#include <Kokkos_Core.hpp>
#include <Kokkos_Profiling_ScopedRegion.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace sluice::kokkos {

template <std::size_t D>
struct HaloOptions {
  Stencil<D> stencil = full<D>();
  int depth = 2;              ///< how many exchanges may be under way
  std::string name = "halo";  ///< of its scope: halos of one context that are open at once differ in it
};

namespace detail {

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

}  // namespace detail

/// Ghost elements of the blocks of a grid, filled from their owners, and back. One kernel packs all Views for all
/// neighbours, each neighbour gets one message, one kernel unpacks.
///
/// A View has `width` ghosts at both ends of its first D dimensions, and at least `width` elements of its own between
/// them. Further dimensions are moved whole: components, for example. Blocks have the same extents where they touch.
/// The halo keeps the Views, and opens its channels on a scope of its name. One thread at a time, in the order of its
/// queue, whose instance no other thread uses meanwhile.
///
/// In program order a call throws what fails in it. On a stream of a GPU or the host calls only enqueue: what fails
/// there, a lost peer or a limit of time, is thrown by the next call, or by Context::synchronize. Until that has
/// passed, ghosts may hold anything.
template <class Exec, std::size_t D, class... Views>
class Halo {
  static_assert(sizeof...(Views) > 0, "a Halo needs a View");
  static_assert((Kokkos::is_view_v<Views> && ...), "a Halo exchanges Views of Kokkos");
  static_assert(((Views::rank() >= D) && ...), "a View of a Halo has at least the grid's dimensions");
  static_assert((Kokkos::SpaceAccessibility<Exec, typename Views::memory_space>::accessible && ...),
                "the Halo's execution space cannot reach a View: it is in other memory");
  static_assert((!std::is_const_v<typename Views::value_type> && ...), "ghosts are written: the elements are const");
  static_assert((std::is_trivially_copyable_v<typename Views::value_type> && ...), "elements are moved as bytes");

 public:
  /// Opens its channels; no peer is waited for, but what is enqueued on the instance is. All ranks of the grid call it,
  /// with the same options.
  /// @throws Error{Code::bad_argument} if a View is too small, or the grid is not of the context's size.
  Halo(Context& context, const Queue<Exec>& queue, const Cartesian<D>& grid, int width, HaloOptions<D> options,
       Views... views)
      : context_(context), queue_(queue), grid_(grid), width_(width), options_(std::move(options)),
        views_(std::move(views)...) {
    check();
    gather_ = open(options_.name, Side::own);
  }
  Halo(Context& context, const Queue<Exec>& queue, const Cartesian<D>& grid, int width,
       Views... views) requires(Kokkos::is_view_v<Views>&&...)
      : Halo(context, queue, grid, width, HaloOptions<D>{}, std::move(views)...) {}

  Halo(Halo&&) noexcept = default;
  Halo& operator=(Halo&&) = delete;

  /// Waits for the neighbours to open theirs, and maps what is to be mapped: the first exchange does it where this was
  /// not called. On a GPU that is too late if a stream of the process waits for a peer already, as that of another rank
  /// or halo may: commit all halos first. The constructor has loaded the kernels.
  /// @throws Error{Code::timeout}, which changes nothing
  void commit(std::optional<Timeout> timeout = kContextTimeout) { commit(*gather_, timeout); }
  /// The same for `scatter` by this operation, each of which has a kernel.
  template <class Operation>
  void commit_scatter(Operation operation, std::optional<Timeout> timeout = kContextTimeout) {
    if (!scatter_) open_way_back();
    std::apply([&](const auto&... combines) { (combines.load(queue_.exec(), operation), ...); }, *combines_);
    commit(*scatter_, timeout);
  }

  /// Enqueues: the ghosts get what their owners have at this point of their queues. The first call commits.
  /// @throws Error{Code::misuse} where more would be under way than the halo's depth
  void exchange() {
    start();
    finish();
  }

  /// The same in two halves. What is enqueued between them may do anything but read ghosts; `start` has packed.
  void start() {
    const Kokkos::Profiling::ScopedRegion region("sluice: halo start");
    send(*gather_);
  }
  void finish() {
    const Kokkos::Profiling::ScopedRegion region("sluice: halo finish");
    const Index slot = wait(*gather_);
    if (detail::seeded("released_early")) release(*gather_);
    gather_->unpack.template enqueue<detail::Way::unpack>(queue_, "sluice: unpack", slot, gather_->kept);
    if (!detail::seeded("released_early")) release(*gather_);
  }

  /// The same on another instance, or Queue, which later calls use too. What the halo has enqueued stays in order: the
  /// host waits until the instance before it has done its work. Kernels of the program on both are not ordered by it.
  /// @throws Error{Code::misuse} for one of another GPU, or a host stream in place of program order and vice versa
  void exchange(const Queue<Exec>& queue) {
    start(queue);
    finish();
  }
  void start(const Queue<Exec>& queue) {
    go_to(queue);
    start();
  }
  void finish(const Queue<Exec>& queue) {
    go_to(queue);
    finish();
  }

  /// Enqueues the way back: the value of each ghost is combined into its owner's, by Sum, Min, Max or Replace, in an
  /// order that depends on nothing but the stencil. Ghosts stay as they are. The first call opens channels of its own,
  /// and waits for the neighbours: see `commit_scatter`.
  template <class Operation>
  void scatter(Operation operation) {
    const Kokkos::Profiling::ScopedRegion region("sluice: halo scatter");
    if (!scatter_) open_way_back();
    send(*scatter_);
    const Index slot = wait(*scatter_);
    std::apply(
        [&](const auto&... combines) {
          (combines.enqueue(queue_, scatter_->slots_in, options_.depth, slot, operation, scatter_->kept), ...);
        },
        *combines_);
    release(*scatter_);
  }

  /// A line per channel of `exchange`, and one for what a rank that is its own neighbour copies itself.
  std::string describe() const {
    std::string lines;
    if (!gather_->senders.empty() || !gather_->receivers.empty()) lines = gather_->plan.describe();
    const Rank self = context_.rank();
    if (std::ranges::count(gather_->out.messages, self, &Message::peer) > 0)
      lines += "rank " + std::to_string(self) + " to itself: unpacked where it was packed\n";
    return lines.empty() ? "no neighbours\n" : lines;
  }

 private:
  static constexpr std::size_t kViews = sizeof...(Views);
  using Index = detail::Index;
  using Side = detail::Side;

  /// What goes between this rank and a peer: the elements at these offsets of the one that has them as ghosts.
  struct Message {
    Rank peer = 0;
    std::vector<Offset<D>> offsets;
  };

  /// One end of a way: its messages, where they are packed, and what is in them.
  struct End {
    std::vector<Message> messages;
    Memory memory;
    std::vector<detail::Slot> slots;  // of message m, slot s: [m * depth + s]
    std::vector<detail::Piece> pieces;
    std::array<std::vector<detail::Part>, kViews> parts;  // of each View
    std::vector<Index> bytes;                             // of a slot of each message

    /// The message with that rank, which there is.
    std::size_t number_of(Rank peer) const {
      std::size_t m = 0;
      while (messages[m].peer != peer) ++m;
      return m;
    }
  };

  /// One way of the exchange: from own elements to ghosts, or back.
  struct Route {
    End out;
    End in;
    detail::Table<detail::Slot, Exec> slots_in;
    detail::Moves<Exec> pack;
    detail::Moves<Exec> unpack;
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
    Plan plan;
    std::shared_ptr<const void> kept;  // what kernels use, as long as they are not launched
    bool committed = false;
    Index epoch = 0;
    Index waited = 0;
  };

  template <class F>
  void for_each_view(F f) const {
    std::apply(
        [&](const auto&... views) {
          std::size_t number = 0;
          (f(number++, views), ...);
        },
        views_);
  }

  [[noreturn]] void refuse(Code code, const std::string& why) const {
    throw Error(code, context_.rank(), -1, 0, 0, why);
  }

  /// A channel of its scope was not opened. Misuse: most likely there is one already.
  [[noreturn]] void refuse_name(const std::string& name, const Error& reason) const {
    if (reason.code() != Code::misuse) throw;
    throw Error(Code::misuse, context_.rank(), reason.peer(), reason.tag(), 0,
                "the halo '" + name +
                    "' cannot open its channels; halos that are open at once have names of their own (" +
                    reason.what() + ")");
  }

  void check() const {
    if (std::ranges::min(grid_.ranks) < 1)
      refuse(Code::bad_argument, "a halo's grid has a block or more along each dimension");
    if (grid_.size() != context_.size())
      refuse(Code::bad_argument, "the halo's grid has " + std::to_string(grid_.size()) + " blocks, the context " +
                                     std::to_string(context_.size()) + " ranks");
    if (width_ < 1) refuse(Code::bad_argument, "a halo has a width of 1 or more");
    if (options_.depth < 1) refuse(Code::bad_argument, "a halo has a depth of 1 or more");
    for (const Offset<D>& offset : options_.stencil) {
      const auto [least, most] = std::ranges::minmax(offset);
      if (least < -1 || most > 1 || offset == Offset<D>{})
        refuse(Code::bad_argument, "an offset of a stencil is made of -1, 0 and 1, and not all of it is 0");
      if (std::ranges::count(options_.stencil, offset) > 1)
        refuse(Code::bad_argument, "an offset is in the stencil twice");
    }
    for_each_view([&](std::size_t, const auto& view) {
      for (std::size_t k = 0; k < D; ++k) {
        if (static_cast<Index>(view.extent(k)) < 3 * width_)
          refuse(Code::bad_argument, "View '" + view.label() + "' has " + std::to_string(view.extent(k)) +
                                         " elements along dimension " + std::to_string(k) +
                                         ": less than three times the halo's width of " + std::to_string(width_));
      }
    });
  }

  static Offset<D> opposite(Offset<D> offset) {
    for (int& step : offset) step = -step;
    return offset;
  }

  /// With whom, in the order that both ends know: by the stencil of who has the ghosts.
  std::vector<Message> messages(Side side) const {
    std::map<Rank, std::vector<Offset<D>>> by_peer;
    for (const Offset<D>& offset : options_.stencil) {
      const auto peer = grid_.neighbour(context_.rank(), side == Side::ghosts ? offset : opposite(offset));
      if (peer) by_peer[*peer].push_back(offset);
    }
    std::vector<Message> all;
    for (auto& [peer, offsets] : by_peer) all.push_back({peer, std::move(offsets)});
    return all;
  }

  /// What the messages hold: for each offset, each View's elements.
  End end_of(Side side) const {
    End end;
    end.messages = messages(side);
    for (std::size_t m = 0; m < end.messages.size(); ++m) {
      Index at = 0;
      for (const Offset<D>& offset : end.messages[m].offsets) {
        for_each_view([&](std::size_t number, const auto& view) {
          const auto range = detail::range_of<D>(view, width_, side == Side::own ? opposite(offset) : offset, side);
          const detail::Box box = detail::box_of(view, range);
          end.pieces.push_back({box, static_cast<Index>(m), at});
          end.parts[number].push_back({range, static_cast<Index>(m), at, place_of(offset)});
          at += (box.bytes() + detail::kAligned - 1) / detail::kAligned * detail::kAligned;
        });
      }
      end.bytes.push_back(at);
    }
    for (auto& parts : end.parts) std::ranges::sort(parts, {}, &detail::Part::order);
    return end;
  }
  /// In the stencil.
  Index place_of(const Offset<D>& offset) const {
    return std::ranges::find(options_.stencil, offset) - options_.stencil.begin();
  }

  /// Where the messages of an end are packed. One of this rank to itself is unpacked where it was packed: `out` has it.
  void allocate(End& end, const End* out) {
    const auto depth = static_cast<Index>(options_.depth);
    const auto is_own = [&](std::size_t m) { return out != nullptr && end.messages[m].peer == context_.rank(); };
    Index all = 0;
    for (std::size_t m = 0; m < end.messages.size(); ++m) all += is_own(m) ? 0 : end.bytes[m] * depth;
    if (all != 0)
      end.memory =
          context_.allocate(static_cast<std::size_t>(all), detail::kSpaceOf<Exec>, detail::device_of(queue_.exec()));
    Index at = 0;
    for (std::size_t m = 0; m < end.messages.size(); ++m) {
      std::byte* first = nullptr;
      if (is_own(m)) {
        first = out->slots[out->number_of(context_.rank()) * depth].data;
      } else {
        first = end.memory.data() + at;
        at += end.bytes[m] * depth;
      }
      for (Index slot = 0; slot < depth; ++slot) end.slots.push_back({first + slot * end.bytes[m]});
    }
  }

  std::unique_ptr<Route> open(const std::string& name, Side from) {
    auto route = std::make_unique<Route>();
    route->out = end_of(from);
    route->in = end_of(from == Side::own ? Side::ghosts : Side::own);
    allocate(route->out, nullptr);
    allocate(route->in, &route->out);
    route->kept = std::make_shared<const std::tuple<Memory, Memory, std::tuple<Views...>>>(route->out.memory,
                                                                                           route->in.memory, views_);
    const Exec& exec = queue_.exec();
    route->slots_in = detail::table_of(exec, route->in.slots);
    route->pack =
        detail::Moves<Exec>(exec, route->out.pieces, detail::table_of(exec, route->out.slots), options_.depth);
    route->unpack = detail::Moves<Exec>(exec, route->in.pieces, route->slots_in, options_.depth);
    detail::Moves<Exec>::load(exec);
    Scope scope = context_.scope(name);
    const ChannelOptions options{.depth = options_.depth, .name = name, .stream = queue_.stream()};
    route->plan = context_.plan();
    // Both ends of a pair are opened before anybody waits for a peer.
    const auto open_each = [&](auto& ends, const End& end, auto make) {
      for_each_channel(end, [&](Rank peer, const Slice& slots) {
        try {
          ends.push_back(make(peer, slots));
        } catch (const Error& reason) {
          refuse_name(name, reason);
        }
      });
    };
    open_each(route->receivers, route->in,
              [&](Rank peer, const Slice& slots) { return scope.receiver(peer, 0, slots, options); });
    open_each(route->senders, route->out,
              [&](Rank peer, const Slice& slots) { return scope.sender(peer, 0, slots, options); });
    for (Sender& sender : route->senders) route->plan.add(sender);
    for (Receiver& receiver : route->receivers) route->plan.add(receiver);
    return route;
  }

  /// What goes to, or comes from, other ranks.
  template <class F>
  void for_each_channel(const End& end, F f) const {
    for (std::size_t m = 0; m < end.messages.size(); ++m) {
      if (end.messages[m].peer == context_.rank()) continue;
      const auto at = static_cast<std::size_t>(end.slots[m * depth()].data - end.memory.data());
      f(end.messages[m].peer, end.memory.slice(at, static_cast<std::size_t>(end.bytes[m]) * depth()));
    }
  }

  std::size_t depth() const { return static_cast<std::size_t>(options_.depth); }

  void commit(Route& route, std::optional<Timeout> timeout) {
    if (!route.committed) route.plan.commit(queue_.stream(), timeout);
    route.committed = true;
  }

  /// What follows is enqueued there, behind what was enqueued before.
  void go_to(const Queue<Exec>& queue) {
    if (queue == queue_) return;
    if (queue.stream().kind() != queue_.stream().kind() ||
        detail::device_of(queue.exec()) != detail::device_of(queue_.exec()))
      refuse(Code::misuse, "the halo '" + options_.name + "' was made for another GPU, or kind of stream");
    if (!detail::seeded("instance_not_awaited")) queue_.fence("sluice: halo goes to another instance");
    queue_ = queue;
  }

  /// Packs and puts the next epoch.
  void send(Route& route) {
    if (route.epoch - route.waited == options_.depth)
      refuse(Code::misuse, "a halo of depth " + std::to_string(options_.depth) + " has no more exchanges under way");
    commit(route, kContextTimeout);
    const Index slot = (route.epoch + 1) % options_.depth;
    if (!detail::seeded("source_not_acquired")) route.plan.acquire(queue_.stream());
    route.pack.template enqueue<detail::Way::pack>(queue_, "sluice: pack", slot, route.kept);
    route.plan.start(queue_.stream());
    ++route.epoch;
  }
  /// Returns the slot that the epoch is in.
  Index wait(Route& route) {
    if (route.waited == route.epoch) refuse(Code::misuse, "no exchange of this halo was started");
    route.plan.wait(queue_.stream());
    return ++route.waited % options_.depth;
  }
  void release(Route& route) { route.plan.release(queue_.stream()); }

  void open_way_back() {
    auto route = open(options_.name + ", back", Side::ghosts);
    open_combines(*route, std::index_sequence_for<Views...>());
    scatter_ = std::move(route);
  }
  template <std::size_t... I>
  void open_combines(const Route& route, std::index_sequence<I...>) {
    combines_.emplace(detail::Combines<Exec, Views>(
        queue_.exec(), std::get<I>(views_), detail::shell_of<D>(std::get<I>(views_), width_), route.in.parts[I])...);
  }

  Context context_;
  Queue<Exec> queue_;
  Cartesian<D> grid_;
  Index width_;
  HaloOptions<D> options_;
  std::tuple<Views...> views_;
  std::unique_ptr<Route> gather_;
  std::unique_ptr<Route> scatter_;
  std::optional<std::tuple<detail::Combines<Exec, Views>...>> combines_;
};

template <class Exec, std::size_t D, class... Views>
requires(Kokkos::is_execution_space_v<Exec> && (Kokkos::is_view_v<Views> && ...))
    Halo(Context&, const Exec&, const Cartesian<D>&, int, Views...)
->Halo<Exec, D, Views...>;
template <class Exec, std::size_t D, class... Views>
requires(Kokkos::is_execution_space_v<Exec>)
    Halo(Context&, const Exec&, const Cartesian<D>&, int, HaloOptions<D>, Views...)
->Halo<Exec, D, Views...>;

}  // namespace sluice::kokkos
