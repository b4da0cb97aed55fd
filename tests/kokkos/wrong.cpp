// SPDX-License-Identifier: Apache-2.0
// Programs that must not compile, and what the compiler has to say: wrong.py compiles one at a time, WRONG its number.
// None is number 0, which compiles.
#include <sluice/kokkos.hpp>

#include <string>
#include <vector>

#if defined(ASK_FOR_THREADS) && !defined(KOKKOS_ENABLE_THREADS)
#error "this Kokkos has no Threads"
#endif

using namespace sluice;
using sluice::kokkos::Cartesian;
using sluice::kokkos::Halo;
using sluice::kokkos::Messages;
using sluice::kokkos::Queue;

void program(Context& context) {
  const Kokkos::DefaultHostExecutionSpace exec;
  const Cartesian<2> grid{.ranks = {1, 1}, .periodic = {true, true}};
  const Kokkos::View<double**, Kokkos::HostSpace> view("view", 9, 9);
  const Kokkos::View<const double**, Kokkos::HostSpace> constant = view;
  const Kokkos::View<double*, Kokkos::HostSpace> line("line", 9);
  const Kokkos::View<std::string**, Kokkos::HostSpace> strings("strings", 9, 9);
  std::vector<double> matrix(81);  // what else than a View a program has
#if WRONG == 0
  Halo(context, exec, grid, 1, view).exchange();
  Halo(context, Queue(exec), grid, 1, kokkos::HaloOptions<2>{.depth = 1}, view).exchange();
  kokkos::sender(context, exec, 0, 0, constant).put();
  kokkos::sender(context, Queue(exec), 0, 0, view).put();
  Messages messages(context, exec, "messages");
  messages.wait(messages.receive(line, 0));
#elif WRONG == 1   // a View of Kokkos is needed; of an mdspan, its view_of
  Halo(context, exec, grid, 1, matrix).exchange();
#elif WRONG == 2   // a View of Kokkos is needed; of an mdspan, its view_of
  Halo(context, Queue(exec), grid, 1, kokkos::HaloOptions<2>{}, view, matrix).exchange();
#elif WRONG == 3   // an instance of an execution space of Kokkos is needed
  Halo(context, Stream(), grid, 1, view).exchange();
#elif WRONG == 4   // what is received is written: the elements are const
  Halo(context, exec, grid, 1, constant).exchange();
#elif WRONG == 5   // a View of a Halo has at least the grid's dimensions
  Halo(context, exec, grid, 1, line).exchange();
#elif WRONG == 6   // elements are moved as bytes
  Halo(context, exec, grid, 1, strings).exchange();
#elif WRONG == 7   // a Halo takes eight Views at most
  Halo(context, exec, grid, 1, view, view, view, view, view, view, view, view, view).exchange();
#elif WRONG == 8   // a View of Kokkos is needed; of an mdspan, its view_of
  kokkos::sender(context, exec, 0, 0, matrix).put();
#elif WRONG == 9   // an instance of an execution space of Kokkos is needed
  kokkos::receiver(context, 0, 0, 0, view).wait();
#elif WRONG == 10  // what is received is written: the elements are const
  kokkos::receiver(context, exec, 0, 0, constant).wait();
#elif WRONG == 11  // elements are moved as bytes
  kokkos::sender(context, exec, 0, 0, strings).put();
#elif WRONG == 12  // what is received is written: the elements are const
  Messages<Kokkos::DefaultHostExecutionSpace> messages(context, exec, "messages");
  messages.wait(messages.receive(constant, 0));
#elif WRONG == 13  // a Queue is made from an instance of an execution space of Kokkos
  Messages messages(context, 4, "messages");
#elif WRONG == 14  // with Threads: Kokkos' Threads cannot run on the thread of a HostStream
  HostStream stream;
  const Queue<Kokkos::Threads> queue(Kokkos::Threads(), stream);
#endif
}
