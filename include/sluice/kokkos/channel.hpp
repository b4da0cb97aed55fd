// SPDX-License-Identifier: Apache-2.0
// One View to one peer.
#pragma once

#include <sluice/context.hpp>
#include <sluice/kokkos/moves.hpp>

#include <Kokkos_Core.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace sluice::kokkos {

namespace detail {

template <class Exec, class View>
constexpr bool check_view() {
  static_assert(Kokkos::is_execution_space_v<Exec>, "an instance of an execution space of Kokkos is needed");
  static_assert(Kokkos::is_view_v<View>, "a View of Kokkos is needed; of an mdspan, its view_of");
  static_assert(Kokkos::SpaceAccessibility<Exec, typename View::memory_space>::accessible,
                "the execution space cannot reach the View: it is in other memory");
  static_assert(std::is_trivially_copyable_v<typename View::value_type>, "elements are moved as bytes");
  return true;
}

/// A View with the end of a channel: the end uses the View's memory itself if that has no gaps and one slot is wanted,
/// or no elements; else slots of its own, which a kernel packs or unpacks.
template <class Exec, class View, class End>
class ViewEnd {
  static_assert(check_view<Exec, View>());

 public:
  template <class Open>
  ViewEnd(Context& context, const Queue<Exec>& queue, const View& view, ChannelOptions options, Open open)
      : queue_(queue), view_(kept_for_a_peer(view)), depth_(options.depth) {
    if (depth_ < 1)
      throw Error(Code::bad_argument, context.rank(), -1, 0, 0, "a View's channel has a depth of 1 or more");
    const Range whole = whole_of(view);
    const Box box = box_of(view, whole);
    const auto bytes = static_cast<std::size_t>(box.bytes());
    const std::string contents = contents_of(view, whole);
    options.stream = queue.stream();
    options.contents = contents;
    in_place_ = bytes == 0 || (box.contiguous() && depth_ == 1);  // no elements: each epoch is a signal
    if (in_place_) {
      region_ = context.region(box.data, bytes);
      end_ = open(region_.all(), options);
      return;
    }
    memory_ = context.allocate(bytes * static_cast<std::size_t>(depth_), kSpaceOf<Exec>, device_of(queue.exec()));
    std::vector<Slot> slots;
    for (Index slot = 0; slot < depth_; ++slot) slots.push_back({memory_.data() + slot * box.bytes()});
    moves_ = Moves<Exec>(queue.exec(), {{box}}, table_of(queue.exec(), slots), depth_);
    Moves<Exec>::load(queue.exec());
    kept_ = std::make_shared<const std::pair<Memory, View>>(memory_, view);
    end_ = open(memory_.all(), options);
  }
  ViewEnd(ViewEnd&&) noexcept = default;
  ViewEnd& operator=(ViewEnd&&) = delete;
  ~ViewEnd() {
    if (in_place_ && view_ != nullptr && !closed()) static_cast<void>(view_.release());  // the peer may still use it
  }

  template <Way kWay>
  void move(const char* label, Index slot) const {
    if (!in_place_) moves_.template enqueue<kWay>(queue_, label, slot % depth_, kept_);
  }

  Stream stream() const noexcept { return queue_.stream(); }
  bool in_place() const noexcept { return in_place_; }
  End& end() noexcept { return end_; }
  const End& end() const noexcept { return end_; }

 private:
  /// Never freed where a peer may still use the View. tests/leaks.txt names it.
  [[gnu::noinline]] static std::unique_ptr<View> kept_for_a_peer(const View& view) {
    return std::make_unique<View>(view);
  }
  /// While an exception passes the end closes by itself, which tells the peer of it.
  bool closed() noexcept {
    if (std::uncaught_exceptions() > exceptions_) return false;
    try {
      end_.close();
      return true;
    } catch (...) {
      return false;
    }
  }
  Queue<Exec> queue_;
  std::unique_ptr<View> view_;
  Index depth_;
  bool in_place_ = false;
  int exceptions_ = std::uncaught_exceptions();
  Region region_;
  Memory memory_;
  std::shared_ptr<const void> kept_;  // what kernels use, as long as they are not launched
  Moves<Exec> moves_;
  End end_;
};

}  // namespace detail

/// The out-end of a channel that carries a View's elements, in the order of memory: the peer's View has the same layout
/// and extents, dimensions of one element apart, else both ends fail with Code::mismatch (layout and extents replace
/// `options.contents`). Element (i, j) lands at (i, j). A View may have no elements. Keeps the View. A later call, or
/// Context::synchronize, throws the failures of the queue. Movable, not copyable; one thread at a time, in the order of
/// its queue.
template <class Exec, class View>
class ViewSender {
 public:
  /// As Context::sender. With options.depth 1 a View without gaps is read in place; else each put packs it.
  ViewSender(Context& context, const Queue<Exec>& queue, Rank peer, Tag tag, const View& view,
             ChannelOptions options = {})
      : ViewSender(context, context, queue, peer, tag, view, options) {}
  /// As Scope::sender, of a scope of the context.
  template <class Where>
  ViewSender(Context& context, Where& scope, const Queue<Exec>& queue, Rank peer, Tag tag, const View& view,
             ChannelOptions options = {})
      : view_(context, queue, view, options,
              [&](const Slice& slots, const ChannelOptions& all) { return scope.sender(peer, tag, slots, all); }) {}

  /// Later work on the queue may overwrite the View, which until then a put may read.
  void acquire() {
    const detail::ToolRegion region("sluice: acquire");
    if (view_.in_place()) view_.end().acquire(view_.stream());
  }
  /// Enqueues: the peer gets what the View has at this point of the queue.
  void put() {
    const detail::ToolRegion region("sluice: put");
    if (!view_.in_place()) view_.end().acquire(view_.stream());
    view_.template move<detail::Way::pack>("sluice: pack", static_cast<detail::Index>(view_.end().epoch()) + 1);
    view_.end().put(view_.stream());
  }

  /// The channel itself: to drain, to close, to describe.
  Sender& channel() noexcept { return view_.end(); }

 private:
  detail::ViewEnd<Exec, View, Sender> view_;
};

/// The in-end: likewise.
template <class Exec, class View>
class ViewReceiver {
  static_assert(!std::is_const_v<typename View::value_type>, "what is received is written: the elements are const");

 public:
  ViewReceiver(Context& context, const Queue<Exec>& queue, Rank peer, Tag tag, const View& view,
               ChannelOptions options = {})
      : ViewReceiver(context, context, queue, peer, tag, view, options) {}
  template <class Where>
  ViewReceiver(Context& context, Where& scope, const Queue<Exec>& queue, Rank peer, Tag tag, const View& view,
               ChannelOptions options = {})
      : view_(context, queue, view, options,
              [&](const Slice& slots, const ChannelOptions& all) { return scope.receiver(peer, tag, slots, all); }) {}

  /// Enqueues a wait: later work on the queue finds the next epoch in the View. Before the first wait and after a
  /// release the peer may be writing there.
  void wait() {
    const detail::ToolRegion region("sluice: wait");
    view_.end().wait(view_.stream());
    view_.template move<detail::Way::unpack>("sluice: unpack", static_cast<detail::Index>(view_.end().epoch()));
  }
  /// Blocks the host until the next epoch is here, then unpacks it as `wait` does. Returns false, and changes nothing,
  /// if it does not come within the timeout.
  bool wait_for(Timeout timeout) {
    const bool came = view_.end().wait_for(timeout).has_value();
    if (came)
      view_.template move<detail::Way::unpack>("sluice: unpack", static_cast<detail::Index>(view_.end().epoch()));
    return came;
  }
  /// Enqueues: nobody reads that epoch any more; the peer may overwrite the View.
  void release() {
    const detail::ToolRegion region("sluice: release");
    view_.end().release(view_.stream());
  }

  Receiver& channel() noexcept { return view_.end(); }

 private:
  detail::ViewEnd<Exec, View, Receiver> view_;
};

/// `exec`: an instance of an execution space, or a Queue.
template <class Exec, class View>
auto sender(Context& context, const Queue<Exec>& queue, Rank peer, Tag tag, const View& view,
            ChannelOptions options = {}) {
  return ViewSender<Exec, View>(context, queue, peer, tag, view, options);
}
template <class Exec, class View>
auto sender(Context& context, const Exec& exec, Rank peer, Tag tag, const View& view, ChannelOptions options = {}) {
  return ViewSender<Exec, View>(context, Queue<Exec>(exec), peer, tag, view, options);
}
template <class Exec, class View>
auto receiver(Context& context, const Queue<Exec>& queue, Rank peer, Tag tag, const View& view,
              ChannelOptions options = {}) {
  return ViewReceiver<Exec, View>(context, queue, peer, tag, view, options);
}
template <class Exec, class View>
auto receiver(Context& context, const Exec& exec, Rank peer, Tag tag, const View& view, ChannelOptions options = {}) {
  return ViewReceiver<Exec, View>(context, Queue<Exec>(exec), peer, tag, view, options);
}

}  // namespace sluice::kokkos
