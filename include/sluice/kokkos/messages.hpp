// SPDX-License-Identifier: Apache-2.0
// Messages of any size between any two ranks, without a set-up of their own: for interfaces that have send and receive.
#pragma once

#include <sluice/context.hpp>
#include <sluice/kokkos/moves.hpp>
#include <sluice/kokkos/named.hpp>
#include <sluice/kokkos/turns.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace sluice::kokkos {

namespace detail {

/// The channels of one scope to a peer, or from it, for messages of any size. A message that does not fit into the last
/// channel's slots gets a new channel with larger ones. Both ends see the same sizes in the same order, and so open
/// the same channels without a word. Those before stay open, as messages may be under way in them; all together they
/// are no larger than the last one.
template <class End>
class Growing {
 public:
  /// What goes through the channels: packed in the order of memory on such a stream, in such memory.
  struct Place {
    Stream stream;
    Space space = Space::host;
    int device = -1;
  };
  /// A channel, and its slots.
  struct Way {
    Slice memory;
    End end;
  };

  Growing(Context context, const std::string& name, Rank peer, int depth)
      : context_(std::move(context)), name_(name), scope_(context_.scope(name)), peer_(peer), depth_(depth) {}

  /// The channel of the next message, which is opened if need be. `contents()` describes the message, alike at both
  /// ends.
  template <class Contents>
  Way& way_for(std::size_t bytes, const Place& place, const Contents& contents) {
    if (bytes <= capacity_) return ways_.back();
    const std::size_t capacity = std::bit_ceil(std::max(bytes, kSmallest));
    const auto slots = capacity * static_cast<std::size_t>(depth_);
    Slice memory = context_.allocate(slots, place.space, place.device).all();
    const std::string first = "first message: " + contents();
    const ChannelOptions options{.depth = depth_, .stream = place.stream, .contents = first};
    const auto tag = static_cast<Tag>(ways_.size());
    End end = open_named("set of messages", name_, [&] {
      if constexpr (std::is_same_v<End, Sender>)
        return scope_.sender(peer_, tag, memory, options);
      else
        return scope_.receiver(peer_, tag, memory, options);
    });
    ways_.push_back({std::move(memory), std::move(end)});
    capacity_ = capacity;
    return ways_.back();
  }

 private:
  static constexpr std::size_t kSmallest = 1024;

  Context context_;
  std::string name_;
  Scope scope_;
  Rank peer_;
  int depth_;
  std::size_t capacity_ = 0;
  std::deque<Way> ways_;  // which stay where they are
};

/// Packs a box, or unpacks it.
template <class Exec, Way kWay>
struct MoveBox {
  Box box;
  Index rows = 1;  ///< of an item
  std::byte* packed = nullptr;

  KOKKOS_FUNCTION void operator()(Index item) const {
    if (packed != nullptr) move_item<Exec, kWay>(box, rows, 0, {packed}, item);
  }
};

}  // namespace detail

/// Messages between ranks in the order of a queue. The n-th message sent to a peer is the n-th received from here
/// there, and of its size, type, extents and layout. These are compared only for messages that open a channel, which
/// are the first to or from a peer and each that is larger than all before: where they differ, both ends fail with
/// Code::mismatch. A message of no bytes is none. One thread at a time. Neither copied nor moved.
///
/// A message is packed and put when it is sent, or, as long as the peer has not asked for it while there is no channel
/// yet, in a later call; so Views stay as they are until `wait`. A put runs ahead of the peer by `depth` messages: the
/// one after that waits in the queue until the peer has waited for the first. In program order it waits for a later
/// call, as it does on a GPU's stream while something that was sent there before cannot be put.
///
/// What fails on the way to a peer, or from it, is thrown in program order by the waits for those messages, and by what
/// is sent to it or received from it later. On a stream of the host or a GPU a message is over for `wait` once it is
/// enqueued: what fails behind that is thrown by the next message, or by Context::synchronize. Other peers are not
/// affected. The peer hears of a failure that is none of the channel's, of `pack` for example, when this is destroyed.
template <class Exec>
class Messages {
  /// A message that is posted. `move` enqueues its packing into a slot, or its unpacking.
  struct Message {
    explicit Message(std::size_t size) : bytes(size) {}
    Message(const Message&) = delete;
    Message& operator=(const Message&) = delete;
    virtual ~Message() = default;
    virtual void move(const Queue<Exec>& queue, std::byte* slot) = 0;
    /// Releases what `move` holds: a View, for example.
    virtual void forget() noexcept = 0;

    void end() {
      over = true;
      forget();
    }
    void fail(std::exception_ptr why) {
      failure = std::move(why);
      end();
    }

    std::size_t bytes;
    bool over = false;
    std::exception_ptr failure = nullptr;
  };
  template <class Move>
  struct MessageBy final : Message {
    MessageBy(std::size_t size, Move how) : Message(size), call(std::move(how)) {}
    void move(const Queue<Exec>& queue, std::byte* slot) override {
      if constexpr (std::is_invocable_v<Move&, const Queue<Exec>&, std::byte*>)
        (*call)(queue, slot);
      else
        (*call)(slot);
    }
    void forget() noexcept override { call.reset(); }

    std::optional<Move> call;
  };

 public:
  /// What is under way. Copies are the same.
  class Request {
   public:
    Request() = default;

   private:
    friend class Messages;
    Request(Rank peer, bool sent, std::shared_ptr<Message> message)
        : peer_(peer), sent_(sent), message_(std::move(message)) {}

    Rank peer_ = -1;
    bool sent_ = false;
    std::shared_ptr<Message> message_;
  };

  /// When a message that has landed may be unpacked. `when_waited_for`: by the `wait` for it, or for a later message of
  /// its peer. `early`: in program order also by any other `wait` or `test`, of these Messages and of all that do this
  /// and that its thread was the last to use. A wait that blocks thus receives the messages of all of them and puts
  /// what could not be put before, and ranks may post any number; for programs that receive nothing into memory that
  /// they still send. On a GPU's stream nothing is unpacked before it is waited for, but these puts are done, too: no
  /// wait is enqueued there ahead of what the thread has sent on that stream.
  enum class Unpacks : std::uint8_t { when_waited_for, early };

  /// Called where a channel is opened, within the call that it was given to.
  using Contents = std::function<std::string()>;

  /// @param name  of its scopes: those of one context that are there at once differ in it
  /// @param depth  of its channels, at both ends
  Messages(Context& context, const Queue<Exec>& queue, std::string name, int depth = 4,
           Unpacks unpacks = Unpacks::when_waited_for)
      : context_(context), queue_(queue), name_(std::move(name)), depth_(depth), early_(unpacks == Unpacks::early),
        turns_([this](bool stream_may_wait) { return turn(stream_may_wait); }) {
    if (depth_ < 1) throw Error(Code::bad_argument, context_.rank(), -1, 0, 0, "messages have a depth of 1 or more");
    detail::launch(queue.exec(), "sluice: load", 1, detail::MoveBox<Exec, detail::Way::pack>{});
    detail::launch(queue.exec(), "sluice: load", 1, detail::MoveBox<Exec, detail::Way::unpack>{});
    enlist();
  }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// Sends what `pack(slot)` enqueues to be written to `slot`, of `bytes` bytes, aligned to 64. If messages are
  /// unpacked early, any wait of this thread may call `pack`: what it refers to stays valid until `wait` has returned,
  /// and it waits for no other thread, nor on a GPU's stream for other messages.
  /// @param contents  describes the message, alike at both ends: ChannelOptions::contents. Unset: its bytes
  template <class Pack>
  Request send(Rank peer, std::size_t bytes, Pack pack, const Contents& contents = {}) {
    const detail::ToolRegion region("sluice: messages send");
    enlist();
    std::shared_ptr<Message> message = std::make_shared<MessageBy<Pack>>(bytes, std::move(pack));
    if (bytes == 0)
      message->end();
    else
      post(way_to(out_, peer), message, contents), ++unsent_;
    put_what_can_be();
    return {peer, true, std::move(message)};
  }
  /// `unpack(slot)` enqueues what reads it. It is called by the `wait` for this message, or for a later one of the
  /// peer; if messages are unpacked early, also as `pack`.
  template <class Unpack>
  Request receive(Rank peer, std::size_t bytes, Unpack unpack, const Contents& contents = {}) {
    const detail::ToolRegion region("sluice: messages receive");
    enlist();
    std::shared_ptr<Message> message = std::make_shared<MessageBy<Unpack>>(bytes, std::move(unpack));
    if (bytes == 0)
      message->end();
    else
      post(way_to(in_, peer), message, contents);
    put_what_can_be();
    return {peer, false, std::move(message)};
  }

  /// A View's elements, in the order of memory: the peer's has the same layout and extents.
  template <class View>
  requires(Kokkos::is_view_v<View>) Request send(const View& view, Rank peer) {
    return move<detail::Way::pack>(view, peer);
  }
  template <class View>
  requires(Kokkos::is_view_v<View>) Request receive(const View& view, Rank peer) {
    static_assert(!std::is_const_v<typename View::value_type>, "what is received is written: the elements are const");
    return move<detail::Way::unpack>(view, peer);
  }

  /// Later work on the queue may overwrite what was sent, or finds what was received. In program order blocks until
  /// that has happened. On a GPU's stream blocks the host as long as something that was sent there earlier, by this
  /// object, others that unpack early or Channels, is not put because the peer has not opened its channel, unless the
  /// message lands first. A message to be received may take SLUICE_TIMEOUT, on a GPU's stream from when its wait is
  /// enqueued.
  /// @throws Error{Code::timeout} for a message that its peer has not asked for, or sent anything of, in the connect
  ///   timeout; for one that has not landed in SLUICE_TIMEOUT while something is not put: that changes nothing, and can
  ///   be tried again
  void wait(const Request& request) {
    if (request.message_ == nullptr) return;
    const detail::ToolRegion region("sluice: messages wait");
    enlist();
    Message& message = *request.message_;
    if (request.sent_ && !message.over) await_peer(message, out_.at(request.peer_));
    while (!message.over) pull(in_.at(request.peer_));
    if (message.failure) std::rethrow_exception(message.failure);
  }

  /// Puts and takes without blocking. @return true if `wait` would now return, or throw, without blocking
  bool test(const Request& request) {
    enlist();
    if (over(request)) return true;
    const bool idle = turns_.take();
    if (!request.sent_ && !unpacks_early()) take_arrived(in_.at(request.peer_), request.message_.get(), idle);
    return over(request);
  }

  /// Later calls use this queue; the host waits until the one before has done its work.
  /// @throws Error{Code::misuse} for one of another GPU, or a host stream in place of program order and vice versa
  void go_to(const Queue<Exec>& queue) {
    enlist();
    if (queue == queue_) return;
    if (queue.stream().kind() != queue_.stream().kind() ||
        detail::device_of(queue.exec()) != detail::device_of(queue_.exec()))
      throw Error(Code::misuse, context_.rank(), -1, 0, 0,
                  "the messages '" + name_ + "' go on a queue of another GPU, or kind of stream");
    queue_.fence("sluice: messages go to another instance");
    queue_ = queue;
    enlist();
  }

  /// Returns true if `wait` for the request would return or throw at once. Only for the thread that used the Messages
  /// last.
  static bool over(const Request& request) noexcept { return request.message_ == nullptr || request.message_->over; }

  Context& context() noexcept { return context_; }
  const std::string& name() const noexcept { return name_; }
  const Queue<Exec>& queue() const noexcept { return queue_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  static Time deadline_after(Timeout timeout) {
    const Time now = Clock::now();
    return timeout > Time::max() - now ? Time::max() : now + timeout;
  }

  template <class End>
  struct Waiting {
    typename detail::Growing<End>::Way* way;
    std::shared_ptr<Message> message;
  };

  /// The channels to or from a peer, and what has not gone through them yet.
  template <class End>
  struct Direction {
    detail::Growing<End> channels;
    std::deque<Waiting<End>> waiting;
    std::exception_ptr failure = nullptr;
  };

  template <class End>
  void post(Direction<End>& direction, const std::shared_ptr<Message>& message, const Contents& contents) {
    if (direction.failure) std::rethrow_exception(direction.failure);
    const typename detail::Growing<End>::Place place{queue_.stream(), detail::kSpaceOf<Exec>,
                                                     detail::device_of(queue_.exec())};
    auto& way = direction.channels.way_for(
        message->bytes, place, [&] { return contents ? contents() : std::to_string(message->bytes) + " bytes"; });
    direction.waiting.push_back({&way, message});
  }

  template <class End>
  Direction<End>& way_to(std::map<Rank, Direction<End>>& all, Rank peer) {
    const auto found = all.find(peer);
    if (found != all.end()) return found->second;
    using Channels = detail::Growing<End>;
    return all.emplace(peer, Direction<End>{Channels(context_, name_, peer, depth_), {}}).first->second;
  }

  template <detail::Way kWay, class View>
  Request move(const View& view, Rank peer) {
    static_assert(Kokkos::SpaceAccessibility<Exec, typename View::memory_space>::accessible,
                  "the execution space cannot reach the View: it is in other memory");
    static_assert(std::is_trivially_copyable_v<typename View::value_type>, "elements are moved as bytes");
    const Range whole = detail::whole_of(view);
    const detail::Box box = detail::box_of(view, whole);
    auto enqueue = [box, view](const Queue<Exec>& queue, std::byte* slot) {
      queue.move(kWay == detail::Way::pack ? "sluice: pack" : "sluice: unpack", detail::items_of<Exec>(box),
                 box.bytes(), detail::MoveBox<Exec, kWay>{box, detail::rows_of_item<Exec>(box), slot}, view);
    };
    const auto bytes = static_cast<std::size_t>(box.bytes());
    const auto contents = [&] { return detail::contents_of(view, whole); };
    if constexpr (kWay == detail::Way::pack)
      return send(peer, bytes, std::move(enqueue), contents);
    else
      return receive(peer, bytes, std::move(enqueue), contents);
  }

  /// What has not gone through a direction will not. Work of the first of it may be enqueued on a host stream, and its
  /// put is not: nothing else keeps its slot there.
  template <class End>
  void fail(Direction<End>& direction, const std::exception_ptr& why) {
    direction.failure = why;
    if (!direction.waiting.empty()) queue_.run([slots = direction.waiting.front().way->memory] {});
    if constexpr (std::is_same_v<End, Sender>) unsent_ -= direction.waiting.size();
    for (auto& one : direction.waiting) one.message->fail(why);
    direction.waiting.clear();
  }

  bool in_program_order() const noexcept { return queue_.stream().kind() == Stream::Kind::program_order; }
  bool on_host_stream() const noexcept { return queue_.stream().kind() == Stream::Kind::host; }
  bool on_gpu() const noexcept { return !in_program_order() && !on_host_stream(); }
  bool unpacks_early() const noexcept { return early_ && in_program_order(); }
  /// On a host stream a put waits for its peer by itself, and nothing is ever left.
  void enlist() {
    if (early_ && !on_host_stream()) turns_.enlist(queue_.stream());
  }
  void put_what_can_be() {
    if (on_gpu())
      static_cast<void>(turns_.take());
    else
      push(false);
  }
  /// True if a put would neither block the host nor, unless it may, make a GPU's stream wait for credit.
  bool ready(Sender& sender, bool stream_may_wait) const {
    return on_host_stream() || sender.credited() || (on_gpu() && stream_may_wait && sender.connected());
  }
  /// Packs or unpacks a message. Its functions may wait for other Messages: no turn of these is taken meanwhile.
  void move(Message& message, std::byte* slot) {
    const struct Moving {
      explicit Moving(bool& of) : flag(of) { flag = true; }
      ~Moving() { flag = false; }
      bool& flag;
    } moving(moving_);
    message.move(queue_, slot);
  }
  /// Puts without blocking.
  void push(bool stream_may_wait) {
    if (unsent_ == 0) return;
    for (auto& [peer, direction] : out_) {
      try {
        push(direction.waiting, stream_may_wait);
      } catch (...) {
        fail(direction, std::current_exception());
      }
    }
  }
  void push(std::deque<Waiting<Sender>>& waiting, bool stream_may_wait) {
    for (; !waiting.empty() && ready(waiting.front().way->end, stream_may_wait); waiting.pop_front(), --unsent_) {
      Sender& end = waiting.front().way->end;
      Message& message = *waiting.front().message;
      move(message, end.acquire(queue_.stream()).data());
      end.put(queue_.stream(), 0, message.bytes);
      message.end();
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
  /// Returns true if all unsent messages are for one peer, which has opened their channels.
  bool all_can_be_enqueued() const {
    const auto has_some = [](const auto& one) { return !one.second.waiting.empty(); };
    const auto first = std::ranges::find_if(out_, has_some);
    return first != out_.end() && std::find_if(std::next(first), out_.end(), has_some) == out_.end() &&
           std::ranges::all_of(first->second.waiting, [](const auto& each) { return each.way->end.connected(); });
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
  /// Takes what has landed, up to `last` if it is not null: up to there a stream that may wait also gets the waits.
  void take_arrived(Direction<Receiver>& from, const Message* last, bool stream_may_wait) {
    while (!from.waiting.empty() && (last == nullptr || !last->over)) {
      Receiver& end = from.waiting.front().way->end;
      try {
        const bool enqueued = stream_may_wait && last != nullptr && !in_program_order() && end.connected();
        // The thread of a host stream may be taking.
        const std::optional<Slice> slot = enqueued || on_host_stream() ? std::nullopt : end.test();
        if (!enqueued && !slot) return;
        take(from, slot);
      } catch (...) {
        fail(from, std::current_exception());
      }
    }
  }
  /// Blocks until the message is put.
  void await_peer(const Message& message, Direction<Sender>& to) {
    const auto connected_by = deadline_after(context_.connect_timeout());
    const auto deadline = deadline_after(context_.timeout());
    for (push(false); !message.over; std::this_thread::yield()) {
      turns_.take();
      if (message.over) return;
      Sender& end = to.waiting.front().way->end;
      if (Clock::now() > connected_by && !end.connected())
        end.wait_connected(Timeout::zero());  // which says what is wrong
      if (Clock::now() > deadline)
        throw Error(Code::timeout, context_.rank(), end.peer(), end.tag(), end.epoch() + 1,
                    "rank " + std::to_string(end.peer()) + " has not taken the messages before, of '" + name_ + "'");
    }
  }

  /// Takes the next message of a peer. A peer that has not opened its end so far may still do so; whatever else fails
  /// leaves the channel in the midst of a message.
  void pull(Direction<Receiver>& from) {
    Receiver& end = from.waiting.front().way->end;
    const std::shared_ptr<Message> message = from.waiting.front().message;
    std::optional<Slice> slot;
    try {
      slot = await_slot(from, end, *message);
    } catch (const Error& reason) {
      if (reason.code() == Code::timeout && is_sound(end)) throw;
      return fail(from, std::current_exception());
    }
    if (!message->over) take(from, slot);
  }
  /// Unpacks the next message of a peer: from `slot`, or without one from where the queue waits for it.
  void take(Direction<Receiver>& from, std::optional<Slice> slot) {
    Receiver& end = from.waiting.front().way->end;
    try {
      const std::shared_ptr<Message> message = from.waiting.front().message;
      move(*message, (slot ? *slot : end.wait(queue_.stream())).data());
      end.release(queue_.stream());
      message->end();
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
  std::optional<Slice> await_slot(const Direction<Receiver>& from, Receiver& end, const Message& message) {
    const struct Awaited {
      Awaited(const Direction<Receiver>*& all, const Direction<Receiver>& one)
          : awaited(all), before(std::exchange(all, &one)) {}
      ~Awaited() { awaited = before; }
      const Direction<Receiver>*& awaited;
      const Direction<Receiver>* before;
    } awaited(awaited_, from);
    bool idle = false;
    const auto may_enqueue = [&] {
      idle = turns_.take();
      return message.over || (idle && (on_host_stream() || end.connected()));
    };
    if (may_enqueue()) return std::nullopt;
    const auto connected_by = deadline_after(context_.connect_timeout());
    const auto deadline = deadline_after(context_.timeout());
    for (Timeout step = kShortTurn; !may_enqueue(); step = std::min(2 * step, kLongTurn)) {
      if (!end.connected() && Clock::now() >= connected_by) end.wait_connected(Timeout::zero());
      if (!idle && Clock::now() >= deadline)
        throw Error(Code::timeout, context_.rank(), end.peer(), end.tag(), end.epoch() + 1,
                    "nothing comes from rank " + std::to_string(end.peer()) + ", of '" + name_ + "'");
      if (auto slot = end.wait_for(step)) return slot;
    }
    return std::nullopt;
  }

  static constexpr Timeout kShortTurn = std::chrono::microseconds(50);
  static constexpr Timeout kLongTurn = std::chrono::milliseconds(2);

  Context context_;
  Queue<Exec> queue_;
  std::string name_;
  int depth_;
  bool early_;
  std::map<Rank, Direction<Sender>> out_;
  std::map<Rank, Direction<Receiver>> in_;
  std::size_t unsent_ = 0;  // messages to all peers
  bool moving_ = false;
  const Direction<Receiver>* awaited_ = nullptr;
  detail::Turns turns_;  // last: it ends first
};

template <class Exec>
Messages(Context&, const Exec&, std::string, int = 4) -> Messages<Exec>;

}  // namespace sluice::kokkos
