// SPDX-License-Identifier: Apache-2.0
// Calls that fail at one rank alone: the other ranks, and later calls, go on. Also other checks that need the
// sources of the library.
#include <sluice/mpi_rma.h>
#include <sluice/error.hpp>
#include <sluice/run.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rma/mpi/areas.hpp"
#include "rma/mpi/control.hpp"
#include "rma/mpi/meeting.hpp"
#include "rma/mpi/rma_window.hpp"
#include "rma/mpi/windows.hpp"
#include "tests/faults/wrapped.hpp"
#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

using namespace checks;
using namespace sluice;

namespace {

void expect_error(auto call, const std::string& what) {
  try {
    call();
  } catch (const std::exception&) {
    return;
  }
  expect(false, what + " has ended in no error");
}

/// The memory of two ranks, both of which are this process, over a backend that maps nothing.
struct TwoAreas {
  static constexpr int kBytes = 1000;
  explicit TwoAreas(Context& context) : control(context), areas(context, control, parts) {
    for (std::uint64_t number = 1; number <= 2; ++number) {
      memory.push_back(context.allocate(kBytes));
      windows.push_back(context.window(mpi_rma::memory_name(number), memory.back().all()));
      mpi_rma::Part& part = parts.emplace_back();
      part.bytes = kBytes;
      part.number = number;
    }
  }
  void write(int rank, std::byte value) {
    const std::vector<std::byte> bytes(kBytes, value);
    areas.write(rank, 0, bytes.data(), bytes.size(), false);
  }
  /// The write fails, and its bytes are under way until `test::hold(false)`.
  void write_late(int rank, std::byte value) {
    test::hold(true);
    test::fail_accesses(true);
    try {
      write(rank, value);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): it is posted already
    }
    expect_error([&] { areas.drain_all(); }, "a drain behind a write that fails");
    test::fail_accesses(false);
  }

  mpi_rma::Control control;
  std::vector<Memory> memory;
  std::vector<Window> windows;
  std::vector<mpi_rma::Part> parts;
  mpi_rma::Areas areas;
};

void run_apart(const Body& body) {
  Options options;
  options.backends = "apart";
  options.connect_timeout = std::chrono::seconds(1);  // the limit of closing
  expect_equal(run_threads(1, body, options), 0, "the code of a context");
}

}  // namespace

/// No other access uses the memory of one that is late.
void run_late_access() {
  run_apart([](Context& context) {
    TwoAreas two(context);
    two.write_late(0, std::byte{1});
    two.write(1, std::byte{2});
    test::hold(false);
    auto* const last = reinterpret_cast<unsigned char*>(two.memory[0].data() + TwoAreas::kBytes - 1);
    while (std::atomic_ref(*last).load() == 0) std::this_thread::yield();
    expect_equal(*last, 1, "a byte of the late access");
  });
}

/// Two targets, the first of which cannot be closed.
void run_late_close() {
  run_apart([](Context& context) {
    TwoAreas two(context);
    two.write(1, std::byte{1});
    two.areas.drain_all();
    two.write_late(0, std::byte{2});
    expect_error([&] { two.areas.close(); }, "a close before a write has completed");
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);  // far too long
    const auto open = [&] { return two.windows[1].describe().find(" 0 targets") == std::string::npos; };
    while (open() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    expect(!open(), "the second target is open");
    test::hold(false);
  });
}

/// The first wait of a meeting fails, and later a signal.
void run_failed_meeting() {
  run_apart([](Context& context) {
    mpi_rma::Control control(context);
    std::array<mpi_rma::Member, 4> members;
    for (mpi_rma::Member& member : members) member.place = control.take(mpi_rma::Meeting::kWords);
    mpi_rma::Meeting meeting(control, 0, 0, 4);
    const auto meet = [&](bool fails) {
      const auto await = [&](auto) {
        if (std::exchange(fails, false)) throw std::runtime_error("a wait");
      };
      meeting.meet([&](int i) { return members[static_cast<std::size_t>(i)]; }, await);
    };
    const auto expect_signals = [&](std::size_t round, std::uint64_t turn) {
      const std::uint64_t* const words = control.own(members[std::size_t{1} << round].place);
      expect_equal(words[round], turn, "the signals of round " + std::to_string(round));
    };
    for (std::uint64_t turn = 1; turn <= 2; ++turn) {
      expect_error([&] { meet(true); }, "a meeting with a wait that fails");
      expect_signals(0, turn);
      expect_signals(1, turn);
    }
    members[1].rank = 99;
    expect_error([&] { meet(false); }, "a meeting with a rank that there is not");
    expect_signals(1, 3);
    members[1].rank = 0;
    meet(false);
    expect_signals(0, 4);
    control.close_lines();  // none is open to the rank that there is not
  });
}

/// A rank alone, whose accesses are `posted`.
void run_failed_fence() {
  const Shared<char> shared(100);
  MPI_Win_set_errhandler(shared.window, MPI_ERRORS_RETURN);
  const std::vector<char> bytes(100, 'x');
  MPI_Win_fence(0, shared.window);
  test::fail_accesses(true);
  MPI_Put(bytes.data(), 100, MPI_CHAR, 0, 0, 100, MPI_CHAR, shared.window);
  expect(MPI_Win_fence(MPI_MODE_NOSUCCEED, shared.window) != MPI_SUCCESS, "a fence behind a put that fails");
  test::fail_accesses(false);
  expect_equal(class_of(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, shared.window)), MPI_SUCCESS, "a lock after that fence");
  MPI_Win_unlock(0, shared.window);
}

/// A window of a program whose threads call MPI.
void run_threads_take_turns() {
  const Shared<char> shared(1);
  expect(mpi_rma::find_window(shared.window)->mutex.needed(), "calls of several threads run at once");
}

/// Two ranks, the first of which cannot read the other one's number of counters.
void run_failed_counters() {
  const Shared<char> shared(1);
  MPI_Win_set_errhandler(shared.window, MPI_ERRORS_RETURN);
  mpi_rma::RmaWindow& window = *mpi_rma::find_window(shared.window);
  mpi_rma::Part& own = window.parts[static_cast<std::size_t>(window.rank)];
  const Rank rank = own.rank;
  if (world_rank() == 0) own.rank = 99;  // it reads its own number, too
  const int code = MPI_Win_set_num_notify(shared.window, MPI_INFO_NULL, 1);
  own.rank = rank;
  expect_equal(code == MPI_SUCCESS, world_rank() == 1, "the call with a rank that there is not has succeeded");
  if (world_rank() == 1) return;
  const mpi_rma::Part& other = window.parts[1];
  const auto signals = window.job->control.read(other.rank, other.place, mpi_rma::Epochs::kMeeting, 1).front();
  // One of the window's making, and one of the call.
  if (signals != 2) MPI_Abort(MPI_COMM_WORLD, 4);  // the other rank waits for ever
}
