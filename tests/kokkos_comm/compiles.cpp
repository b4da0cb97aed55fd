// SPDX-License-Identifier: Apache-2.0
// Every public template of the adaptor, instantiated with all its members; nothing of it is run.
#include <sluice/kokkos_comm.hpp>

#include <vector>

namespace {

using sluice::kokkos_comm::CommSpace;
using Exec = Kokkos::DefaultHostExecutionSpace;
using View = Kokkos::View<double**, Kokkos::LayoutLeft, Kokkos::HostSpace>;

}  // namespace

template class KokkosComm::Handle<Exec, CommSpace>;
template class sluice::kokkos_comm::Barriers<Exec>;
template class sluice::kokkos_comm::Channel<Exec>;
static_assert(KokkosComm::CommunicationSpace<CommSpace>);

void use(KokkosComm::Handle<Exec, CommSpace>& handle, View& view) {
  KokkosComm::wait(KokkosComm::send(handle, view, 1));
  KokkosComm::wait(KokkosComm::recv(handle, view, 1));
  std::vector requests{sluice::kokkos_comm::exchange(handle, view, 1, view, 1)};
  KokkosComm::wait_all(requests);
  KokkosComm::barrier(KokkosComm::Handle<Exec, CommSpace>(handle));
  sluice::kokkos_comm::Channel<Exec> channel(handle, 1, 1, 7);
  channel.sendinit(view);
  channel.recvinit(view);
}
