// SPDX-License-Identifier: Apache-2.0
// For programs of stream MPI that wait by plain MPI alone.
#pragma once

#include <mpi.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace stream_mpi_test {

constexpr int kPlain = 3;  // no tag of a request, which a match uses

inline void tell(int peer) {
  const int word = 1;
  MPI_Send(&word, 1, MPI_INT, peer, kPlain, MPI_COMM_WORLD);
}

/// Returns once `ready()`. A program that hangs is the failure: this one ends.
template <class Ready>
void await_or_abort(Ready ready) {
  constexpr auto kMost = std::chrono::seconds(40);  // above SLUICE_TIMEOUT of tests that wait for its end
  const auto end = std::chrono::steady_clock::now() + kMost;
  while (!ready()) {
    if (std::chrono::steady_clock::now() < end) continue;
    std::fprintf(stderr, "nothing moves while a program waits\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

inline void await_answer(int peer) {
  int word = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(&word, 1, MPI_INT, peer, kPlain, MPI_COMM_WORLD, &request);
  await_or_abort([&] {
    int arrived = 0;
    MPI_Test(&request, &arrived, MPI_STATUS_IGNORE);
    return arrived != 0;
  });
}

// The part of a core that a process may use that wakes now and then.
constexpr double kIdle = 0.03;

/// The part of a core that this process uses while its main thread sleeps.
inline double load_while_asleep() {
  const auto used = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  constexpr auto kLong = std::chrono::milliseconds(500);
  std::this_thread::sleep_for(kLong / 5);  // threads that spin or yield before they sleep
  const double before = used();
  const auto began = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(kLong);
  return (used() - before) / std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// The least of some tries: beside other programs a wake may cost more.
inline double least_load_while_asleep() {
  double least = 1;
  for (int tries = 0; tries < 5 && least >= kIdle; ++tries) least = std::min(least, load_while_asleep());
  return least;
}

/// Folders in /proc of the threads that run host streams: the background's is one of them.
inline std::vector<std::filesystem::path> threads_of_streams() {
  std::vector<std::filesystem::path> all;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == "sluice-stream") all.push_back(task.path());
  }
  return all;
}

}  // namespace stream_mpi_test
