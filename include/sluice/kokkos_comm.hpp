// SPDX-License-Identifier: Apache-2.0
// A communication space for KokkosComm: its send, recv and barrier in the order of an execution space instance. Link
// Sluice::kokkos_comm.
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
#include <type_traits>
#include <utility>
#include <vector>

namespace sluice::kokkos_comm {

/// The communication space: KokkosComm's templates take it in place of KokkosComm::Mpi.
struct CommSpace {};

}  // namespace sluice::kokkos_comm

template <>
struct KokkosComm::Impl::is_communication_space<sluice::kokkos_comm::CommSpace> : std::true_type {};

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

}  // namespace sluice::kokkos_comm

/// A context and an instance, or Queue. Copies share what is under way. @see sluice::kokkos::Messages
template <KokkosComm::KokkosExecutionSpace Exec>
class KokkosComm::Handle<Exec, sluice::kokkos_comm::CommSpace> {
 public:
  using execution_space = Exec;
  using transport_type = sluice::kokkos_comm::CommSpace;
  using size_type = int;

  /// @param name  those of one context that are there at once differ in it
  /// @param depth  by how many messages a sender may be ahead of each peer
  Handle(const sluice::kokkos::Queue<Exec>& queue, sluice::Context context, const std::string& name = "kokkos_comm",
         int depth = 4)
      : messages_(std::make_shared<Messages>(context, queue, name, depth)),
        barriers_(std::make_shared<Barriers>(context, queue, name + ", barrier", depth)) {}
  Handle(const Exec& exec, sluice::Context context, const std::string& name = "kokkos_comm", int depth = 4)
      : Handle(sluice::kokkos::Queue<Exec>(exec), std::move(context), name, depth) {}

  const Exec& space() const { return messages_->queue().exec(); }
  size_type size() const { return messages_->context().size(); }
  size_type rank() const { return messages_->context().rank(); }

  using Messages = sluice::kokkos::Messages<Exec>;
  using Barriers = sluice::kokkos_comm::Barriers<Exec>;
  const std::shared_ptr<Messages>& messages() const noexcept { return messages_; }
  const std::shared_ptr<Barriers>& barriers() const noexcept { return barriers_; }

 private:
  std::shared_ptr<Messages> messages_;
  std::shared_ptr<Barriers> barriers_;
};

/// What is under way. Keeps its View until it has been waited for.
template <>
class KokkosComm::Req<sluice::kokkos_comm::CommSpace> {
 public:
  Req() = default;
  explicit Req(std::function<void()> wait) : wait_(std::move(wait)) {}
  template <class Exec>
  Req(std::shared_ptr<sluice::kokkos::Messages<Exec>> messages,
      typename sluice::kokkos::Messages<Exec>::Request request)
      : wait_([messages = std::move(messages), request = std::move(request)] { messages->wait(request); }) {}

  void wait() const {
    if (wait_) wait_();
  }

 private:
  std::function<void()> wait_;
};

namespace KokkosComm {

namespace Impl {

template <KokkosExecutionSpace Exec, KokkosView View>
struct Send<View, Exec, sluice::kokkos_comm::CommSpace> {
  static auto execute(Handle<Exec, sluice::kokkos_comm::CommSpace>& handle, const View& view, int dest) {
    return Req<sluice::kokkos_comm::CommSpace>(handle.messages(), handle.messages()->send(view, dest));
  }
};

template <KokkosExecutionSpace Exec, KokkosView View>
struct Recv<View, Exec, sluice::kokkos_comm::CommSpace> {
  static auto execute(Handle<Exec, sluice::kokkos_comm::CommSpace>& handle, const View& view, int src) {
    return Req<sluice::kokkos_comm::CommSpace>(handle.messages(), handle.messages()->receive(view, src));
  }
};

/// Enqueued: later work on the instance runs when all ranks have come here. One that ran into the connect timeout, or
/// found no memory for its channels, is tried again by the next one of this handle, or of its copies; after a channel's
/// failure each of those throws it again.
template <KokkosExecutionSpace Exec>
struct Barrier<Exec, sluice::kokkos_comm::CommSpace> {
  explicit Barrier(Handle<Exec, sluice::kokkos_comm::CommSpace>&& handle) { handle.barriers()->pass(); }
};

}  // namespace Impl

/// Later work on the handle's instance may overwrite what was sent, or finds what was received: on a GPU's stream the
/// host does not wait for that.
inline void wait(Req<sluice::kokkos_comm::CommSpace> request) { request.wait(); }
inline void wait_all(std::vector<Req<sluice::kokkos_comm::CommSpace>>& requests) {
  for (const auto& request : requests) request.wait();
}

}  // namespace KokkosComm

namespace sluice::kokkos_comm {

/// Sends one View and receives another, from the same peer or any other: what a halo is made of. Wait for the request.
template <class Exec, class SendView, class RecvView>
KokkosComm::Req<CommSpace> exchange(KokkosComm::Handle<Exec, CommSpace>& handle, const SendView& send_view, int dest,
                                    const RecvView& recv_view, int src) {
  auto& messages = handle.messages();
  return KokkosComm::Req<CommSpace>(
      [messages, in = messages->receive(recv_view, src), out = messages->send(send_view, dest)] {
        messages->wait(in);
        messages->wait(out);
      });
}

/// The same Views again and again, in channels of their own: the n-th `sendinit` to a rank meets the n-th `recvinit`
/// from here there, of a Channel with the same tag. Keeps its Views.
template <class Exec>
class Channel {
 public:
  Channel(KokkosComm::Handle<Exec, CommSpace>& handle, int dest, int src, int tag)
      : handle_(handle.messages()), dest_(dest), src_(src), tag_(tag) {}

  /// @throws Error{Code::misuse} after the first `start`
  template <class View>
  void sendinit(const View& view) {
    check(!messages_, "is added to after its first start");
    starts_.push_back([view, this] { return messages_->send(view, dest_); });
  }
  template <class View>
  void recvinit(const View& view) {
    check(!messages_, "is added to after its first start");
    starts_.push_back([view, this] { return messages_->receive(view, src_); });
  }

  /// Enqueues: what the Views to send have at this point of the queue is sent. Opens channels at the first time.
  /// @throws Error{Code::misuse} before the `wait` for the last one; what a message to or from a peer has failed of
  void start() {
    check(requests_.empty(), "starts again before its wait");
    if (!messages_) {
      // The peer may not have waited for those of the last start yet.
      messages_ = std::make_unique<Messages>(handle_->context(), handle_->queue(),
                                             handle_->name() + ", channel " + std::to_string(tag_),
                                             static_cast<int>(std::max<std::size_t>(1, 2 * starts_.size())));
    }
    std::vector<typename Messages::Request> started;
    for (const auto& start : starts_) started.push_back(start());
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

  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

 private:
  using Messages = kokkos::Messages<Exec>;

  void check(bool right, const char* what) const {
    if (!right)
      throw Error(Code::misuse, handle_->context().rank(), dest_, static_cast<Tag>(tag_), 0,
                  std::string("a Channel of KokkosComm ") + what);
  }

  std::shared_ptr<Messages> handle_;
  int dest_;
  int src_;
  int tag_;
  std::vector<std::function<typename Messages::Request()>> starts_;
  std::unique_ptr<Messages> messages_;
  std::vector<typename Messages::Request> requests_;
};

}  // namespace sluice::kokkos_comm
