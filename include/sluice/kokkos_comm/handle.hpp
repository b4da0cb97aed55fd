// SPDX-License-Identifier: Apache-2.0
// KokkosComm's interface of 2024: a Handle.
#pragma once

#include <sluice/kokkos_comm/messages.hpp>

#include <KokkosComm/KokkosComm.hpp>
#include <Kokkos_Core.hpp>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace sluice::kokkos_comm {

/// The communication space: KokkosComm's templates take it in place of KokkosComm::Mpi.
struct CommSpace {};

}  // namespace sluice::kokkos_comm

template <>
struct KokkosComm::Impl::is_communication_space<sluice::kokkos_comm::CommSpace> : std::true_type {};

/// A context and an instance of an execution space, or a Queue. Copies share their messages and barriers. One thread at
/// a time uses a handle and its copies. @see sluice::kokkos::Messages
template <KokkosComm::KokkosExecutionSpace Exec>
class KokkosComm::Handle<Exec, sluice::kokkos_comm::CommSpace> {
 public:
  using execution_space = Exec;
  using transport_type = sluice::kokkos_comm::CommSpace;
  using size_type = int;

  /// Opens no channel. An instance converts to a Queue.
  /// @param name  handles of one context that exist at the same time have different names, or are copies of one
  /// @param depth  by how many messages a sender may be ahead of each peer
  /// @throws sluice::Error with Code::bad_argument for a depth below 1
  Handle(const sluice::kokkos::Queue<Exec>& queue, sluice::Context context, const std::string& name = "kokkos_comm",
         int depth = 4)
      : messages_(std::make_shared<Messages>(context, queue, name, depth, Messages::Unpacks::early)),
        barriers_(std::make_shared<Barriers>(context, queue, name + ", barrier", depth)) {}

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

/// One or two messages. Keeps its Views until the messages complete. Copies refer to the same messages.
template <>
class KokkosComm::Req<sluice::kokkos_comm::CommSpace> {
 public:
  Req() = default;
  explicit Req(std::function<void()> wait) : wait_(std::move(wait)) {}
  template <class Exec>
  Req(const std::shared_ptr<sluice::kokkos::Messages<Exec>>& messages, const auto&... requests)
      : wait_([messages, requests...] { (messages->wait(requests), ...); }) {}

  /// Does what Messages::wait does; nothing if empty. @throws like it
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

/// Enqueues a barrier: later work on the instance runs once all ranks have entered it. If a barrier fails with the
/// connect timeout, or finds no memory for its channels, the next one of this handle or of its copies continues it. If
/// a channel fails, each later barrier throws that failure.
template <KokkosExecutionSpace Exec>
struct Barrier<Exec, sluice::kokkos_comm::CommSpace> {
  explicit Barrier(Handle<Exec, sluice::kokkos_comm::CommSpace>&& handle) { handle.barriers()->pass(); }
};

}  // namespace Impl

/// Later work on the handle's instance may overwrite what was sent, or reads what was received: on a GPU's stream the
/// host does not wait for that. See sluice::kokkos::Messages::wait.
inline void wait(Req<sluice::kokkos_comm::CommSpace> request) { request.wait(); }
/// Waits for one request after another; the first failure ends that, and is thrown.
inline void wait_all(std::vector<Req<sluice::kokkos_comm::CommSpace>>& requests) {
  for (const auto& request : requests) request.wait();
}

}  // namespace KokkosComm

namespace sluice::kokkos_comm {

/// Sends one View and receives another, from the same peer or any other. Wait for the request.
/// @throws like Messages::send and Messages::receive
template <class Exec, class SendView, class RecvView>
KokkosComm::Req<CommSpace> exchange(KokkosComm::Handle<Exec, CommSpace>& handle, const SendView& send_view, int dest,
                                    const RecvView& recv_view, int src) {
  const auto& messages = handle.messages();
  const auto in = messages->receive(recv_view, src);
  return KokkosComm::Req<CommSpace>(messages, in, messages->send(send_view, dest));
}

}  // namespace sluice::kokkos_comm
