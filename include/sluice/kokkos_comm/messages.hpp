// SPDX-License-Identifier: Apache-2.0
// What KokkosComm's interfaces of 2024 and of today are made of.
#pragma once

#include <sluice/kokkos/channel.hpp>
#include <sluice/kokkos/messages.hpp>

#include <KokkosComm/KokkosComm.hpp>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <chrono>
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

/// Barriers of all ranks, one after another, in messages of their own: one of the program's is no answer to them.
/// log2(ranks) rounds (Hensgen, Finkel and Manber, 1988).
template <class Exec>
class Barriers {
 public:
  Barriers(Context& context, const kokkos::Queue<Exec>& queue, const std::string& name, int depth)
      : messages_(context, queue, name, depth, Messages::Unpacks::early) {}

  /// Enqueues one; goes on with the one before if that has thrown.
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

/// The same Views again and again, in channels of their own: the n-th `sendinit` to a rank meets the n-th `recvinit`
/// from here there, of a Channel with the same tag. Views without gaps are sent and received in place. Keeps its Views.
/// Movable, not copyable.
template <class Exec>
class Channel {
 public:
  /// `Ends`: a Handle, or a Communicator.
  template <class Ends>
  Channel(Ends& ends, int dest, int src, int tag) : all_(std::make_unique<All>(ends.messages(), dest, src, tag)) {}

  /// @throws Error{Code::misuse} after the first `start`
  template <class View>
  void sendinit(const View& view) {
    all_->template init<Out<View>, kokkos::ViewSender<Exec, View>>(view, all_->dest, all_->senders++, all_->out);
  }
  template <class View>
  void recvinit(const View& view) {
    all_->template init<In<View>, kokkos::ViewReceiver<Exec, View>>(view, all_->src, all_->receivers++, all_->in);
  }

  /// Enqueues: what the Views to send have at this point of the queue is sent; those to be received into are the
  /// peer's until `wait`. In program order what a peer has not started to receive yet, and on a GPU's stream what it
  /// has not opened its channel for, is put by a later call: of this, or one that waits or tests, of the same thread,
  /// with any communicator. The first time it opens channels, and if it receives, the host waits first for what the
  /// queue has.
  /// @throws Error{Code::misuse} before the `wait` for the last one; what a message to or from a peer has failed of
  void start() { all_->start(); }
  /// Enqueues: later work on the queue finds what was received, and may overwrite what was sent.
  /// @throws Error{Code::timeout} where peers do not come in time, which changes nothing: it can be called again
  void wait() { all_->wait(); }

 private:
  struct AnyOut {
    virtual ~AnyOut() = default;
    virtual Sender& end() = 0;
    virtual void put() = 0;
    virtual void acquire() = 0;
  };
  template <class View>
  struct Out final : AnyOut {
    explicit Out(kokkos::ViewSender<Exec, View> made) : view(std::move(made)) {}
    Sender& end() override { return view.channel(); }
    void put() override { view.put(); }
    void acquire() override {
      try {
        view.acquire();
      } catch (const Error& reason) {
        if (reason.code() != Code::misuse) throw;
        static_cast<void>(
            end().connected());  // throws what has failed; else the peer has taken all, and closed its end
      }
    }
    kokkos::ViewSender<Exec, View> view;
  };
  struct AnyIn {
    virtual ~AnyIn() = default;
    virtual Receiver& end() = 0;
    virtual void wait() = 0;
    virtual bool wait_for(Timeout timeout) = 0;
    virtual void release() = 0;
  };
  template <class View>
  struct In final : AnyIn {
    explicit In(kokkos::ViewReceiver<Exec, View> made) : view(std::move(made)) {}
    Receiver& end() override { return view.channel(); }
    void wait() override { view.wait(); }
    bool wait_for(Timeout timeout) override { return view.wait_for(timeout); }
    void release() override { view.release(); }
    kokkos::ViewReceiver<Exec, View> view;
  };

  struct All {
    All(std::shared_ptr<kokkos::Messages<Exec>> made_with, int to, int from, int number)
        : ends(std::move(made_with)), queue(ends->queue()), dest(to), src(from), tag(number) {}
    All(const All&) = delete;
    All& operator=(const All&) = delete;

    template <class Made, class End, class View, class List>
    void init(const View& view, int peer, int number, List& list) {
      check(out.empty() && in.empty(), "is added to after its first start");
      opens.push_back([this, view, peer, number, &list](Scope& scope) {
        list.push_back(
            std::make_unique<Made>(End(ends->context(), scope, queue, peer, static_cast<Tag>(number), view)));
      });
    }

    void start() {
      enlist();
      check(!started, "starts again before its wait");
      if (!opens.empty()) {
        // The Views to receive into are the peer's as soon as their channels are open.
        if (receivers > 0 && !in_program_order()) queue.fence("sluice: a Channel opens");
        Scope scope = ends->context().scope(ends->name() + ", channel " + std::to_string(tag));
        for (; !opens.empty(); opens.pop_front()) opens.front()(scope);
      } else {
        for (const auto& one : in) one->release();
      }
      started = true;
      unsent = out.size();
      push(false);
      if (!in_program_order()) turns.take();
    }

    void wait() {
      if (!started) return;
      enlist();
      using Clock = std::chrono::steady_clock;
      const auto begin = Clock::now();
      for (Timeout turn = kShortTurn;; turn = std::min(2 * turn, kLongTurn)) {
        push(false);  // which throws what has failed
        const bool idle = turns.take();
        if (idle && !in_program_order()) {
          for (; received < in.size() && enqueues(in[received]->end()); ++received) in[received]->wait();
        } else {
          const Timeout sleep = unsent > 0 ? Timeout::zero() : idle ? turn : kShortTurn;
          while (received < in.size() && in[received]->wait_for(sleep)) ++received;
        }
        if (unsent == 0 && received == in.size()) break;
        check_time(Clock::now() - begin);
        if (unsent > 0 || !in_program_order()) std::this_thread::yield();
      }
      for (const auto& one : out) one->acquire();
      received = 0;
      started = false;
    }
    void check_time(std::chrono::nanoseconds passed) {
      const bool late = passed > ends->context().timeout();
      const auto look_at = [&](auto& end) {
        if (passed > ends->context().connect_timeout() && !end.connected()) end.wait_connected(Timeout::zero());
        if (late)
          throw Error(Code::timeout, ends->context().rank(), end.peer(), end.tag(), end.epoch() + 1,
                      "rank " + std::to_string(end.peer()) + " does not come to a Channel of KokkosComm");
      };
      if (unsent > 0)
        look_at(out[out.size() - unsent]->end());
      else if (received < in.size())
        look_at(in[received]->end());
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
      for (; unsent > 0; --unsent) {
        AnyOut& next = *out[out.size() - unsent];
        if (!ready(next.end(), stream_may_wait)) break;
        next.put();
      }
      const auto left = std::span(out).last(unsent);
      if (left.empty()) return Unmoved::nothing;
      const bool can_be = std::ranges::all_of(left, [&](const auto& one) { return enqueues(one->end()); });
      return can_be && !in_program_order() ? Unmoved::enqueueable : Unmoved::blocked;
    }
    bool ready(Sender& end, bool stream_may_wait) const {
      if (queue.stream().kind() == Stream::Kind::host) return true;
      return end.credited() || (stream_may_wait && !in_program_order() && end.connected());
    }
    /// On a host stream an operation waits for its peer by itself; on a GPU's the host would.
    template <class End>
    bool enqueues(End& end) const {
      return queue.stream().kind() == Stream::Kind::host || end.connected();
    }

    /// On a host stream nothing is ever left.
    void enlist() {
      if (queue.stream().kind() != Stream::Kind::host) turns.enlist(queue.stream());
    }
    bool in_program_order() const noexcept { return queue.stream().kind() == Stream::Kind::program_order; }
    void check(bool right, const char* what) const {
      if (!right)
        throw Error(Code::misuse, ends->context().rank(), dest, static_cast<Tag>(tag), 0,
                    std::string("a Channel of KokkosComm ") + what);
    }

    static constexpr Timeout kShortTurn = std::chrono::microseconds(50);
    static constexpr Timeout kLongTurn = std::chrono::milliseconds(2);

    std::shared_ptr<kokkos::Messages<Exec>> ends;
    kokkos::Queue<Exec> queue;
    int dest, src, tag;
    int senders = 0;
    int receivers = 0;
    std::deque<std::function<void(Scope&)>> opens;  // of those to be opened
    std::vector<std::unique_ptr<AnyOut>> out;
    std::vector<std::unique_ptr<AnyIn>> in;
    bool started = false;
    std::size_t unsent = 0;
    std::size_t received = 0;
    std::exception_ptr failure;
    kokkos::detail::Turns turns{[this](bool stream_may_wait) { return turn(stream_may_wait); }};  // last: it ends first
  };

  std::unique_ptr<All> all_;
};

}  // namespace sluice::kokkos_comm
