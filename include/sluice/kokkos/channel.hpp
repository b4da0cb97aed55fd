// SPDX-License-Identifier: Apache-2.0
// ViewSender and ViewReceiver: one View to one peer.
#pragma once

#include <sluice/context.hpp>
#include <sluice/kokkos/ends.hpp>
#include <sluice/kokkos/moves.hpp>

#include <Kokkos_Core.hpp>

#include <exception>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace sluice::kokkos {

namespace detail {

/// A View and an end of a channel. `View`: its type, or void for any. In place, the slot is the View's own memory: for
/// a View without gaps at depth 1, or without elements. Otherwise the slots are separate memory, which a kernel packs
/// or unpacks.
template <class Exec, class View, class End>
class ViewEnd {
 public:
  /// Opens the end, on the context or on a scope of it, like Context::sender and Context::receiver: the peer need not
  /// have opened its end. `options.depth` slots; `options.stream` and `options.contents` are replaced by the queue's
  /// stream and by the View's type, extents and layout. With separate slots it launches two empty kernels.
  /// @throws Error{Code::bad_argument} for a depth below 1; otherwise like Context::sender, Context::region (in place)
  ///   and Context::allocate
  ViewEnd(Context& context, const Queue<Exec>& queue, Rank peer, Tag tag, const auto& view, ChannelOptions options = {})
      : ViewEnd(context, context, queue, peer, tag, view, options) {}
  template <class Of>
  ViewEnd(Context& context, auto& scope, const Queue<Exec>& queue, Rank peer, Tag tag, const Of& view,
          ChannelOptions options = {})
      : queue_(queue), view_(std::make_shared<Of>(view)), box_(box_of(view, whole_of(view))), depth_(options.depth) {
    static_assert(check_view<Exec, Of, kWay>());
    static_assert(std::is_void_v<View> || std::is_convertible_v<Of, View>, "the View is not of the end's type");
    if (depth_ < 1) refuse(context, Code::bad_argument, "a View's channel has a depth of 1 or more");
    const auto bytes = static_cast<std::size_t>(box_.bytes);
    in_place_ = bytes == 0 || (box_.box.contiguous() && depth_ == 1);  // no elements: each epoch is a signal
    if (in_place_) {
      slots_ = context.region(box_.box.data, bytes).all();
    } else {
      slots_ =
          context.allocate(bytes * static_cast<std::size_t>(depth_), kSpaceOf<Exec>, device_of(queue.exec())).all();
      load_kernels<MoveBox>(queue.exec());
    }
    const std::string contents = contents_of(view, whole_of(view));
    options.stream = queue.stream();
    options.contents = contents;
    end_ = open<End>(scope, peer, tag, slots_, options);
  }
  ViewEnd(ViewEnd&&) noexcept = default;
  ViewEnd& operator=(ViewEnd&&) = delete;
  ~ViewEnd() {
    if (in_place_ && view_ != nullptr && !close_all(exceptions_, std::span(&end_, 1))) keep_for_peers(std::move(view_));
  }

  /// The channel itself, to drain, close or describe it. Valid as long as this object stays where it is.
  End& channel() noexcept { return end_; }

 protected:
  /// Enqueues the packing or unpacking of an epoch, unless it is in place.
  void move(std::uint64_t epoch) const {
    if (in_place_) return;
    std::byte* const slot = slots_.data() + static_cast<Index>(epoch) % depth_ * box_.bytes;
    box_.template move<kWay>(queue_, slot, slots_, view_);
  }
  Stream stream() const noexcept { return queue_.stream(); }
  bool in_place() const noexcept { return in_place_; }

 private:
  static constexpr Way kWay = std::is_same_v<End, Sender> ? Way::pack : Way::unpack;

  Queue<Exec> queue_;
  std::shared_ptr<const void> view_;
  SizedBox<Exec> box_;
  Index depth_;
  bool in_place_ = false;
  int exceptions_ = std::uncaught_exceptions();
  Slice slots_;
  End end_;
};

}  // namespace detail

/// The out-end of a channel that carries a View's elements in the order of memory: element (i, j) lands at (i, j). The
/// peer's View has the same type, layout and extents, not counting dimensions of one element; else both ends fail with
/// Code::mismatch. A View may have gaps, or no elements.
///
/// With options.depth 1 a View without gaps is sent in place: a put reads the View itself, until `acquire`. Otherwise
/// each put enqueues a kernel that packs the View into one of `depth` slots, and later work may write the View at once.
///
/// Constructed like Context::sender or, given a scope, like Scope::sender: see the constructor of detail::ViewEnd.
/// Keeps the View. Movable, not copyable; one thread at a time, in the order of its queue. A failure on the queue is
/// thrown by a later call, or by Context::synchronize.
template <class Exec, class View = void>
class ViewSender : public detail::ViewEnd<Exec, View, Sender> {
 public:
  using detail::ViewEnd<Exec, View, Sender>::ViewEnd;

  /// In place, enqueues a wait until every earlier put has read the View: later work on the queue may overwrite it.
  /// With separate slots does nothing, as the kernel of `put` has read the View.
  /// @throws Error recorded when the channel failed
  void acquire() {
    const auto region = detail::tool_region("sluice: acquire");
    if (this->in_place()) this->channel().acquire(this->stream());
  }
  /// Enqueues a put of what the View has at this point of the queue. On a stream returns at once, but on a GPU's the
  /// first call blocks until the peer has opened its end. In program order blocks until the peer has opened its end and
  /// released the epoch that was in the peer's slot before.
  /// @throws as Sender::put
  void put() {
    const auto region = detail::tool_region("sluice: put");
    Sender& end = this->channel();
    if (!this->in_place()) end.acquire(this->stream());
    this->move(end.epoch() + 1);
    end.put(this->stream());
  }
};

template <class Where, class Exec, class View>
ViewSender(Where&, const Queue<Exec>&, Rank, Tag, const View&, ChannelOptions = {}) -> ViewSender<Exec, View>;

/// The in-end of such a channel: see ViewSender. On a GPU destroy it only when the queue has run its last unpacking, or
/// that epoch is released. With separate slots only the kernel that `wait` or `wait_for` enqueues writes the View. In
/// place (options.depth 1, and a View without gaps) the peer may write the View at any time between the construction of
/// this object and the first `wait`, and between each `release` and the next `wait`.
template <class Exec, class View = void>
class ViewReceiver : public detail::ViewEnd<Exec, View, Receiver> {
 public:
  using detail::ViewEnd<Exec, View, Receiver>::ViewEnd;

  /// Enqueues a wait for the next epoch and, with separate slots, its unpacking: later work on the queue reads that
  /// epoch in the View. On a stream returns at once, but on a GPU's the first call blocks until the peer has opened its
  /// end; in program order blocks until the epoch is in the View.
  /// @throws as Receiver::wait
  void wait() {
    const auto region = detail::tool_region("sluice: wait");
    this->channel().wait(this->stream());
    this->move(this->channel().epoch());
  }
  /// Blocks the host until the next epoch lands, then enqueues its unpacking like `wait`. Returns false, and changes
  /// nothing, if the epoch has not landed within `timeout`.
  /// @throws Error recorded when the channel failed
  bool wait_for(Timeout timeout) {
    const bool landed = this->channel().wait_for(timeout).has_value();
    if (landed) this->move(this->channel().epoch());
    return landed;
  }
  /// Enqueues the release of the oldest epoch that was waited for: once the queue has run what was enqueued before, the
  /// peer may send another epoch. In place the peer then writes the View; with separate slots it writes a slot, and the
  /// View keeps its elements until the next `wait`.
  /// @throws Error recorded when the channel failed; Error{Code::misuse} if every epoch waited for was released
  void release() {
    const auto region = detail::tool_region("sluice: release");
    this->channel().release(this->stream());
  }
};

template <class Where, class Exec, class View>
ViewReceiver(Where&, const Queue<Exec>&, Rank, Tag, const View&, ChannelOptions = {}) -> ViewReceiver<Exec, View>;

/// Returns a ViewSender. `where`: an instance of an execution space, or a Queue.
auto sender(Context& context, const auto& where, Rank peer, Tag tag, const auto& view, ChannelOptions options = {}) {
  return ViewSender(context, Queue(where), peer, tag, view, options);
}
/// Returns a ViewReceiver. `where`: an instance of an execution space, or a Queue.
auto receiver(Context& context, const auto& where, Rank peer, Tag tag, const auto& view, ChannelOptions options = {}) {
  return ViewReceiver(context, Queue(where), peer, tag, view, options);
}

}  // namespace sluice::kokkos
