// SPDX-License-Identifier: Apache-2.0
// Stand-in for KokkosComm of 2026 (f76ef89f, with the exchange of d8a6680b): the templates that a communication space
// specialises, and the functions that call them.
#pragma once

#include <KokkosComm/mpi/communicator.hpp>
#include <Kokkos_Core.hpp>

#include <type_traits>

namespace KokkosComm {

namespace Impl {
template <class T>
struct is_communication_space : std::false_type {};
}  // namespace Impl

template <class T>
concept KokkosView = Kokkos::is_view_v<T>;
template <class T>
concept MutKokkosView = KokkosView<T> && std::is_same_v<typename T::value_type, typename T::non_const_value_type>;
template <class T>
concept KokkosExecutionSpace = Kokkos::is_execution_space_v<T>;
template <class T>
concept CommunicationSpace = requires {
  Impl::is_communication_space<T>::value;
  typename T::communication_space;
  typename T::communicator_type;
  typename T::request_type;
  typename T::datatype_type;
  typename T::reduction_op_type;
  typename T::size_type;
  typename T::rank_type;
};

struct MpiSpace {
  using communication_space = MpiSpace;
  using communicator_type = int;
  using request_type = int;
  using datatype_type = int;
  using reduction_op_type = int;
  using size_type = int;
  using rank_type = int;
};

template <CommunicationSpace CommSpace = MpiSpace, KokkosExecutionSpace Exec = Kokkos::DefaultExecutionSpace>
class Communicator;
template <CommunicationSpace CommSpace = MpiSpace>
class Request;
template <CommunicationSpace CommSpace = MpiSpace>
class Channel;

namespace Impl {
template <MutKokkosView View, KokkosExecutionSpace Exec = Kokkos::DefaultExecutionSpace,
          CommunicationSpace CommSpace = MpiSpace>
struct Recv;
template <KokkosView View, KokkosExecutionSpace Exec = Kokkos::DefaultExecutionSpace,
          CommunicationSpace CommSpace = MpiSpace>
struct Send;
template <CommunicationSpace CommSpace, KokkosExecutionSpace Exec, KokkosView SendView, MutKokkosView RecvView>
struct Exchange;
}  // namespace Impl

template <KokkosView View, KokkosExecutionSpace Exec, CommunicationSpace CommSpace>
Request<CommSpace> send(Communicator<CommSpace, Exec>& comm, const View& view, int peer) {
  return Impl::Send<View, Exec, CommSpace>::execute(comm, view, peer);
}
template <MutKokkosView View, KokkosExecutionSpace Exec, CommunicationSpace CommSpace>
Request<CommSpace> recv(Communicator<CommSpace, Exec>& comm, View& view, int peer) {
  return Impl::Recv<View, Exec, CommSpace>::execute(comm, view, peer);
}
template <CommunicationSpace CommSpace, KokkosExecutionSpace Exec, KokkosView SendView, MutKokkosView RecvView>
Request<CommSpace> exchange(Communicator<CommSpace, Exec>& comm, const SendView& send_view, int dst,
                            const RecvView& recv_view, int src) {
  return Impl::Exchange<CommSpace, Exec, SendView, RecvView>::execute(comm, send_view, dst, recv_view, src);
}

}  // namespace KokkosComm
