// SPDX-License-Identifier: Apache-2.0
// Halo: fills the ghosts of a grid's blocks.
#pragma once

#include <sluice/context.hpp>
#include <sluice/kokkos/cartesian.hpp>
#include <sluice/kokkos/ends.hpp>
#include <sluice/kokkos/halo_options.hpp>
#include <sluice/kokkos/packing.hpp>
#include <sluice/kokkos/reduce.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace sluice::kokkos {

namespace detail {

/// One way of the exchange: from own elements to ghosts, or back.
template <class Exec, std::size_t D, class... Views>
class HaloRoute : sluice::detail::NonCopyable {
 public:
  using Packing = kokkos::Packing<Exec, D, Views...>;
  using Moved = typename Packing::Moved;

  HaloRoute(const Context& context, const Queue<Exec>& queue, const std::string& name, const Block<D>& block, int depth,
            bool in_place, const std::tuple<Views...>& views, Side from)
      : HaloRoute(context, depth) {  // so that the destructor runs if an end is refused
    if (in_place) used_ = std::make_shared<std::tuple<Views...>>(views);
    packing_ = Packing(context_, queue.exec(), block, depth, views, from, OwnGhosts::with_others,
                       in_place ? Gapless::in_place : Gapless::packed);
    Scope scope = context_.scope(name);
    ChannelOptions options{.depth = depth, .name = name, .stream = queue.stream()};
    const auto open_in = [&]<class End>(std::vector<End>& ends) {
      return [&](Rank peer, const Slice& slots, const std::string& contents) {
        options.contents = contents;
        ends.push_back(open_named<End>("halo", name, scope, peer, 0, slots, options));
        plan_.add(ends.back());
      };
    };
    // All ends are opened before any of them waits for a peer.
    packing_.for_each_received(open_in(receivers_));
    packing_.for_each_sent(open_in(senders_));
  }
  ~HaloRoute() {
    plan_ = {};
    if (used_ != nullptr && !close_all(exceptions_, std::span(senders_), std::span(receivers_)))
      keep_for_peers(std::move(used_));
  }

  const Packing& packing() const noexcept { return packing_; }
  Plan& plan() noexcept { return plan_; }
  bool has_channels() const noexcept { return !senders_.empty() || !receivers_.empty(); }

  void commit(const Queue<Exec>& queue, std::optional<Timeout> timeout) {
    if (committed_) return;
    const auto region = tool_region("sluice: halo commit");
    plan_.commit(queue.stream(), timeout);
    committed_ = true;
  }
  /// Packs and puts the next epoch.
  void send(const Queue<Exec>& queue, const Moved& moved) {
    if (packing_.empty()) return;
    if (failure_) std::rethrow_exception(failure_);
    if (epoch_ - waited_ == depth_)
      refuse(context_, Code::misuse, "a halo of depth " + std::to_string(depth_) + " has no more exchanges under way");
    commit(queue, kContextTimeout);
    attempt([&] {
      const Index slot = (epoch_ + 1) % depth_;
      if (used_ != nullptr && epoch_ > 0) plan_.release(queue.stream());
      plan_.acquire(queue.stream());
      moved_in(slot) = moved;
      packing_.pack(queue, slot, moved);
      plan_.start(queue.stream());
      ++epoch_;
    });
  }
  /// Waits for the oldest epoch that was sent, then calls `use` with its slot and with what it moves.
  void take(const Queue<Exec>& queue, auto use) {
    if (packing_.empty()) return;
    if (failure_) std::rethrow_exception(failure_);
    if (waited_ == epoch_) refuse(context_, Code::misuse, "no exchange of this halo was started");
    attempt([&] {
      plan_.wait(queue.stream());
      const Index slot = ++waited_ % depth_;
      use(slot, moved_in(slot));
    });
  }

 private:
  HaloRoute(const Context& context, int depth)
      : context_(context), depth_(depth), moved_(static_cast<std::size_t>(depth)), plan_(context_.plan()) {}

  /// A failure in the middle of an exchange leaves a part done that cannot be done again, so each later call throws it.
  void attempt(auto work) {
    try {
      work();
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }

  Moved& moved_in(Index slot) { return moved_[static_cast<std::size_t>(slot)]; }

  Context context_;
  Index depth_;
  std::shared_ptr<const void> used_;  // the Views that messages are sent from and land in, if they do
  int exceptions_ = std::uncaught_exceptions();
  Packing packing_;
  std::vector<Moved> moved_;  // in each slot; freed after the channels have closed
  std::vector<Sender> senders_;
  std::vector<Receiver> receivers_;
  Plan plan_;
  bool committed_ = false;
  Index epoch_ = 0;
  Index waited_ = 0;
  std::exception_ptr failure_ = nullptr;
};

}  // namespace detail

/// Ghost elements of the blocks of a grid, filled from their owners, and back. One kernel packs all Views for all
/// neighbours, each neighbour gets one message, one kernel unpacks.
///
/// A View has `width` ghosts at both ends of its first D dimensions, and at least `width` elements of its own between
/// them; or HaloOptions::ranges says where they are. Further dimensions are moved whole: components, for example.
/// Blocks have the same extents where they touch, in the same layout: else the channels fail with Code::mismatch, and
/// the constructor of a rank that is its own neighbour throws it. Views do not overlap. The halo keeps them, and opens
/// its channels on a scope of its name. Movable, not copyable. One thread at a time, in the order of its queue, whose
/// instance no other thread uses meanwhile.
///
/// In program order a call returns when it has happened, and throws its own failures. On a stream of a GPU or the host
/// calls only enqueue: a failure there, such as a lost peer or a timeout, is thrown by the next call, or by
/// Context::synchronize. Until that has returned without a failure, ghosts may hold anything. A failure in the middle
/// of an exchange is thrown by each later call.
template <class Exec, std::size_t D, class... Views>
class Halo {
  static_assert((detail::check_view<Exec, Views, detail::Way::unpack>() && ...));
  static_assert(sizeof...(Views) > 0, "a Halo needs a View");
  static_assert(sizeof...(Views) <= detail::kMostViews, "a Halo takes eight Views at most");
  static_assert(((Views::rank() >= D) && ...), "a View of a Halo has at least the grid's dimensions");

 public:
  /// Opens the channels, without waiting for peers, and loads kernels; blocks the host until the instance has run what
  /// is enqueued on it. All ranks of the grid call it, with the same options.
  /// @throws Error{Code::bad_argument} if an option is out of its range, a View is too small, or the grid has not one
  ///   block for each rank; Error{Code::mismatch} if this rank is its own neighbour, and what it sends does not fit
  ///   into its ghosts; Error{Code::misuse} for a name in use; otherwise like Context::allocate, region, sender and
  ///   receiver
  Halo(Context& context, const Queue<Exec>& queue, const Cartesian<D>& grid, int width, HaloOptions<D> options,
       Views... views)
      : context_(context), queue_(queue),
        options_(std::move(options)), block_{context.rank(), grid, width, options_.stencil, options_.ranges},
        views_(std::move(views)...) {
    std::apply([&](const auto&... all) { detail::check_halo<D>(context_, grid, width, options_, all...); }, views_);
    gather_ = open(options_.name, Side::own, options_.in_place);
  }
  Halo(Context& context, const Queue<Exec>& queue, const Cartesian<D>& grid, int width, Views... views)
      : Halo(context, queue, grid, width, HaloOptions<D>{}, std::move(views)...) {}

  Halo(Halo&&) noexcept = default;
  Halo& operator=(Halo&&) = delete;

  /// Blocks the host until the neighbours have opened their channels, then maps their memory. The first exchange
  /// commits if the program did not. On a GPU that is too late if a stream of the process already waits for a peer, as
  /// that of another rank or halo may: commit all halos first. Later calls do nothing.
  /// @throws Error{Code::timeout}, which changes nothing
  void commit(std::optional<Timeout> timeout = kContextTimeout) { gather_->commit(queue_, timeout); }
  /// Commits the channels of `scatter`, and loads the kernel of this operation: each operation has its own.
  /// @throws Error{Code::timeout}, which changes nothing; otherwise like the constructor
  void commit_scatter(auto operation, std::optional<Timeout> timeout = kContextTimeout) {
    Route& route = way_back();
    std::apply([&](const auto&... combines) { (combines.load(queue_.exec(), operation), ...); }, combines_);
    route.commit(queue_, timeout);
  }

  /// Enqueues an exchange: ghosts get what their owners have at this point of the owners' queues. The first call
  /// commits.
  /// @throws Error{Code::misuse} if `depth` exchanges were started and not finished; Error that an earlier call threw
  ///   in the middle of an exchange; in program order Error{Code::timeout} and those of the channels
  void exchange() {
    start();
    finish();
  }

  /// `start` enqueues the first half of an exchange: it packs and puts. `finish` enqueues the other half of the oldest
  /// exchange: it waits and unpacks. Work enqueued between them does not access ghosts; it may write own elements, as
  /// `start` has packed them, unless the halo moves in place.
  /// @throws like `exchange`; `finish` throws Error{Code::misuse} if no exchange was started
  void start() { start(gather_->packing().own()); }
  void finish() {
    const auto region = detail::tool_region("sluice: halo finish");
    gather_->take(queue_, [this](Index slot, const Moved& moved) {
      gather_->packing().unpack(queue_, slot, moved);
      if (options_.in_place)  // the ghosts are in use until the next start
        gather_->plan().acquire(queue_.stream());
      else
        gather_->plan().release(queue_.stream());
    });
  }

  /// Exchanges other Views, with the extents and strides of those that the halo was made with: the two copies of a
  /// field that take turns, for example. `finish` unpacks into the Views of its `start`. Each rank chooses its Views
  /// itself.
  /// @throws Error{Code::bad_argument} for Views of another shape; Error{Code::misuse} if the halo moves in place;
  ///   otherwise like `exchange`
  void exchange(const Views&... views) {
    start(views...);
    finish();
  }
  void start(const Views&... views) {
    if (options_.in_place)
      detail::refuse(context_, Code::misuse,
                     "the halo '" + options_.name + "' moves in place the Views that it was made with alone");
    check_alike(views...);
    start(gather_->packing().others({views...}));
  }

  /// Exchanges on another instance, or Queue, which later calls use too: see `go_to`.
  /// @throws like `go_to` and `exchange`
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

  /// Makes later calls use this queue. Blocks the host until the queue before has run everything, so that the exchanges
  /// stay in order. Kernels of the program on the two queues are not ordered.
  /// @throws Error{Code::misuse} for a queue of another GPU, or a host stream in place of program order and vice versa
  void go_to(const Queue<Exec>& queue) { detail::replace(queue_, queue, context_, "halo", options_.name); }

  /// Enqueues the way back: the value of each ghost is combined into its owner's, by Sum, Min, Max or Replace, in an
  /// order that only depends on the stencil. Ghosts stay unchanged. The first call opens separate channels, and waits
  /// for the neighbours: see `commit_scatter`. It has no two halves, and runs on the queue of the halo: see `go_to`.
  /// @throws like `exchange`; the first call also like the constructor
  void scatter(auto operation) { scatter_moved(operation, way_back().packing().own()); }
  /// Combines ghosts of other Views: see `exchange`. @throws Error{Code::bad_argument} for Views of another shape
  void scatter(auto operation, const Views&... views) {
    check_alike(views...);
    scatter_moved(operation, way_back().packing().others({views...}));
  }

  /// Returns a line per channel of `exchange`, and one for what a rank that is its own neighbour copies itself.
  std::string describe() const {
    std::string lines;
    const auto& packing = gather_->packing();
    if (gather_->has_channels()) lines = gather_->plan().describe() + "\n";
    if (packing.to_itself())
      lines += "rank " + std::to_string(context_.rank()) + " to itself: unpacked where it was packed\n";
    if (options_.in_place)
      lines += std::to_string(packing.sent_in_place()) + " messages go from the View, " +
               std::to_string(packing.received_in_place()) + " land in it\n";
    return lines.empty() ? "no neighbours\n" : lines;
  }

 private:
  using Index = detail::Index;
  using Route = detail::HaloRoute<Exec, D, Views...>;
  using Moved = typename Route::Moved;

  std::unique_ptr<Route> open(const std::string& name, Side from, bool in_place) {
    return std::make_unique<Route>(context_, queue_, name, block_, options_.depth, in_place, views_, from);
  }
  /// Returns the route of `scatter`; the first call opens it.
  Route& way_back() {
    if (scatter_) return *scatter_;
    auto route = open(options_.name + ", back", Side::ghosts, false);
    detail::for_each_below<sizeof...(Views)>([&](auto i) {
      std::get<i>(combines_) = {queue_.exec(), std::get<i>(views_), route->packing().parts(i)};
    });
    scatter_ = std::move(route);
    return *scatter_;
  }

  void check_alike(const Views&... views) const {
    const auto check = [&](const auto& view, const auto& own) {
      for (std::size_t k = 0; k < view.rank(); ++k) {
        if (view.extent(k) != own.extent(k) || view.stride(k) != own.stride(k))
          detail::refuse(context_, Code::bad_argument,
                         "View '" + view.label() + "' is not of the extents and strides of '" + own.label() +
                             "', which the halo '" + options_.name + "' was made with");
      }
    };
    std::apply([&](const auto&... own) { (check(views, own), ...); }, views_);
  }

  void start(const Moved& moved) {
    const auto region = detail::tool_region("sluice: halo start");
    gather_->send(queue_, moved);
  }
  void scatter_moved(auto operation, const Moved& sent) {
    const auto region = detail::tool_region("sluice: halo scatter");
    scatter_->send(queue_, sent);
    scatter_->take(queue_, [&](Index slot, const Moved& moved) {
      detail::for_each_below<sizeof...(Views)>([&](auto i) {
        std::get<i>(combines_).enqueue(queue_, std::get<i>(moved.views), scatter_->packing().slots(), options_.depth,
                                       slot, operation, moved.kept);
      });
      scatter_->plan().release(queue_.stream());
    });
  }

  Context context_;
  Queue<Exec> queue_;
  HaloOptions<D> options_;
  Block<D> block_;
  std::tuple<Views...> views_;
  std::unique_ptr<Route> gather_;
  std::unique_ptr<Route> scatter_;
  std::tuple<detail::Combines<Exec, Views>...> combines_;  // of `scatter_`
};

// These accept any argument as an instance or a View, so that the static_asserts of the class name the mistake.
template <class Exec, std::size_t D, class... Views>
Halo(Context&, const Exec&, const Cartesian<D>&, int, Views...) -> Halo<Exec, D, Views...>;
template <class Exec, std::size_t D, class... Views>
Halo(Context&, const Exec&, const Cartesian<D>&, int, HaloOptions<D>, Views...) -> Halo<Exec, D, Views...>;

}  // namespace sluice::kokkos
