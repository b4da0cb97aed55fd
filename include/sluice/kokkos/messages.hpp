// SPDX-License-Identifier: Apache-2.0
// Messages of any size between any two ranks, without a set-up of their own: for interfaces that have send and receive.
#pragma once

#include <sluice/context.hpp>
#include <sluice/kokkos/ends.hpp>
#include <sluice/kokkos/moves.hpp>
#include <sluice/kokkos/posted.hpp>
#include <sluice/kokkos/turns.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace sluice::kokkos {

/// Messages between ranks in the order of a queue. The n-th message sent to a peer is the n-th that the peer receives
/// from this rank, and has the same size, type, extents and layout. Ends compare these only for messages that open a
/// channel: the first one to or from a peer, and each that is larger than all before. If they differ, both ends fail
/// with Code::mismatch. A message of 0 bytes is not sent: it completes at once. One thread at a time. Neither copied
/// nor moved.
///
/// A message is packed and put by `send`, or by a later call if the peer has not opened the channel yet; so Views stay
/// unchanged until `wait`. `depth` messages to a peer can be put before the peer has waited for the first; the next put
/// waits for that in the queue. In program order, and on a GPU's stream while something that was sent there before
/// cannot be put, a later call puts it instead.
///
/// In program order a failure on the way to or from a peer is thrown by the waits for the failed messages, and by later
/// sends to that peer, or receives from it. On a stream of the host or a GPU a message completes for `wait` once it is
/// enqueued; what fails afterwards is thrown by the next message, or by Context::synchronize. Other peers are not
/// affected. A failure outside of the channel, of `pack` for example, reaches the peer when this object is destroyed.
template <class Exec>
class Messages : sluice::detail::NonCopyable {
  using Posted = detail::Posted;
  using Out = detail::Direction<Exec, Sender>;
  using In = detail::Direction<Exec, Receiver>;

 public:
  /// A message that was posted. Copies refer to the same message; a default one to none. Its members are the library's.
  struct Request {
    Rank peer = -1;
    bool sent = false;
    std::shared_ptr<Posted> message;
  };

  /// When a message that has landed is unpacked. `when_waited_for`: by the `wait` for it, or for a later message from
  /// its peer. `early`: in program order also by any other `wait` or `test`, of this object or of others that unpack
  /// early and that the calling thread was the last to use. So a wait that blocks receives the messages of all these
  /// objects, and puts what could not be put before, and ranks may post any number of messages; only for programs that
  /// receive nothing into memory that they are still sending. On a GPU's stream `early` unpacks nothing before its
  /// `wait`, but does these puts: no wait is enqueued ahead of what the thread has sent on that stream.
  enum class Unpacks : std::uint8_t { when_waited_for, early };

  /// Describes a message. Called within the call that it was given to, and only where that opens a channel.
  using Contents = std::function<std::string()>;

  /// Launches two empty kernels; opens no channel.
  /// @param name  of the channels' scopes: objects of one context that exist at the same time have different names
  /// @param depth  of the channels, at both ends
  /// @throws Error{Code::bad_argument} for a depth below 1
  Messages(Context& context, const Queue<Exec>& queue, std::string name, int depth = 4,
           Unpacks unpacks = Unpacks::when_waited_for)
      : context_(context), queue_(queue), name_(std::move(name)), depth_(depth), early_(unpacks == Unpacks::early),
        turns_([this](bool stream_may_wait) { return turn(stream_may_wait); }) {
    if (depth_ < 1) detail::refuse(context_, Code::bad_argument, "messages have a depth of 1 or more");
    detail::load_kernels<detail::MoveBox>(queue.exec());
    enlist();
  }

  /// Posts a message to `peer`, and puts it if that does not block. `pack(slot)` enqueues what writes the `bytes` bytes
  /// of `slot`, which is aligned to 64; this call or a later one calls it. If messages are unpacked early, any wait of
  /// this thread may call `pack`: what it refers to stays valid until `wait` has returned, and it waits for no other
  /// thread, nor on a GPU's stream for other messages.
  /// @param contents  describes the message alike at both ends, for ChannelOptions::contents; by default its size
  /// @throws Error that failed an earlier message to this peer; Error{Code::misuse} for a name in use; otherwise like
  ///   Context::allocate and Context::sender
  Request send(Rank peer, std::size_t bytes, auto pack, const Contents& contents = {}) {
    const auto region = detail::tool_region("sluice: messages send");
    return post(out_, peer, bytes, std::move(pack), contents);
  }
  /// Posts the receiving of a message from `peer`. `unpack(slot)` enqueues what reads the slot. The `wait` for this
  /// message, or for a later one from the peer, calls it; if messages are unpacked early, also any wait, like `pack`.
  /// @throws like `send`
  Request receive(Rank peer, std::size_t bytes, auto unpack, const Contents& contents = {}) {
    const auto region = detail::tool_region("sluice: messages receive");
    return post(in_, peer, bytes, std::move(unpack), contents);
  }

  /// Sends or receives a View's elements in the order of memory. The peer's View has the same type, layout and extents.
  /// Keeps the View until the message completes. @throws like the functions above
  Request send(const detail::AnyView auto& view, Rank peer) { return move<detail::Way::pack>(view, peer); }
  Request receive(const detail::AnyView auto& view, Rank peer) { return move<detail::Way::unpack>(view, peer); }

  /// When this returns, later work on the queue may overwrite what was sent, or reads what was received. In program
  /// order blocks until that has happened. On a GPU's stream blocks the host as long as something that was sent there
  /// earlier, by this object, others that unpack early or Channels of KokkosComm, is not put because the peer has not
  /// opened its channel, unless the message lands first. A message to be received may take SLUICE_TIMEOUT, on a GPU's
  /// stream from when its wait is enqueued.
  /// @throws Error that failed the message; Error{Code::timeout}, which changes nothing, so that `wait` can be called
  ///   again: after the connect timeout if the peer has not opened the channel; after SLUICE_TIMEOUT for a message that
  ///   has not been put, or has not landed while something is not put
  void wait(const Request& request) {
    if (request.message == nullptr) return;
    const auto region = detail::tool_region("sluice: messages wait");
    enlist();
    Posted& message = *request.message;
    if (request.sent && !message.completed) await_peer(message, out_.at(request.peer));
    while (!message.completed) pull(in_.at(request.peer));
    if (message.failure) std::rethrow_exception(message.failure);
  }

  /// Puts and receives what it can without blocking. Returns true if `wait` would now return, or throw, without
  /// blocking.
  bool test(const Request& request) {
    enlist();
    if (over(request)) return true;
    const bool idle = turns_.take();
    if (!request.sent && !unpacks_early()) take_arrived(in_.at(request.peer), request.message.get(), idle);
    return over(request);
  }

  /// Makes later calls use this queue. Blocks the host until the queue before has run everything.
  /// @throws Error{Code::misuse} for a queue of another GPU, or a host stream in place of program order and vice versa
  void go_to(const Queue<Exec>& queue) {
    enlist();
    if (queue == queue_) return;
    detail::replace(queue_, queue, context_, "set of messages", name_);
    enlist();
  }

  /// Returns true if `wait` for the request would return or throw at once. Only for the thread that used the Messages
  /// last.
  static bool over(const Request& request) noexcept { return request.message == nullptr || request.message->completed; }

  /// The context and the name that this was made with, and the queue of later calls.
  Context& context() noexcept { return context_; }
  const std::string& name() const noexcept { return name_; }
  const Queue<Exec>& queue() const noexcept { return queue_; }

 private:
  template <class End, class Move>
  Request post(std::map<Rank, detail::Direction<Exec, End>>& directions, Rank peer, std::size_t bytes, Move move,
               const Contents& contents) {
    constexpr bool kSent = std::is_same_v<End, Sender>;
    enlist();
    std::shared_ptr<Posted> message = std::make_shared<detail::PostedBy<Move>>(bytes, std::move(move));
    if (bytes == 0) {
      message->complete();
    } else {
      directions.try_emplace(peer, context_, name_, peer, depth_).first->second.post(message, queue_, contents);
      if (kSent) ++unsent_;
    }
    if (on_gpu())
      static_cast<void>(turns_.take());
    else
      push(false);
    return {peer, kSent, std::move(message)};
  }

  template <detail::Way kWay, class View>
  Request move(const View& view, Rank peer) {
    static_assert(detail::check_view<Exec, View, kWay>());
    const Range whole = detail::whole_of(view);
    const detail::SizedBox<Exec> box(detail::box_of(view, whole));
    auto enqueue = [this, box, view](std::byte* slot) { box.template move<kWay>(queue_, slot, view); };
    const auto bytes = static_cast<std::size_t>(box.bytes);
    const auto contents = [&] { return detail::contents_of(view, whole); };
    if constexpr (kWay == detail::Way::pack)
      return send(peer, bytes, std::move(enqueue), contents);
    else
      return receive(peer, bytes, std::move(enqueue), contents);
  }

  /// Fails the unmoved messages of a direction. Work of the first may be enqueued on a host stream without a put or
  /// release behind it, so nothing else keeps its slot there.
  template <class End>
  void fail(detail::Direction<Exec, End>& direction, const std::exception_ptr& why) {
    direction.failure = why;
    if (!direction.waiting.empty()) queue_.run([slots = direction.waiting.front().channel->slots] {});
    if constexpr (std::is_same_v<End, Sender>) unsent_ -= direction.waiting.size();
    for (auto& one : direction.waiting) one.message->complete(why);
    direction.waiting.clear();
  }

  bool on_gpu() const noexcept { return !queue_.in_program_order() && !queue_.on_host_stream(); }
  bool unpacks_early() const noexcept { return early_ && queue_.in_program_order(); }
  /// On a host stream a put waits for its peer in the stream's thread, so no message stays unmoved.
  void enlist() {
    if (early_ && !queue_.on_host_stream()) turns_.enlist(queue_.stream());
  }
  /// Packs or unpacks a message. Its function may wait for other Messages: this object takes no turn meanwhile.
  void move(Posted& message, std::byte* slot) {
    const detail::Scoped moving(moving_, true);
    message.move(slot);
  }
  /// Puts without blocking.
  void push(bool stream_may_wait) {
    if (unsent_ == 0) return;
    for (auto& [peer, to] : out_) {
      try {
        while (!to.waiting.empty() && detail::can_put(queue_, to.next_end(), stream_may_wait)) {
          Sender& end = to.next_end();
          Posted& message = *to.waiting.front().message;
          move(message, end.acquire(queue_.stream()).data());
          end.put(queue_.stream(), 0, message.bytes);
          message.complete();
          to.waiting.pop_front();
          --unsent_;
        }
      } catch (...) {
        fail(to, std::current_exception());
      }
    }
  }
  /// Puts without blocking, and takes messages early.
  detail::Unmoved turn(bool stream_may_wait) {
    using detail::Unmoved;
    if (moving_) return Unmoved::nothing;
    push(stream_may_wait);
    const bool none_to_come = !unpacks_early() || take_arrived();
    if (none_to_come && unsent_ == 0) return Unmoved::nothing;
    return on_gpu() && all_can_be_enqueued() ? Unmoved::enqueueable : Unmoved::blocked;
  }
  /// Returns true if all unsent messages, of which there are some, are for one peer, which has opened their channels.
  bool all_can_be_enqueued() const {
    const auto has_all = [this](const auto& one) { return one.second.waiting.size() == unsent_; };
    const auto first = std::ranges::find_if(out_, has_all);
    return first != out_.end() &&
           std::ranges::all_of(first->second.waiting, [](const auto& each) { return each.channel->end.connected(); });
  }
  /// Unpacks the messages that have landed, of all peers but the one that a call waits for. Returns true if none of
  /// them is still to be received.
  bool take_arrived() {
    bool all = true;
    for (auto& [peer, direction] : in_) {
      if (&direction == awaited_) continue;
      take_arrived(direction, nullptr, false);
      all = all && direction.waiting.empty();
    }
    return all;
  }
  /// Unpacks what has landed, up to `last` if that is not null: then a stream that may wait also gets the waits.
  void take_arrived(In& from, const Posted* last, bool stream_may_wait) {
    while (!from.waiting.empty() && (last == nullptr || !last->completed)) {
      Receiver& end = from.next_end();
      try {
        const bool enqueued = stream_may_wait && last != nullptr && !queue_.in_program_order() && end.connected();
        // The thread of a host stream may be taking.
        const std::optional<Slice> slot = enqueued || queue_.on_host_stream() ? std::nullopt : end.test();
        if (!enqueued && !slot) return;
        take(from, slot);
      } catch (...) {
        fail(from, std::current_exception());
      }
    }
  }
  /// Blocks until the message is put.
  void await_peer(const Posted& message, Out& to) {
    const detail::WaitLimits limits(context_);
    for (push(false); !message.completed; std::this_thread::yield()) {
      turns_.take();
      if (message.completed) return;
      limits.check(to.next_end(), [&] {
        return "rank " + std::to_string(to.next_end().peer()) + " has not taken the messages before, of '" + name_ +
               "'";
      });
    }
  }

  /// Takes the next message of a peer. After a timeout the peer may still open its end; any other failure leaves the
  /// channel in the middle of a message.
  void pull(In& from) {
    const Receiver& end = from.next_end();
    const std::shared_ptr<Posted> message = from.waiting.front().message;
    std::optional<Slice> slot;
    try {
      slot = await_slot(from, *message);
    } catch (const Error& reason) {
      if (reason.code() == Code::timeout && is_sound(end)) throw;
      return fail(from, std::current_exception());
    }
    if (!message->completed) take(from, slot);
  }
  /// Unpacks the next message of a peer: from `slot`, or without one after enqueueing a wait for it.
  void take(In& from, std::optional<Slice> slot) {
    try {
      Receiver& end = from.next_end();
      const std::shared_ptr<Posted> message = from.waiting.front().message;
      move(*message, (slot ? *slot : end.wait(queue_.stream())).data());
      end.release(queue_.stream());
      message->complete();
      from.waiting.pop_front();
    } catch (...) {
      fail(from, std::current_exception());
    }
  }
  static bool is_sound(const Receiver& end) noexcept {
    try {
      static_cast<void>(end.connected());
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  /// Blocks until the host may enqueue the wait for the next message. Meanwhile takes turns, which the peer of this one
  /// may depend on. Returns the slot if the message lands in the meantime. A turn may wait for the message itself.
  std::optional<Slice> await_slot(const In& from, const Posted& message) {
    Receiver& end = from.waiting.front().channel->end;
    const detail::Scoped awaited(awaited_, &from);
    bool idle = false;
    const auto may_enqueue = [&] {
      idle = turns_.take();
      return message.completed || (idle && (queue_.on_host_stream() || end.connected()));
    };
    if (may_enqueue()) return std::nullopt;
    const detail::WaitLimits limits(context_);
    for (Timeout step = detail::kShortTurn; !may_enqueue(); step = std::min(2 * step, detail::kLongTurn)) {
      limits.check(
          end, [&] { return "nothing comes from rank " + std::to_string(end.peer()) + ", of '" + name_ + "'"; }, !idle);
      if (auto slot = end.wait_for(step)) return slot;
    }
    return std::nullopt;
  }

  Context context_;
  Queue<Exec> queue_;
  std::string name_;
  int depth_;
  bool early_;
  std::map<Rank, Out> out_;
  std::map<Rank, In> in_;
  std::size_t unsent_ = 0;  // messages to all peers
  bool moving_ = false;
  const In* awaited_ = nullptr;
  detail::Turns turns_;  // last: it ends first
};

template <class Exec>
Messages(Context&, const Exec&, std::string, int = 4) -> Messages<Exec>;

}  // namespace sluice::kokkos
