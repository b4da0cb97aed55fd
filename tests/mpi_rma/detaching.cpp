// SPDX-License-Identifier: Apache-2.0
// A thread detaches memory while another one makes accesses: MPI_THREAD_MULTIPLE, on two ranks.
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

using namespace checks;

MPI_Aint place_of_number(const long& number) {
  MPI_Aint address = 0;
  MPI_Get_address(&number, &address);
  return address;
}

bool is_stopped(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.size() > name_end + 2 && text[name_end + 2] == 'T';
}

/// Accesses the memory of rank 0, and stands still then.
void use_and_stop(MPI_Win window) {
  MPI_Aint there = 0;
  MPI_Recv(&there, 1, MPI_AINT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  long found = 0;
  MPI_Get(&found, 1, MPI_LONG, 0, there, 1, MPI_LONG, window);
  MPI_Win_flush(0, window);
  expect_equal(found, 5, "the number of rank 0");
  const int process = getpid();
  MPI_Send(&process, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
  raise(SIGSTOP);
}

/// Detaches what rank 1 has accessed, which has to wait for that rank, and accesses other memory meanwhile.
void detach_beside_accesses(MPI_Win window, long& first, long& second) {
  const MPI_Aint there = place_of_number(first);
  MPI_Send(&there, 1, MPI_AINT, 1, 0, MPI_COMM_WORLD);
  int process = 0;
  MPI_Recv(&process, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  while (!is_stopped(process)) std::this_thread::yield();
  std::thread detaching([&] { expect_equal(MPI_Win_detach(window, &first), MPI_SUCCESS, "detach"); });
  long found = 0;
  // Until the detach has begun. It cannot end: rank 1 stands still.
  while (MPI_Get(&found, 1, MPI_LONG, 0, there, 1, MPI_LONG, window) == MPI_SUCCESS) MPI_Win_flush(0, window);
  for (long i = 0; i < 100; ++i) {
    MPI_Put(&i, 1, MPI_LONG, 0, place_of_number(second), 1, MPI_LONG, window);
    MPI_Win_flush(0, window);
    expect_equal(second, i, "what a thread puts while another one detaches");
  }
  kill(process, SIGCONT);
  detaching.join();
}

}  // namespace

void run_threads_detach() {
  struct alignas(4096) Page {
    long number = 5;
  };
  Page first;
  Page second;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  MPI_Win_attach(window, &first, sizeof first);
  MPI_Win_attach(window, &second, sizeof second);
  MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
  if (world_rank() == 0) {
    detach_beside_accesses(window, first.number, second.number);
  } else if (world_rank() == 1) {
    use_and_stop(window);
  }
  MPI_Win_unlock(0, window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_free(&window);
}
