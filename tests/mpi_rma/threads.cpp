// SPDX-License-Identifier: Apache-2.0
// Several threads of a rank use windows at the same time: MPI_THREAD_MULTIPLE.
#include <barrier>
#include <cstdint>
#include <random>
#include <thread>

#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

using namespace checks;

constexpr int kThreads = 3;
constexpr int kSteps = 150;

/// Runs `work(thread, random)` on so many threads, and counts their failures.
template <class Work>
void on_threads(Work work) {
  int level = 0;
  MPI_Query_thread(&level);
  if (level != MPI_THREAD_MULTIPLE) return expect(false, "MPI has no MPI_THREAD_MULTIPLE");
  const unsigned first = seed() + static_cast<unsigned>(world_rank()) * kThreads;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&work, i, first] {
      std::minstd_rand random(first + static_cast<unsigned>(i));
      work(i, random);
    });
  for (std::thread& thread : threads) thread.join();
}

int any_rank(std::minstd_rand& random) { return static_cast<int>(random() % static_cast<unsigned>(world_size())); }

/// The numbers of a thread in a window at one rank: those of thread t of rank r are its own.
constexpr int kPlaces = 4;
int place_of(int rank, int thread, int which) { return 1 + (rank * kThreads + thread) * kPlaces + which; }
int window_size() { return place_of(world_size(), 0, 0); }

/// A thread's puts, gets and sums in a window whose ranks are all locked. Number 0 of each rank counts all sums.
void use(MPI_Win window, int thread, std::minstd_rand& random, std::vector<long>& added) {
  std::vector<long> there(static_cast<std::size_t>(world_size() * kPlaces));
  const long one = 1;
  for (int step = 0; step < kSteps; ++step) {
    const int rank = any_rank(random);
    const auto which = static_cast<int>(random() % kPlaces);
    const int place = place_of(world_rank(), thread, which);
    long& known = there[static_cast<std::size_t>(rank) * kPlaces + static_cast<std::size_t>(which)];
    long found = 0;
    switch (random() % 5) {
      case 0:
        known = static_cast<long>(random());
        MPI_Put(&known, 1, MPI_LONG, rank, place, 1, MPI_LONG, window);
        MPI_Win_flush(rank, window);
        break;
      case 1:
        MPI_Get(&found, 1, MPI_LONG, rank, place, 1, MPI_LONG, window);
        MPI_Win_flush(rank, window);
        expect_equal(found, known, "what a thread has put");
        break;
      case 2:
        MPI_Fetch_and_op(&one, &found, MPI_LONG, rank, 0, MPI_SUM, window);
        MPI_Win_flush_local(rank, window);
        ++added[static_cast<std::size_t>(rank)];
        break;
      case 3:
        MPI_Accumulate(&one, 1, MPI_LONG, rank, 0, 1, MPI_LONG, MPI_SUM, window);
        ++added[static_cast<std::size_t>(rank)];
        break;
      default: {
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Rget(&found, 1, MPI_LONG, rank, place, 1, MPI_LONG, window, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect_equal(found, known, "what a request has got");
      }
    }
  }
  MPI_Win_flush_all(window);
}

/// The sum of all threads of all ranks is in number 0 of each rank.
void check_sums(const std::vector<std::vector<long>>& added, long* own, MPI_Win window) {
  std::vector<long> mine(static_cast<std::size_t>(world_size()));
  for (const auto& one : added)
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += one[i];
  std::vector<long> all(mine.size());
  MPI_Allreduce(mine.data(), all.data(), world_size(), MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, world_rank(), 0, window);
  expect_equal(own[0], all[static_cast<std::size_t>(world_rank())], "the sum of all threads");
  MPI_Win_unlock(world_rank(), window);
  MPI_Barrier(MPI_COMM_WORLD);
}

std::vector<std::vector<long>> no_sums() {
  return {kThreads, std::vector<long>(static_cast<std::size_t>(world_size()))};
}

}  // namespace

void run_threads_one_window() {
  for (const bool allocate : {true, false}) {
    const Shared<long> shared(window_size(), allocate);
    auto added = no_sums();
    MPI_Win_lock_all(0, shared.window);
    on_threads([&](int thread, std::minstd_rand& random) {
      use(shared.window, thread, random, added[static_cast<std::size_t>(thread)]);
    });
    MPI_Win_unlock_all(shared.window);
    MPI_Barrier(MPI_COMM_WORLD);
    check_sums(added, shared.memory, shared.window);
  }
}

void run_threads_many_windows() {
  std::vector<std::unique_ptr<Shared<long>>> windows;
  for (int i = 0; i < kThreads; ++i) windows.push_back(std::make_unique<Shared<long>>(window_size(), i % 2 == 0));
  auto added = no_sums();
  on_threads([&](int thread, std::minstd_rand& random) {
    const auto i = static_cast<std::size_t>(thread);
    MPI_Win_lock_all(0, windows[i]->window);
    use(windows[i]->window, thread, random, added[i]);
    MPI_Win_unlock_all(windows[i]->window);
  });
  MPI_Barrier(MPI_COMM_WORLD);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    auto one = no_sums();
    one[0] = added[i];
    check_sums(one, windows[i]->memory, windows[i]->window);
  }
}

namespace {

/// Two numbers at a rank are equal under any lock.
void expect_equal_numbers(int rank, long (&both)[2], MPI_Win window) {
  MPI_Get(&both[0], 2, MPI_LONG, rank, 0, 2, MPI_LONG, window);
  MPI_Win_flush(rank, window);
  expect_equal(both[0], both[1], "two numbers under a lock");
}

/// Adds 1 to both, under an exclusive lock.
void add_to_both(int rank, MPI_Win window) {
  long both[2] = {};
  expect_equal_numbers(rank, both, window);
  ++both[0];
  MPI_Put(&both[0], 1, MPI_LONG, rank, 0, 1, MPI_LONG, window);
  MPI_Win_flush(rank, window);
  MPI_Put(&both[0], 1, MPI_LONG, rank, 1, 1, MPI_LONG, window);
}

constexpr int kTurnsOfLocks = 40;

/// A rank that no other thread of this rank locks, or none.
int rank_of_thread(int thread, std::minstd_rand& random) {
  const int rank = kThreads * static_cast<int>(random() % 2) + thread;
  return rank < world_size() ? rank : -1;
}

}  // namespace

/// Each thread locks ranks that no other thread of its rank locks at the time; an exclusive lock protects two numbers.
void run_threads_locks() {
  const Shared<long> shared(2);
  const MPI_Win window = shared.window;
  auto added = no_sums();
  on_threads([&](int thread, std::minstd_rand& random) {
    for (int i = 0; i < kTurnsOfLocks; ++i) {
      const int rank = rank_of_thread(thread, random);
      if (rank < 0) continue;
      const bool alone = random() % 3 != 0;
      long both[2] = {};
      MPI_Win_lock(alone ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, rank, 0, window);
      if (alone) {
        add_to_both(rank, window);
        ++added[static_cast<std::size_t>(thread)][static_cast<std::size_t>(rank)];
      } else {
        expect_equal_numbers(rank, both, window);
      }
      MPI_Win_unlock(rank, window);
    }
  });
  MPI_Barrier(MPI_COMM_WORLD);
  check_sums(added, shared.memory, window);
}

/// Threads of all ranks but the last lock ranks alone. The last one locks all for the first time meanwhile.
void run_threads_first_lock_all() {
  for (int windows = 0; windows < 5; ++windows) {
    const Shared<long> shared(2);
    const MPI_Win window = shared.window;
    auto added = no_sums();
    const auto lock_all = [&] {
      long both[2] = {};
      MPI_Win_lock_all(0, window);
      for (int rank = 0; rank < world_size(); ++rank) expect_equal_numbers(rank, both, window);
      MPI_Win_unlock_all(window);
    };
    on_threads([&](int thread, std::minstd_rand& random) {
      const bool last = world_rank() == world_size() - 1;
      for (int i = 0; i < kTurnsOfLocks; ++i) {
        if (last && thread == 0) lock_all();
        const int rank = last ? -1 : rank_of_thread(thread, random);
        if (rank < 0) continue;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
        add_to_both(rank, window);
        ++added[static_cast<std::size_t>(thread)][static_cast<std::size_t>(rank)];
        MPI_Win_unlock(rank, window);
      }
    });
    MPI_Barrier(MPI_COMM_WORLD);
    check_sums(added, shared.memory, window);
  }
}

/// Threads make and free windows of communicators of their own, and attach memory, while the others use theirs.
void run_threads_make() {
  std::vector<MPI_Comm> comms(kThreads);
  for (MPI_Comm& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  on_threads([&](int thread, std::minstd_rand&) {
    const MPI_Comm comm = comms[static_cast<std::size_t>(thread)];
    for (int i = 0; i < 5; ++i) {
      long* memory = nullptr;
      long number = 0;
      MPI_Win window = MPI_WIN_NULL;
      MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &window);
      MPI_Win_attach(window, &number, sizeof number);
      MPI_Aint there = 0;
      MPI_Get_address(&number, &there);
      MPI_Bcast(&there, 1, MPI_AINT, 0, comm);
      MPI_Win other = MPI_WIN_NULL;
      MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, comm, static_cast<void*>(&memory), &other);
      *memory = 0;
      MPI_Win_fence(0, other);
      const long one = 1;
      MPI_Accumulate(&one, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, other);
      MPI_Win_fence(MPI_MODE_NOSUCCEED, other);
      MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
      MPI_Accumulate(&one, 1, MPI_LONG, 0, there, 1, MPI_LONG, MPI_SUM, window);
      MPI_Win_unlock(0, window);
      MPI_Barrier(comm);
      if (world_rank() == 0) {
        expect_equal(*memory, world_size(), "a sum in a window of a thread");
        expect_equal(number, world_size(), "a sum in attached memory of a thread");
      }
      MPI_Barrier(comm);
      MPI_Win_detach(window, &number);
      MPI_Win_free(&window);
      MPI_Win_free(&other);
    }
  });
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
}

/// Threads use a type for the first time at once, each in a window of its own.
void run_threads_first_use() {
  constexpr int kBlocks = 20000;  // so many that a thread still uses them when another one has found them too
  constexpr int kTypes = 20;
  std::vector<int> places(kBlocks);
  for (int i = 0; i < kBlocks; ++i) places[static_cast<std::size_t>(i)] = 2 * i;
  std::vector<int> source(2 * kBlocks);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<int>(i);
  std::vector<std::unique_ptr<Shared<int>>> windows;
  for (int i = 0; i < kThreads; ++i) windows.push_back(std::make_unique<Shared<int>>(2 * kBlocks));
  MPI_Datatype type = MPI_DATATYPE_NULL;
  std::barrier all(kThreads);
  on_threads([&](int thread, std::minstd_rand&) {
    const Shared<int>& shared = *windows[static_cast<std::size_t>(thread)];
    for (int k = 0; k < kTypes; ++k) {
      if (thread == 0) {
        MPI_Type_create_indexed_block(kBlocks, 1, places.data(), MPI_INT, &type);
        MPI_Type_commit(&type);
      }
      all.arrive_and_wait();
      MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, shared.window);
      MPI_Put(source.data(), 1, type, 0, 0, 1, type, shared.window);
      MPI_Win_unlock(0, shared.window);
      bool put = true;
      for (int i = 0; i < 2 * kBlocks; ++i) {
        put = put && shared.memory[i] == (i % 2 == 0 ? i : 0);
        shared.memory[i] = 0;
      }
      expect(put, "what was put with a type that is new");
      all.arrive_and_wait();
      if (thread == 0) MPI_Type_free(&type);
    }
  });
}
