// SPDX-License-Identifier: Apache-2.0
// Barriers and Channel: shared by the adaptors of KokkosComm's interfaces of 2024 and of today.
#pragma once

#include <sluice/kokkos/channel.hpp>
#include <sluice/kokkos/ends.hpp>
#include <sluice/kokkos/messages.hpp>
#include <sluice/kokkos/turns.hpp>

#include <KokkosComm/KokkosComm.hpp>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::kokkos_comm {

/// Barriers of all ranks, one after another, in Messages of their own, which no receive of the program can match.
/// log2(ranks) rounds (Hensgen, Finkel and Manber, 1988). One thread at a time.
template <class Exec>
class Barriers {
 public:
  Barriers(Context& context, const kokkos::Queue<Exec>& queue, const std::string& name, int depth)
      : messages_(context, queue, name, depth, Messages::Unpacks::early) {}

  /// Enqueues a barrier: later work on the queue runs once all ranks have entered it. In program order blocks
  /// until then. After a timeout the next call continues the same barrier.
  /// @throws like Messages::wait
  void pass() {
    const int size = messages_.context().size();
    const int rank = messages_.context().rank();
    const auto nothing = [](std::byte*) {};
    for (; step_ < size; step_ *= 2, round_.clear()) {
      if (round_.empty()) round_.push_back(messages_.receive((rank - step_ + size) % size, 1, nothing));
      if (round_.size() == 1) round_.push_back(messages_.send((rank + step_) % size, 1, nothing));
      for (const auto& request : round_) messages_.wait(request);
    }
    step_ = 1;
  }

 private:
  using Messages = kokkos::Messages<Exec>;

  Messages messages_;
  int step_ = 1;
  std::vector<typename Messages::Request> round_;
};

/// Sends and receives the same Views again and again, in channels of its own: the n-th `sendinit` to a rank belongs to
/// the n-th `recvinit` from this rank there, of a Channel with the same tag. Views without gaps are sent and received
/// in place. Keeps its Views. Movable, not copyable. One thread at a time.
template <class Exec>
class Channel {
 public:
  /// Opens nothing yet. `ends`: a Handle or a Communicator, whose queue as of now the Channel uses.
  /// @param dest, src  the ranks that Views are sent to, and received from
  /// @param tag  Channels of one Handle or Communicator that exist at the same time have different tags
  Channel(auto&& ends, int dest, int src, int tag) : all_(std::make_unique<All>(ends.messages(), dest, src, tag)) {}

  /// Adds a View to be sent, or received into. @throws Error{Code::misuse} after the first `start`
  void sendinit(const kokkos::detail::AnyView auto& view) { all_->init(all_->out, view, all_->dest, all_->senders++); }
  void recvinit(const kokkos::detail::AnyView auto& view) { all_->init(all_->in, view, all_->src, all_->receivers++); }

  /// Enqueues the sending of what the Views to send have at this point of the queue; from now until `wait` the peer
  /// writes the Views to receive into. A View whose peer has not started to receive (in program order), or has not
  /// opened its channel (on a GPU's stream), is put by a later call instead: of this object, or one that waits or
  /// tests, of the same thread, with any Communicator. The first `start` opens the channels; if it receives, the host
  /// first blocks until the queue has run everything.
  /// @throws Error{Code::misuse} before the `wait` for the last start; Error recorded when a channel failed
  void start() { all_->start(); }
  /// Blocks the host until everything is put and every wait is enqueued, in program order until everything has landed:
  /// later work on the queue reads what was received, and may overwrite what was sent. Without a `start` does nothing.
  /// @throws Error{Code::timeout} after the connect timeout for a peer that has not opened its channel, and after
  ///   SLUICE_TIMEOUT; it changes nothing, so `wait` can be called again; Error recorded when a channel failed
  void wait() { all_->wait(); }

 private:
  using Out = kokkos::ViewSender<Exec>;
  using In = kokkos::ViewReceiver<Exec>;

  /// The members of a Channel, at an address that its turns refer to.
  struct All : sluice::detail::NonCopyable {
    All(std::shared_ptr<kokkos::Messages<Exec>> made_with, int to, int from, int number)
        : ends(std::move(made_with)), queue(ends->queue()), dest(to), src(from), tag(number) {}

    void init(auto& list, const auto& view, int peer, int number) {
      check(out.empty() && in.empty(), "is added to after its first start");
      opens.push_back([this, &list, view, peer, number](Scope& scope) {
        list.emplace_back(ends->context(), scope, queue, peer, static_cast<Tag>(number), view);
      });
    }

    void start() {
      enlist();
      check(!started, "starts again before its wait");
      if (!opens.empty()) {
        // Peers may write the Views to receive into as soon as their channels are open.
        if (receivers > 0 && !queue.in_program_order()) queue.fence("sluice: a Channel opens");
        Scope scope = ends->context().scope(ends->name() + ", channel " + std::to_string(tag));
        for (; !opens.empty(); opens.pop_front()) opens.front()(scope);
      } else {
        for (In& one : in) one.release();
      }
      started = true;
      unsent = out.size();
      push(false);
      if (!queue.in_program_order()) turns.take();
    }

    void wait() {
      if (!started) return;
      enlist();
      const kokkos::detail::WaitLimits limits(ends->context());
      for (Timeout turn = kokkos::detail::kShortTurn;; turn = std::min(2 * turn, kokkos::detail::kLongTurn)) {
        push(false);  // throws what has failed
        const bool idle = turns.take();
        if (idle && !queue.in_program_order()) {
          for (; received < in.size() && enqueues(in[received].channel()); ++received) in[received].wait();
        } else {
          const Timeout sleep = unsent > 0 ? Timeout::zero() : idle ? turn : kokkos::detail::kShortTurn;
          while (received < in.size() && in[received].wait_for(sleep)) ++received;
        }
        if (unsent == 0 && received == in.size()) break;
        if (unsent > 0)
          check_time(limits, next_out().channel());
        else
          check_time(limits, in[received].channel());
        if (unsent > 0 || !queue.in_program_order()) std::this_thread::yield();
      }
      for (Out& one : out) acquire(one);
      received = 0;
      started = false;
    }
    static void check_time(const kokkos::detail::WaitLimits& limits, auto& end) {
      limits.check(end,
                   [&] { return "rank " + std::to_string(end.peer()) + " does not come to a Channel of KokkosComm"; });
    }
    static void acquire(Out& one) {
      try {
        one.acquire();
      } catch (const Error& reason) {
        if (reason.code() != Code::misuse) throw;
        // Throws what has failed; otherwise the peer has received everything, and closed its end.
        static_cast<void>(one.channel().connected());
      }
    }

    /// A turn's failure is thrown by the next call of this Channel.
    kokkos::detail::Unmoved turn(bool stream_may_wait) {
      try {
        return push(stream_may_wait);
      } catch (...) {
        failure = std::current_exception();
        return kokkos::detail::Unmoved::blocked;
      }
    }
    /// Puts without blocking.
    kokkos::detail::Unmoved push(bool stream_may_wait) {
      using kokkos::detail::Unmoved;
      if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
      for (; unsent > 0 && kokkos::detail::can_put(queue, next_out().channel(), stream_may_wait); --unsent)
        next_out().put();
      const auto left = std::span(out).last(unsent);
      if (left.empty()) return Unmoved::nothing;
      const bool can_be = std::ranges::all_of(left, [&](Out& one) { return enqueues(one.channel()); });
      return can_be && !queue.in_program_order() ? Unmoved::enqueueable : Unmoved::blocked;
    }
    Out& next_out() { return out[out.size() - unsent]; }
    /// On a host stream an operation waits for its peer by itself; on a GPU's the host would.
    bool enqueues(const auto& end) const { return queue.on_host_stream() || end.connected(); }

    /// On a host stream no View stays unsent.
    void enlist() {
      if (!queue.on_host_stream()) turns.enlist(queue.stream());
    }
    void check(bool right, const char* what) const {
      if (!right)
        throw Error(Code::misuse, ends->context().rank(), dest, static_cast<Tag>(tag), 0,
                    std::string("a Channel of KokkosComm ") + what);
    }

    std::shared_ptr<kokkos::Messages<Exec>> ends;
    kokkos::Queue<Exec> queue;
    int dest, src, tag;
    int senders = 0;
    int receivers = 0;
    std::deque<std::function<void(Scope&)>> opens;  // of the ends that are not open yet
    std::vector<Out> out;
    std::vector<In> in;
    bool started = false;
    std::size_t unsent = 0;
    std::size_t received = 0;
    std::exception_ptr failure;
    kokkos::detail::Turns turns{[this](bool stream_may_wait) { return turn(stream_may_wait); }};  // last: it ends first
  };

  std::unique_ptr<All> all_;
};

}  // namespace sluice::kokkos_comm
