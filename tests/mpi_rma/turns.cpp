// SPDX-License-Identifier: Apache-2.0
// Turns of accumulates to the same memory: of many elements beside single ones, and of ranks that die.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

using namespace checks;

constexpr int kNumbersOfBlock = 8192;  // a rank at a time changes those of a block
constexpr int kMany = 20000;           // in three blocks

/// Adds 1 to some numbers of rank 0, by one of MPI's calls for it.
void add_some(MPI_Win window, int first, int count, int call) {
  static const std::vector<std::int64_t> ones(kMany, 1);
  std::vector<std::int64_t> before(static_cast<std::size_t>(count));
  if (call == 0) {
    MPI_Get_accumulate(ones.data(), count, MPI_INT64_T, before.data(), count, MPI_INT64_T, 0, first, count, MPI_INT64_T,
                       MPI_SUM, window);
  } else if (call == 1) {
    MPI_Accumulate(ones.data(), count, MPI_INT64_T, 0, first, count, MPI_INT64_T, MPI_SUM, window);
  } else {
    for (int i = first; i < first + count; ++i)
      MPI_Fetch_and_op(ones.data(), before.data(), MPI_INT64_T, 0, i, MPI_SUM, window);
  }
}

/// All ranks add to numbers around the edges of blocks, long accumulates beside single numbers.
void add_around_edges(bool allocate) {
  Shared<std::int64_t> shared(kMany, allocate);
  std::mt19937_64 random(seed() + static_cast<unsigned>(world_rank()));
  std::vector<std::int64_t> added(kMany);
  MPI_Win_lock_all(0, shared.window);
  for (int i = 0; i < 600; ++i) {
    const int edge = kNumbersOfBlock * static_cast<int>(1 + random() % 2);
    const int first = edge - static_cast<int>(random() % 20);
    const bool single = random() % 2 == 0;
    const int count = 1 + static_cast<int>(random() % (single ? 20 : 1000));
    add_some(shared.window, first, count, single ? 2 : static_cast<int>(random() % 2));
    for (int j = first; j < first + count; ++j) ++added[static_cast<std::size_t>(j)];
  }
  MPI_Win_unlock_all(shared.window);
  std::vector<std::int64_t> all(kMany);
  MPI_Allreduce(added.data(), all.data(), kMany, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, world_rank(), 0, shared.window);
  for (int j = 0; world_rank() == 0 && j < kMany; ++j)
    expect_equal(shared.memory[j], all[static_cast<std::size_t>(j)], "the sum at " + std::to_string(j));
  MPI_Win_unlock(world_rank(), shared.window);
}

/// Numbers that begin in one block and end in the next.
void add_across_edges(bool allocate) {
  constexpr int kRounds = 600;
  constexpr int kCount = 3;
  constexpr MPI_Aint kEdge = 8 * kNumbersOfBlock;
  Shared<char> shared(2 * kEdge, allocate);
  const std::vector<std::int64_t> ones(kCount, 1);
  std::vector<std::int64_t> before(kCount);
  MPI_Win_lock_all(0, shared.window);
  for (int i = 0; i < kRounds; ++i) {
    const bool one = i % 3 != 0;  // the first one begins in the block before
    const MPI_Aint at = one ? kEdge - 4 : kEdge - 12;
    const int count = one ? 1 : kCount;
    if (i % 2 == 0) {
      MPI_Accumulate(ones.data(), count, MPI_INT64_T, 0, at, count, MPI_INT64_T, MPI_SUM, shared.window);
    } else {
      MPI_Get_accumulate(ones.data(), count, MPI_INT64_T, before.data(), count, MPI_INT64_T, 0, at, count, MPI_INT64_T,
                         MPI_SUM, shared.window);
    }
  }
  MPI_Win_unlock_all(shared.window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, world_rank(), 0, shared.window);
  const int long_ones = (kRounds + 2) / 3;
  const int expected[] = {long_ones, kRounds, long_ones};
  for (int j = 0; world_rank() == 0 && j < kCount; ++j) {
    std::int64_t sum = 0;
    std::memcpy(&sum, shared.memory + kEdge - 12 + 8 * j, sizeof sum);
    expect_equal(sum, expected[j] * world_size(), "the sum across the edge of a block, " + std::to_string(j));
  }
  MPI_Win_unlock(world_rank(), shared.window);
}

/// A rank that writes into memory which it must not read, while it has the turn.
[[noreturn]] void die_in_a_turn(MPI_Win window) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  std::signal(SIGSEGV, SIG_DFL);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const forbidden = mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  MPI_Accumulate(forbidden, 2, MPI_INT64_T, 0, 0, 2, MPI_INT64_T, MPI_SUM, window);
  std::_Exit(3);  // it has read what it must not
}

/// A page that calls `work` when it is first read.
class Trap {
 public:
  explicit Trap(std::function<void()> work) {
    g_work = std::move(work);
    g_page = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action {};
    action.sa_handler = [](int) {
      if (mprotect(g_page, kPage, PROT_READ | PROT_WRITE) != 0 || !g_work) std::_Exit(3);
      std::exchange(g_work, nullptr)();
    };
    sigaction(SIGSEGV, &action, &before_);
  }
  Trap(const Trap&) = delete;
  Trap& operator=(const Trap&) = delete;
  ~Trap() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(g_page, kPage);
  }
  const void* address() const { return g_page; }

 private:
  static constexpr std::size_t kPage = 4096;
  static inline std::function<void()> g_work;
  static inline void* g_page = nullptr;
  struct sigaction before_ {};
};

[[noreturn]] void end_with(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
  std::_Exit(0);
}

/// Returns once the process is stopped.
void stop(pid_t process) {
  kill(process, SIGSTOP);
  for (std::string word; word != "T";) {
    std::ifstream state("/proc/" + std::to_string(process) + "/stat");
    if (!state) return;  // it has ended
    for (int i = 0; i < 3; ++i) state >> word;
  }
}

/// Adds to numbers of rank 0 until that fails, and then it fails each time. Ends the process.
[[noreturn]] void expect_errors(MPI_Win window, int count) {
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(count), 1);
  const auto add = [&] {
    const int code = MPI_Accumulate(ones.data(), count, MPI_INT64_T, 0, 0, count, MPI_INT64_T, MPI_SUM, window);
    return code == MPI_SUCCESS;
  };
  while (add()) continue;
  int errors = 1;
  while (errors < 10 && !add()) ++errors;
  end_with(std::to_string(errors) + " accumulates have ended in errors");
}

}  // namespace

void run_turns() {
  for (const bool allocate : {true, false}) {
    add_around_edges(allocate);
    add_across_edges(allocate);
  }
}

/// Two ranks raise a flag each, and look at the other one's: one of them at least sees it.
void run_flags() {
  constexpr int kRounds = 20000;
  constexpr int kApart = kNumbersOfBlock;  // in a block with the same turn the second rank would find all of the first
  Shared<std::int64_t> shared(2 * kApart);
  const int self = world_rank() % 2;
  std::vector<unsigned char> seen(kRounds);
  MPI_Win_lock_all(0, shared.window);
  for (std::int64_t round = 1; round <= kRounds; ++round) {
    std::int64_t found = 0;
    MPI_Accumulate(&round, 1, MPI_INT64_T, 0, self * kApart, 1, MPI_INT64_T, MPI_REPLACE, shared.window);
    MPI_Win_flush(0, shared.window);
    MPI_Fetch_and_op(nullptr, &found, MPI_INT64_T, 0, (1 - self) * kApart, MPI_NO_OP, shared.window);
    MPI_Win_flush(0, shared.window);
    seen[static_cast<std::size_t>(round - 1)] = found >= round ? 1 : 0;
    while (found < round) {  // so that both begin the next round at about the same time
      MPI_Fetch_and_op(nullptr, &found, MPI_INT64_T, 0, (1 - self) * kApart, MPI_NO_OP, shared.window);
      MPI_Win_flush(0, shared.window);
    }
  }
  MPI_Win_unlock_all(shared.window);
  std::vector<unsigned char> by_any(kRounds);
  MPI_Allreduce(seen.data(), by_any.data(), kRounds, MPI_UNSIGNED_CHAR, MPI_MAX, MPI_COMM_WORLD);
  expect_equal(std::accumulate(by_any.begin(), by_any.end(), 0), kRounds,
               "rounds in which a rank saw the other's flag");
}

/// Two ranks, of which the second one dies. Ends the process.
void run_lost_turn() {
  const Shared<std::int64_t> shared(2);
  MPI_Win_set_errhandler(shared.window, MPI_ERRORS_RETURN);
  MPI_Win_lock_all(0, shared.window);
  const std::int64_t one = 1;
  MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM,
                 shared.window);  // the next one goes the short way
  if (world_rank() == 1) die_in_a_turn(shared.window);
  expect_errors(shared.window, 1);
}

/// Two ranks, of which the first one dies while the other one changes its memory. Ends the process.
void run_lost_owner() {
  const Shared<std::int64_t> shared(kNumbersOfBlock);
  MPI_Win_set_errhandler(shared.window, MPI_ERRORS_RETURN);
  MPI_Win_lock_all(0, shared.window);
  if (world_rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::_Exit(3);
  }
  expect_errors(shared.window, kNumbersOfBlock);
}

/// Two ranks, of which the first one stands still for longer than SLUICE_TIMEOUT, which the caller sets, while the
/// other one accumulates.
void run_stopped_owner() {
  constexpr std::chrono::seconds kStopped{8};
  const Shared<std::int64_t> shared(1);
  MPI_Win_set_errhandler(shared.window, MPI_ERRORS_RETURN);
  int owner = getpid();
  MPI_Bcast(&owner, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Win_lock_all(0, shared.window);
  const auto add = [&] {
    const std::int64_t one = 1;
    const int code = MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, shared.window);
    if (code != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 4);
  };
  if (world_rank() == 1) {
    add();
    stop(owner);
    std::thread other([&] {
      std::this_thread::sleep_for(kStopped);
      kill(owner, SIGCONT);
    });
    add();
    other.join();
    add();
  }
  MPI_Win_unlock_all(shared.window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 0) expect_equal(shared.memory[0], 3, "the sum");
}

/// Two ranks, of which the first one stands still while the second one, in its turn, has read its numbers and not
/// written them yet: for longer than SLUICE_TIMEOUT, which the caller sets.
void run_late_write() {
  constexpr std::chrono::seconds kStopped{3};
  const Shared<std::int64_t> shared(2);
  MPI_Win_set_errhandler(shared.window, MPI_ERRORS_RETURN);
  int owner = getpid();
  MPI_Bcast(&owner, 1, MPI_INT, 0, MPI_COMM_WORLD);
  const auto add = [&](const void* numbers) {
    return MPI_Accumulate(numbers, 2, MPI_INT64_T, 0, 0, 2, MPI_INT64_T, MPI_SUM, shared.window);
  };
  MPI_Win_lock_all(0, shared.window);
  if (world_rank() == 1) {
    const std::int64_t ones[] = {1, 1};
    expect_equal(add(ones), MPI_SUCCESS, "the first accumulate");
    std::jthread other;
    const Trap operands([&] {
      stop(owner);
      other = std::jthread([&] {
        std::this_thread::sleep_for(kStopped);
        kill(owner, SIGCONT);
      });
    });
    expect(add(operands.address()) != MPI_SUCCESS, "an accumulate whose write is late has ended in an error");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 0) expect_errors(shared.window, 2);
  std::_Exit(0);
}

/// Two ranks, of which the second one dies in an epoch of the first one's memory. Ends the process.
void run_lost_origin() {
  std::int64_t* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_allocate(sizeof *memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&memory), &window);
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group other = MPI_GROUP_NULL;
  const int rank = 1 - world_rank();
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, 1, &rank, &other);
  if (world_rank() == 1) {
    MPI_Win_start(other, 0, window);
    std::_Exit(3);
  }
  MPI_Win_post(other, 0, window);
  if (MPI_Win_wait(window) == MPI_SUCCESS) end_with("no error");
  MPI_Win_free(&window);
  end_with(window == MPI_WIN_NULL ? "a window was freed after the loss of an origin" : "the window was not freed");
}

/// Two ranks, of which the second one dies before a fence. Ends the process.
void run_lost_fence() {
  const Shared<std::int64_t> shared(1);
  MPI_Win_set_errhandler(shared.window, MPI_ERRORS_RETURN);
  MPI_Win_fence(0, shared.window);
  if (world_rank() == 1) std::_Exit(3);
  end_with(MPI_Win_fence(0, shared.window) == MPI_SUCCESS ? "no error" : "a fence has ended in an error");
}
