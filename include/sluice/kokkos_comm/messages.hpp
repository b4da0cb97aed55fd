// SPDX-License-Identifier: Apache-2.0
// What KokkosComm's interfaces of 2024 and of today are made of.
#pragma once

#include <sluice/kokkos/messages.hpp>

#include <KokkosComm/KokkosComm.hpp>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
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
/// from here there, of a Channel with the same tag. Keeps its Views. Movable, not copyable.
template <class Exec>
class Channel {
 public:
  /// `Ends`: a Handle, or a Communicator.
  template <class Ends>
  Channel(Ends& ends, int dest, int src, int tag) : ends_(ends.messages()), dest_(dest), src_(src), tag_(tag) {}

  /// @throws Error{Code::misuse} after the first `start`
  template <class View>
  void sendinit(const View& view) {
    check(!messages_, "is added to after its first start");
    starts_.push_back([view, to = dest_](Messages& messages) { return messages.send(view, to); });
  }
  template <class View>
  void recvinit(const View& view) {
    check(!messages_, "is added to after its first start");
    starts_.push_back([view, from = src_](Messages& messages) { return messages.receive(view, from); });
  }

  /// Enqueues: what the Views to send have at this point of the queue is sent. Opens channels at the first time.
  /// @throws Error{Code::misuse} before the `wait` for the last one; what a message to or from a peer has failed of
  void start() {
    check(requests_.empty(), "starts again before its wait");
    if (!messages_) {
      // The peer may not have waited for those of the last start yet.
      messages_ = std::make_unique<Messages>(ends_->context(), ends_->queue(),
                                             ends_->name() + ", channel " + std::to_string(tag_),
                                             static_cast<int>(std::max<std::size_t>(1, 2 * starts_.size())));
    }
    std::vector<typename Messages::Request> started;
    for (const auto& start : starts_) started.push_back(start(*messages_));
    requests_ = std::move(started);
  }
  /// Enqueues: later work on the queue finds what was received, and may overwrite what was sent. Where some of it
  /// fails, what does not is waited for all the same, and the first failure is thrown. After a timeout that can be
  /// tried again `wait` is called again, before another start.
  void wait() {
    std::exception_ptr first;
    for (const auto& request : requests_) {
      try {
        messages_->wait(request);
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    std::erase_if(requests_, &Messages::over);
    if (first) std::rethrow_exception(first);
  }

 private:
  using Messages = kokkos::Messages<Exec>;

  void check(bool right, const char* what) const {
    if (!right)
      throw Error(Code::misuse, ends_->context().rank(), dest_, static_cast<Tag>(tag_), 0,
                  std::string("a Channel of KokkosComm ") + what);
  }

  std::shared_ptr<Messages> ends_;
  int dest_;
  int src_;
  int tag_;
  std::vector<std::function<typename Messages::Request(Messages&)>> starts_;
  std::unique_ptr<Messages> messages_;
  std::vector<typename Messages::Request> requests_;
};

}  // namespace sluice::kokkos_comm
