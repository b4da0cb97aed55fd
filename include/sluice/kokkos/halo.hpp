// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/context.hpp>
#include <sluice/kokkos/cartesian.hpp>
#include <sluice/kokkos/named.hpp>
#include <sluice/kokkos/packing.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
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

  /// What one View sends in one direction, and is alone in its message, is not packed where it has no gaps: it goes
  /// from the View and lands in the View. Then own elements stay as they are from `start` to `finish`; ghosts are the
  /// neighbours' from the making of the halo to the first `finish`, and from each later `start` to its `finish`; and a
  /// neighbour that is ahead waits for this rank's next `start`. For a depth of 1; the same at all ranks; own elements
  /// and ghosts do not overlap; `exchange` is of the Views that the halo was made with alone.
  bool in_place = false;

  /// For other elements than cells, and ghosts wider than what is exchanged: which elements of View number `view` go to
  /// the neighbour in direction `offset` (Side::own), or come from it (Side::ghosts). Both ends name as many along each
  /// dimension, or none. A ghost that two directions name has the value of either when both have come. Unset: cells,
  /// and all their ghosts.
  Ranges<D> ranges = {};
};

/// Ghost elements of the blocks of a grid, filled from their owners, and back. One kernel packs all Views for all
/// neighbours, each neighbour gets one message, one kernel unpacks.
///
/// A View has `width` ghosts at both ends of its first D dimensions, and at least `width` elements of its own between
/// them; or HaloOptions::ranges says where they are. Further dimensions are moved whole: components, for example.
/// Blocks have the same extents where they touch, in the same layout: else the channels fail with Code::mismatch, and
/// so does the halo of a rank that is its own neighbour, at once. Views do not overlap. The halo keeps them, and opens
/// its channels on a scope of its name. One thread at a time, in the order of its queue, whose instance no other thread
/// uses meanwhile.
///
/// In program order a call throws what fails in it. On a stream of a GPU or the host calls only enqueue: what fails
/// there, a lost peer or a limit of time, is thrown by the next call, or by Context::synchronize. Until that has
/// passed, ghosts may hold anything.
template <class Exec, std::size_t D, class... Views>
class Halo {
  static_assert(Kokkos::is_execution_space_v<Exec>, "a Halo is made for an instance of an execution space of Kokkos");
  static_assert(sizeof...(Views) > 0, "a Halo needs a View");
  static_assert(sizeof...(Views) <= detail::kMostViews, "a Halo takes eight Views at most");
  static_assert((Kokkos::is_view_v<Views> && ...), "a Halo exchanges Views of Kokkos; of an mdspan, its view_of");
  static_assert(((Views::rank() >= D) && ...), "a View of a Halo has at least the grid's dimensions");
  static_assert((Kokkos::SpaceAccessibility<Exec, typename Views::memory_space>::accessible && ...),
                "the Halo's execution space cannot reach a View: it is in other memory");
  static_assert((!std::is_const_v<typename Views::value_type> && ...), "ghosts are written: the elements are const");
  static_assert((std::is_trivially_copyable_v<typename Views::value_type> && ...), "elements are moved as bytes");

 public:
  /// Opens its channels; no peer is waited for, but what is enqueued on the instance is. All ranks of the grid call it,
  /// with the same options.
  /// @throws Error{Code::bad_argument} if a View is too small, or the grid is not of the context's size;
  ///   Error{Code::mismatch} if this rank is its own neighbour, and what it sends does not fit into its ghosts
  Halo(Context& context, const Queue<Exec>& queue, const Cartesian<D>& grid, int width, HaloOptions<D> options,
       Views... views)
      : context_(context), queue_(queue), grid_(grid), width_(width), options_(std::move(options)),
        views_(std::move(views)...) {
    check();
    gather_ = open(options_.name, Side::own);
  }
  Halo(Context& context, const Queue<Exec>& queue, const Cartesian<D>& grid, int width, Views... views)
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
  void start() { start(gather_->packing.own()); }
  void finish() {
    const detail::ToolRegion region("sluice: halo finish");
    take(*gather_, [this](Index slot) {
      gather_->packing.unpack(queue_, slot, gather_->moved[static_cast<std::size_t>(slot)]);
      if (options_.in_place)  // the ghosts are in use until the next start
        gather_->plan.acquire(queue_.stream());
      else
        release(*gather_);
    });
  }

  /// The same of other Views, with the extents and strides of those that the halo was made with: the two copies of a
  /// field that take turns, for example. `finish` unpacks into those of its `start`. All ranks move Views of one shape;
  /// which of them they are is each rank's own affair.
  /// @throws Error{Code::bad_argument} for Views of another shape; Error{Code::misuse} where the halo moves in place
  void exchange(const Views&... views) {
    start(views...);
    finish();
  }
  void start(const Views&... views) {
    if (options_.in_place)
      refuse(Code::misuse, "the halo '" + options_.name + "' moves in place the Views that it was made with alone");
    check_alike(views...);
    if (!gather_->idle()) start(gather_->packing.others({views...}));
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

  /// Later calls use this queue: see `exchange`.
  void go_to(const Queue<Exec>& queue) {
    if (queue == queue_) return;
    if (queue.stream().kind() != queue_.stream().kind() ||
        detail::device_of(queue.exec()) != detail::device_of(queue_.exec()))
      refuse(Code::misuse, "the halo '" + options_.name + "' was made for another GPU, or kind of stream");
    queue_.fence("sluice: halo goes to another instance");
    queue_ = queue;
  }

  /// Enqueues the way back: the value of each ghost is combined into its owner's, by Sum, Min, Max or Replace, in an
  /// order that depends on nothing but the stencil. Ghosts stay as they are. The first call opens channels of its own,
  /// and waits for the neighbours: see `commit_scatter`. In one piece, on the queue of the halo: see `go_to`.
  template <class Operation>
  void scatter(Operation operation) {
    if (!scatter_) open_way_back();
    scatter(operation, scatter_->packing.own());
  }
  /// The same of other Views: see `exchange`.
  template <class Operation>
  void scatter(Operation operation, const Views&... views) {
    if (!scatter_) open_way_back();
    check_alike(views...);
    if (!scatter_->idle()) scatter(operation, scatter_->packing.others({views...}));
  }

  /// A line per channel of `exchange`, and one for what a rank that is its own neighbour copies itself.
  std::string describe() const {
    std::string lines;
    if (!gather_->senders.empty() || !gather_->receivers.empty()) lines = gather_->plan.describe() + "\n";
    if (gather_->packing.to_itself())
      lines += "rank " + std::to_string(context_.rank()) + " to itself: unpacked where it was packed\n";
    if (options_.in_place)
      lines += std::to_string(gather_->packing.sent_in_place()) + " messages go from the View, " +
               std::to_string(gather_->packing.received_in_place()) + " land in it\n";
    return lines.empty() ? "no neighbours\n" : lines;
  }

 private:
  using Index = detail::Index;

  using Packing = kokkos::Packing<Exec, D, Views...>;
  using Moved = typename Packing::Moved;

  /// One way of the exchange: from own elements to ghosts, or back.
  struct Route {
    Route() = default;
    Route(const Route&) = delete;
    Route& operator=(const Route&) = delete;
    ~Route() {
      plan = {};
      if (used != nullptr && !closed()) static_cast<void>(used.release());  // never freed: peers may still use them
    }
    /// Nothing is moved.
    bool idle() const { return packing.empty(); }
    /// While an exception passes the ends close by themselves, which tells the peers of it. Without any nobody uses the
    /// Views.
    bool closed() noexcept {
      if (senders.empty() && receivers.empty()) return true;
      if (std::uncaught_exceptions() > exceptions) return false;
      try {
        for (Sender& sender : senders) sender.close();
        for (Receiver& receiver : receivers) receiver.close();
        return true;
      } catch (...) {
        return false;
      }
    }

    std::unique_ptr<std::tuple<Views...>> used;  // those that messages go from, and land in
    int exceptions = std::uncaught_exceptions();
    Packing packing;
    std::vector<Moved> moved;  // in each slot
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
    Plan plan;
    bool committed = false;
    Index epoch = 0;
    Index waited = 0;
    std::exception_ptr failure = nullptr;  // what ended it in the midst of an exchange: each later call throws it
  };

  [[noreturn]] void refuse(Code code, const std::string& why) const {
    throw Error(code, context_.rank(), -1, 0, 0, why);
  }

  void check() const {
    if (std::ranges::min(grid_.ranks) < 1)
      refuse(Code::bad_argument, "a halo's grid has a block or more along each dimension");
    if (grid_.size() != context_.size())
      refuse(Code::bad_argument, "the halo's grid has " + std::to_string(grid_.size()) + " blocks, the context " +
                                     std::to_string(context_.size()) + " ranks");
    if (width_ < 1) refuse(Code::bad_argument, "a halo has a width of 1 or more");
    if (options_.depth < 1) refuse(Code::bad_argument, "a halo has a depth of 1 or more");
    if (options_.in_place && options_.depth != 1)
      refuse(Code::bad_argument, "a halo that moves in place has a depth of 1: each View is there once");
    for (const Offset<D>& offset : options_.stencil) {
      const auto [least, most] = std::ranges::minmax(offset);
      if (least < -1 || most > 1 || offset == Offset<D>{})
        refuse(Code::bad_argument, "an offset of a stencil is made of -1, 0 and 1, and not all of it is 0");
      if (std::ranges::count(options_.stencil, offset) > 1)
        refuse(Code::bad_argument, "an offset is in the stencil twice");
    }
    std::size_t number = 0;
    const auto check_extents = [&](const auto& view) {
      if (options_.ranges) return check_ranges(view, number++);
      for (std::size_t k = 0; k < D; ++k) {
        if (static_cast<Index>(view.extent(k)) < 3 * width_)
          refuse(Code::bad_argument, "View '" + view.label() + "' has " + std::to_string(view.extent(k)) +
                                         " elements along dimension " + std::to_string(k) +
                                         ": less than three times the halo's width of " + std::to_string(width_));
      }
    };
    std::apply([&](const auto&... views) { (check_extents(views), ...); }, views_);
  }

  /// Of a message whose ghosts lie in this direction of their block: its own elements lie in the opposite one of
  /// theirs.
  Range range_of(std::size_t number, const Offset<D>& offset, Side side) const {
    return options_.ranges(number, side == Side::own ? detail::opposite<D>(offset) : offset, side);
  }
  template <class View>
  void check_ranges(const View& view, std::size_t number) const {
    for (const Offset<D>& offset : options_.stencil) {
      for (const Side side : {Side::own, Side::ghosts}) {
        const Range range = range_of(number, offset, side);
        for (std::size_t k = 0; k < View::rank(); ++k) {
          if (range.begin[k] < 0 || range.begin[k] > range.end[k] || range.end[k] > static_cast<Index>(view.extent(k)))
            refuse(Code::bad_argument, "the halo's ranges of View '" + view.label() + "' are not in it");
        }
      }
    }
    if (options_.in_place) check_apart(view, number);
  }
  /// What lands in the View must not lie where another message is still read.
  template <class View>
  void check_apart(const View& view, std::size_t number) const {
    for (const Offset<D>& out : options_.stencil) {
      const Range own = range_of(number, out, Side::own);
      for (const Offset<D>& in : options_.stencil) {
        const Range ghosts = range_of(number, in, Side::ghosts);
        bool overlap = true;
        for (std::size_t k = 0; k < View::rank(); ++k)
          overlap = overlap && std::max(own.begin[k], ghosts.begin[k]) < std::min(own.end[k], ghosts.end[k]);
        if (overlap)
          refuse(Code::bad_argument, "own elements and ghosts of View '" + view.label() +
                                         "' overlap in the halo's ranges: it cannot move in place");
      }
    }
  }

  std::unique_ptr<Route> open(const std::string& name, Side from) {
    auto route = std::make_unique<Route>();
    const Block<D> block{context_.rank(), grid_, width_, options_.stencil, options_.ranges};
    const bool in_place = options_.in_place && from == Side::own;
    if (in_place) route->used = std::make_unique<std::tuple<Views...>>(views_);
    route->packing = Packing(context_, queue_.exec(), block, options_.depth, views_, from, OwnGhosts::with_others,
                             in_place ? Gapless::in_place : Gapless::packed);
    route->moved.resize(static_cast<std::size_t>(options_.depth));
    Scope scope = context_.scope(name);
    ChannelOptions options{.depth = options_.depth, .name = name, .stream = queue_.stream()};
    route->plan = context_.plan();
    // Both ends of a pair are opened before anybody waits for a peer.
    route->packing.for_each_received([&](Rank peer, const Slice& slots, const std::string& contents) {
      options.contents = contents;
      route->receivers.push_back(
          detail::open_named("halo", name, [&] { return scope.receiver(peer, 0, slots, options); }));
    });
    route->packing.for_each_sent([&](Rank peer, const Slice& slots, const std::string& contents) {
      options.contents = contents;
      route->senders.push_back(detail::open_named("halo", name, [&] { return scope.sender(peer, 0, slots, options); }));
    });
    for (Sender& sender : route->senders) route->plan.add(sender);
    for (Receiver& receiver : route->receivers) route->plan.add(receiver);
    return route;
  }

  void commit(Route& route, std::optional<Timeout> timeout) {
    if (route.committed) return;
    const detail::ToolRegion region("sluice: halo commit");
    route.plan.commit(queue_.stream(), timeout);
    route.committed = true;
  }

  /// These Views are like those of the halo.
  void check_alike(const Views&... views) const {
    std::apply([&](const auto&... own) { (check_like(views, own), ...); }, views_);
  }
  template <class View>
  void check_like(const View& view, const View& own) const {
    for (std::size_t k = 0; k < View::rank(); ++k) {
      if (view.extent(k) != own.extent(k) || view.stride(k) != own.stride(k))
        refuse(Code::bad_argument, "View '" + view.label() + "' is not of the extents and strides of '" + own.label() +
                                       "', which the halo '" + options_.name + "' was made with");
    }
  }

  void start(const Moved& moved) {
    const detail::ToolRegion region("sluice: halo start");
    send(*gather_, moved);
  }
  template <class Operation>
  void scatter(Operation operation, const Moved& moved) {
    const detail::ToolRegion region("sluice: halo scatter");
    send(*scatter_, moved);
    take(*scatter_, [&](Index slot) {
      combine(operation, slot, moved, std::index_sequence_for<Views...>());
      release(*scatter_);
    });
  }
  template <class Operation, std::size_t... I>
  void combine(Operation operation, Index slot, const Moved& moved, std::index_sequence<I...>) {
    (std::get<I>(*combines_)
         .enqueue(queue_, std::get<I>(moved.views), scatter_->packing.slots(), options_.depth, slot, operation,
                  moved.kept),
     ...);
  }

  /// Packs and puts the next epoch.
  void send(Route& route, const Moved& moved) {
    if (route.idle()) return;
    if (route.failure) std::rethrow_exception(route.failure);
    if (route.epoch - route.waited == options_.depth)
      refuse(Code::misuse, "a halo of depth " + std::to_string(options_.depth) + " has no more exchanges under way");
    commit(route, kContextTimeout);
    in_one(route, [&] {
      const Index slot = (route.epoch + 1) % options_.depth;
      if (route.used != nullptr && route.epoch > 0) release(route);
      route.plan.acquire(queue_.stream());
      route.moved[static_cast<std::size_t>(slot)] = moved;
      route.packing.pack(queue_, slot, moved);
      route.plan.start(queue_.stream());
      ++route.epoch;
    });
  }
  /// Waits for the oldest epoch under way, and does with its slot what is to be done.
  template <class Use>
  void take(Route& route, Use use) {
    if (route.idle()) return;
    if (route.failure) std::rethrow_exception(route.failure);
    if (route.waited == route.epoch) refuse(Code::misuse, "no exchange of this halo was started");
    in_one(route, [&] {
      route.plan.wait(queue_.stream());
      use(++route.waited % options_.depth);
    });
  }
  /// Who fails in it has done a part that cannot be done again.
  template <class Work>
  void in_one(Route& route, Work work) {
    try {
      work();
    } catch (...) {
      route.failure = std::current_exception();
      throw;
    }
  }
  void release(Route& route) { route.plan.release(queue_.stream()); }

  void open_way_back() {
    auto route = open(options_.name + ", back", Side::ghosts);
    open_combines(*route, std::index_sequence_for<Views...>());
    scatter_ = std::move(route);
  }
  template <std::size_t... I>
  void open_combines(const Route& route, std::index_sequence<I...>) {
    combines_.emplace(detail::Combines<Exec, Views>(queue_.exec(), std::get<I>(views_), route.packing.parts(I))...);
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

// Whatever an instance, or a View, is taken to be: the class says what is wrong with it.
template <class Exec, std::size_t D, class... Views>
Halo(Context&, const Exec&, const Cartesian<D>&, int, Views...) -> Halo<Exec, D, Views...>;
template <class Exec, std::size_t D, class... Views>
Halo(Context&, const Exec&, const Cartesian<D>&, int, HaloOptions<D>, Views...) -> Halo<Exec, D, Views...>;

}  // namespace sluice::kokkos
