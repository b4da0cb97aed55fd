// SPDX-License-Identifier: Apache-2.0
// What KokkosComm's interfaces of 2024 and of today are made of.
#pragma once

#include <sluice/kokkos/channel.hpp>
#include <sluice/kokkos/messages.hpp>

#include <KokkosComm/KokkosComm.hpp>
#include <Kokkos_Core.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
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
      : messages_(context, queue, name, depth) {}

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
  Channel(Ends& ends, int dest, int src, int tag)
      : ends_(ends.messages()), queue_(ends_->queue()), dest_(dest), src_(src), tag_(tag) {}

  /// @throws Error{Code::misuse} after the first `start`
  template <class View>
  void sendinit(const View& view) {
    check(out_.empty() && in_.empty(), "is added to after its first start");
    const auto number = static_cast<Tag>(senders_++);
    opens_.push_back([view, number](Channel& channel, Scope& scope) {
      channel.out_.push_back(std::make_unique<Out<View>>(kokkos::ViewSender<Exec, View>(
          channel.ends_->context(), scope, channel.queue_, channel.dest_, number, view)));
    });
  }
  template <class View>
  void recvinit(const View& view) {
    check(out_.empty() && in_.empty(), "is added to after its first start");
    const auto number = static_cast<Tag>(receivers_++);
    opens_.push_back([view, number](Channel& channel, Scope& scope) {
      channel.in_.push_back(std::make_unique<In<View>>(kokkos::ViewReceiver<Exec, View>(
          channel.ends_->context(), scope, channel.queue_, channel.src_, number, view)));
    });
  }

  /// Enqueues: what the Views to send have at this point of the queue is sent; those to be received into are the
  /// peer's until `wait`. In program order what a peer has not started to receive is put by `wait`. The first time it
  /// opens channels.
  /// @throws Error{Code::misuse} before the `wait` for the last one; what a message to or from a peer has failed of
  void start() {
    check(!started_, "starts again before its wait");
    if (!opens_.empty()) {
      Scope scope = ends_->context().scope(ends_->name() + ", channel " + std::to_string(tag_));
      for (const auto& open : std::exchange(opens_, {})) open(*this, scope);
    } else {
      for (const auto& one : in_) one->release();
    }
    started_ = true;
    unsent_ = out_.size();
    push();
  }
  /// Enqueues: later work on the queue finds what was received, and may overwrite what was sent.
  /// @throws Error{Code::timeout} where peers do not come in time, which changes nothing: it can be called again
  void wait() {
    if (!started_) return;
    const bool in_order = queue_.stream().kind() == Stream::Kind::program_order;
    for (const auto begin = std::chrono::steady_clock::now(); !push(); std::this_thread::yield()) {
      const auto passed = std::chrono::steady_clock::now() - begin;
      Sender& first = out_[out_.size() - unsent_]->end();
      if (passed > ends_->context().connect_timeout() && !first.connected()) first.wait_connected(Timeout::zero());
      if (passed > ends_->context().timeout())
        throw Error(Code::timeout, ends_->context().rank(), dest_, first.tag(), first.epoch() + 1,
                    "the peer does not start to receive");
    }
    for (; received_ < in_.size(); ++received_) in_[received_]->wait(in_order);
    for (const auto& one : out_) one->acquire();
    received_ = 0;
    started_ = false;
  }

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
        if (reason.code() != Code::misuse) throw;  // the peer has taken all that was sent, and closed its end
      }
    }
    kokkos::ViewSender<Exec, View> view;
  };
  struct AnyIn {
    virtual ~AnyIn() = default;
    virtual void wait(bool in_order) = 0;
    virtual void release() = 0;
  };
  template <class View>
  struct In final : AnyIn {
    explicit In(kokkos::ViewReceiver<Exec, View> made) : view(std::move(made)) {}
    void wait(bool in_order) override {
      if (in_order) view.channel().wait_connected();
      view.wait();
    }
    void release() override { view.release(); }
    kokkos::ViewReceiver<Exec, View> view;
  };

  void check(bool right, const char* what) const {
    if (!right)
      throw Error(Code::misuse, ends_->context().rank(), dest_, static_cast<Tag>(tag_), 0,
                  std::string("a Channel of KokkosComm ") + what);
  }
  /// Puts what may be put without the host waiting. Returns whether that is all.
  bool push() {
    const bool in_order = queue_.stream().kind() == Stream::Kind::program_order;
    for (; unsent_ > 0; --unsent_) {
      AnyOut& next = *out_[out_.size() - unsent_];
      if (in_order && !next.end().credited()) return false;
      next.put();
    }
    return true;
  }

  std::shared_ptr<kokkos::Messages<Exec>> ends_;
  kokkos::Queue<Exec> queue_;
  int dest_;
  int src_;
  int tag_;
  int senders_ = 0;
  int receivers_ = 0;
  std::vector<std::function<void(Channel&, Scope&)>> opens_;
  std::vector<std::unique_ptr<AnyOut>> out_;
  std::vector<std::unique_ptr<AnyIn>> in_;
  bool started_ = false;
  std::size_t unsent_ = 0;
  std::size_t received_ = 0;
};

}  // namespace sluice::kokkos_comm
