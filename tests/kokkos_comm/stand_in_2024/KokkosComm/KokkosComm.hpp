// SPDX-License-Identifier: Apache-2.0
// Stand-in for KokkosComm b153676: the templates that a communication space specialises, and the functions that call
// them.
#pragma once

#include <Kokkos_Core.hpp>

#include <type_traits>
#include <utility>

namespace KokkosComm {

namespace Impl {
template <class T>
struct is_communication_space : std::false_type {};
}  // namespace Impl

template <class T>
concept KokkosView = Kokkos::is_view_v<T>;
template <class T>
concept KokkosExecutionSpace = Kokkos::is_execution_space_v<T>;
template <class T>
concept CommunicationSpace = Impl::is_communication_space<T>::value;

struct Mpi {};
template <>
struct Impl::is_communication_space<Mpi> : std::true_type {};

template <CommunicationSpace CommSpace = Mpi>
class Req;
template <KokkosExecutionSpace Exec = Kokkos::DefaultExecutionSpace, CommunicationSpace CommSpace = Mpi>
class Handle;

namespace Impl {
template <KokkosView View, KokkosExecutionSpace Exec = Kokkos::DefaultExecutionSpace,
          CommunicationSpace CommSpace = Mpi>
struct Recv;
template <KokkosView View, KokkosExecutionSpace Exec = Kokkos::DefaultExecutionSpace,
          CommunicationSpace CommSpace = Mpi>
struct Send;
template <KokkosExecutionSpace Exec = Kokkos::DefaultExecutionSpace, CommunicationSpace CommSpace = Mpi>
struct Barrier;
}  // namespace Impl

template <KokkosView View, KokkosExecutionSpace Exec = Kokkos::DefaultExecutionSpace,
          CommunicationSpace CommSpace = Mpi>
Req<CommSpace> recv(Handle<Exec, CommSpace>& handle, View& view, int src) {
  return Impl::Recv<View, Exec, CommSpace>::execute(handle, view, src);
}
template <KokkosView View, KokkosExecutionSpace Exec = Kokkos::DefaultExecutionSpace,
          CommunicationSpace CommSpace = Mpi>
Req<CommSpace> send(Handle<Exec, CommSpace>& handle, View& view, int dest) {
  return Impl::Send<View, Exec, CommSpace>::execute(handle, view, dest);
}
template <KokkosExecutionSpace Exec = Kokkos::DefaultExecutionSpace, CommunicationSpace CommSpace = Mpi>
void barrier(Handle<Exec, CommSpace>&& handle) {
  Impl::Barrier<Exec, CommSpace>{std::forward<Handle<Exec, CommSpace>>(handle)};
}

}  // namespace KokkosComm
