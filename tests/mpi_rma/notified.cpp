// SPDX-License-Identifier: Apache-2.0
// Notifications (MPI Forum, issue 59), and waits for them on streams.
#include <sluice/c/types.h>
#include <sluice/mpi_rma.h>

#include <atomic>
#include <climits>
#include <cstring>
#include <numeric>
#include <thread>

#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

using namespace checks;

constexpr int kCount = 16384;

int next() { return (world_rank() + 1) % world_size(); }
int before() { return (world_rank() + world_size() - 1) % world_size(); }

/// A window of `kCount` ints with `counters` counters at this rank; `kind`: made by allocate, create or
/// allocate_shared.
class Notified {
 public:
  explicit Notified(int counters, int kind = 0, MPI_Info info = MPI_INFO_NULL) : own_(kind == 1 ? kCount : 0) {
    constexpr MPI_Aint kBytes = kCount * sizeof(int);
    memory = own_.data();
    if (kind == 0) MPI_Win_allocate(kBytes, sizeof(int), info, MPI_COMM_WORLD, static_cast<void*>(&memory), &window);
    if (kind == 1) MPI_Win_create(memory, kBytes, sizeof(int), info, MPI_COMM_WORLD, &window);
    if (kind == 2)
      MPI_Win_allocate_shared(kBytes, sizeof(int), info, MPI_COMM_WORLD, static_cast<void*>(&memory), &window);
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    std::memset(memory, 0, kBytes);
    if (counters > 0) expect_equal(MPI_Win_set_num_notify(window, MPI_INFO_NULL, counters), MPI_SUCCESS, "set");
    MPI_Barrier(MPI_COMM_WORLD);
  }
  Notified(const Notified&) = delete;
  Notified& operator=(const Notified&) = delete;
  ~Notified() {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&window);
  }

  MPI_Count value(int counter) const {
    MPI_Count found = -1;
    MPI_Win_get_notify_value(window, counter, &found);
    return found;
  }
  /// Ends without it if the counter fails.
  void await(int counter, MPI_Count least) const {
    MPI_Count found = 0;
    int code = MPI_SUCCESS;
    while (code == MPI_SUCCESS && found < least) code = MPI_Win_get_notify_value(window, counter, &found);
    expect_equal(code, MPI_SUCCESS, "a counter");
  }

  int* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;

 private:
  std::vector<int> own_;
};

void is(int code, int expected, const char* what) {
  int error_class = MPI_SUCCESS;
  MPI_Error_class(code, &error_class);
  expect_equal(error_class, expected, what);
  if (expected == MPI_ERR_RMA_NOTIFICATION) expect_equal(code, expected, what);  // programs compare it so
}

/// Each rank writes to its neighbour, which looks as soon as it is notified.
void check_order(const Notified& notified, int rounds) {
  std::vector<int> source(kCount);
  for (int i = 1; i <= rounds; ++i) {
    std::iota(source.begin(), source.end(), i * 1000 + world_rank());
    MPI_Put_notify(source.data(), kCount, MPI_INT, next(), 0, kCount, MPI_INT, 0, notified.window);
    notified.await(0, i);
    int wrong = 0;
    for (int j = kCount - 1; j >= 0; --j) wrong += notified.memory[j] != i * 1000 + before() + j ? 1 : 0;
    expect_equal(wrong, 0, "numbers that a notified put had not written");
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

/// Every operation moves what it moves without a notification, and notifies once.
void check_operations(const Notified& notified) {
  const MPI_Win window = notified.window;
  const int one = 1;
  int got = -1;
  MPI_Request request = MPI_REQUEST_NULL;
  const auto finish = [&] { MPI_Wait(&request, MPI_STATUS_IGNORE); };
  MPI_Put_notify(&one, 1, MPI_INT, next(), 0, 1, MPI_INT, 1, window);
  MPI_Accumulate_notify(&one, 1, MPI_INT, next(), 0, 1, MPI_INT, MPI_SUM, 1, window);
  MPI_Get_accumulate_notify(&one, 1, MPI_INT, &got, 1, MPI_INT, next(), 0, 1, MPI_INT, MPI_SUM, 1, window);
  MPI_Get_notify(&got, 1, MPI_INT, next(), 0, 1, MPI_INT, 1, window);
  MPI_Win_flush(next(), window);
  expect_equal(got, 3, "what a notified get read");
  MPI_Rput_notify(&one, 1, MPI_INT, next(), 1, 1, MPI_INT, 1, window, &request);
  finish();
  MPI_Raccumulate_notify(&one, 1, MPI_INT, next(), 1, 1, MPI_INT, MPI_SUM, 1, window, &request);
  finish();
  MPI_Rget_accumulate_notify(&one, 1, MPI_INT, &got, 1, MPI_INT, next(), 1, 1, MPI_INT, MPI_SUM, 1, window, &request);
  finish();
  expect_equal(got, 2, "before a sum with a request");
  MPI_Rget_notify(&got, 1, MPI_INT, next(), 1, 1, MPI_INT, 1, window, &request);
  finish();
  expect_equal(got, 3, "a get with a request");
  MPI_Put_notify(nullptr, 0, MPI_INT, next(), 0, 0, MPI_INT, 1, window);
  MPI_Put_notify(&one, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, 1, window);
  MPI_Put_notify_c(&one, 1, MPI_INT, next(), 2, 1, MPI_INT, 1, window);
  MPI_Rget_accumulate_notify_c(&one, 1, MPI_INT, &got, 1, MPI_INT, next(), 2, 1, MPI_INT, MPI_NO_OP, 1, window,
                               &request);
  finish();
  notified.await(1, 11);
  MPI_Barrier(MPI_COMM_WORLD);
  expect_equal(notified.value(1), 11, "operations that notify");
  expect_equal(notified.value(0), 0, "a counter of nobody");
  expect_equal(notified.memory[0] + notified.memory[1] + notified.memory[2], 7, "what they have written");
}

int number_of(MPI_Win window, int rank) {
  int number = -1;
  MPI_Win_get_num_notify(window, rank, &number);
  return number;
}

MPI_Info promise(const char* value) {
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "mpi_assert_max_num_notify", value);
  return info;
}

std::string promised(MPI_Win window) {
  MPI_Info info = MPI_INFO_NULL;
  MPI_Win_get_info(window, &info);
  char value[32] = "none";
  int length = sizeof value;
  int flag = 0;
  MPI_Info_get_string(info, "mpi_assert_max_num_notify", &length, value, &flag);
  MPI_Info_free(&info);
  return value;
}

}  // namespace

void run_notified() {
  for (const int kind : {0, 1, 2}) {
    Notified notified(2, kind);
    MPI_Win_lock_all(0, notified.window);
    check_operations(notified);
    MPI_Win_unlock_all(notified.window);
  }
}

void run_notified_order() {
  for (const int kind : {0, 1, 2}) {
    Notified notified(1, kind);
    MPI_Win_lock_all(0, notified.window);
    check_order(notified, 30);
    MPI_Win_unlock_all(notified.window);
  }
}

/// All ranks notify rank 0, which resets its counter again and again.
void run_notified_resets() {
  constexpr int kNotified = 500;
  Notified notified(1);
  MPI_Win_lock_all(0, notified.window);
  const int one = 1;
  MPI_Count sum = 0;
  const auto reset = [&] {
    MPI_Count taken = -1;
    MPI_Win_reset_notify_value(notified.window, 0, &taken);
    sum += taken;
  };
  for (int i = 0; i < kNotified; ++i) {
    MPI_Put_notify(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, 0, notified.window);
    if (world_rank() == 0) reset();
  }
  MPI_Win_unlock_all(notified.window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 0) {
    reset();
    expect_equal(sum, kNotified * world_size(), "notifications that resets have taken");
    expect_equal(notified.value(0), 0, "a counter after a reset");
  }
}

void run_notified_numbers() {
  Notified notified(2 + world_rank());
  const MPI_Win window = notified.window;
  const auto check_numbers = [&](int first, const char* what) {
    for (int i = 0; i < world_size(); ++i) expect_equal(number_of(window, i), first + i, what);
  };
  check_numbers(2, "counters of a rank");
  const int one = 1;
  MPI_Win_lock_all(0, window);
  is(MPI_Put_notify(&one, 1, MPI_INT, next(), 0, 1, MPI_INT, 1 + next(), window), MPI_SUCCESS, "the last counter");
  is(MPI_Put_notify(&one, 1, MPI_INT, next(), 1, 1, MPI_INT, 2 + next(), window), MPI_ERR_RMA_NOTIFICATION,
     "a counter that the target does not have");
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  expect_equal(notified.value(1 + world_rank()), 1, "the last counter");
  expect_equal(notified.memory[1], 0, "memory that a refused put was to write");
  MPI_Barrier(MPI_COMM_WORLD);
  const int bad = world_rank() == world_size() - 1 ? -1 : 100;
  is(MPI_Win_set_num_notify(window, MPI_INFO_NULL, bad), MPI_ERR_ARG, "a number of one rank that is none");
  check_numbers(2, "counters after a call that failed");
  expect_equal(notified.value(1 + world_rank()), 1, "a count after a call that failed");
  is(MPI_Win_set_num_notify(window, MPI_INFO_NULL, 4001), MPI_ERR_ARG, "too many counters");
  is(MPI_Win_set_num_notify(window, MPI_INFO_NULL, 0), MPI_SUCCESS, "fewer counters");
  check_numbers(2, "counters are never fewer");
  expect_equal(notified.value(1 + world_rank()), 0, "a count that was set anew");
  is(MPI_Win_set_num_notify(window, MPI_INFO_NULL, 300 + world_rank()), MPI_SUCCESS, "more counters");
  MPI_Win_lock_all(0, window);
  MPI_Put_notify(&one, 1, MPI_INT, next(), 0, 1, MPI_INT, 299 + next(), window);
  MPI_Win_unlock_all(window);
  notified.await(299 + world_rank(), 1);
  check_numbers(300, "more counters");
}

void run_notified_promises() {
  for (const int kind : {0, 2}) {
    MPI_Info info = promise("8");
    Notified notified(0, kind, info);
    MPI_Info_free(&info);
    const MPI_Win window = notified.window;
    expect_equal(number_of(window, next()), 8, "counters that were promised");
    expect(promised(window) == "8", "the promise, as MPI_Win_get_info has it");
    expect_equal(attribute<int>(window, MPI_WIN_NOTIFICATION_NUM_SB), 8, "a suggestion");
    expect_equal(attribute<int>(window, MPI_WIN_NOTIFICATION_NUM_UB), 8, "the most that were promised");
    is(MPI_Win_set_num_notify(window, MPI_INFO_NULL, 9), MPI_ERR_ARG, "more than promised");
    is(MPI_Win_set_num_notify(window, MPI_INFO_NULL, 8), MPI_SUCCESS, "as many as promised");
  }
  Notified notified(0);
  expect_equal(number_of(notified.window, 0), 0, "counters of a new window");
  MPI_Info late = promise("1000");
  MPI_Win_set_info(notified.window, late);
  MPI_Info_free(&late);
  expect(promised(notified.window) == "0", "MPI_Win_set_info promises nothing");
  expect(attribute<int>(notified.window, MPI_WIN_NOTIFICATION_NUM_SB) > 0, "a suggestion without a promise");
  const int most = attribute<int>(notified.window, MPI_WIN_NOTIFICATION_NUM_UB);
  is(MPI_Win_set_num_notify(notified.window, MPI_INFO_NULL, most + 1), MPI_ERR_ARG, "more than the most");
  is(MPI_Win_set_num_notify(notified.window, MPI_INFO_NULL, most), MPI_SUCCESS, "the most");
  expect(attribute<MPI_Count>(notified.window, MPI_WIN_NOTIFICATION_VALUE_UB) > INT_MAX, "the largest count");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (const bool shared : {false, true}) {
    MPI_Info info = promise(world_rank() == 0 ? "8x" : "8");
    MPI_Win window = MPI_WIN_NULL;
    int* memory = nullptr;
    const auto make = shared ? MPI_Win_allocate_shared : MPI_Win_allocate;
    is(make(64, 4, info, MPI_COMM_WORLD, static_cast<void*>(&memory), &window), MPI_ERR_INFO_VALUE, "a promise of 8x");
    MPI_Info_free(&info);
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

namespace {

/// Makes each of the calls with an argument that MPI refuses.
void check_refused(MPI_Win window, int rank) {
  const int one = 1;
  int old = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  is(MPI_Put_notify(&one, -1, MPI_INT, rank, 0, 1, MPI_INT, 0, window), MPI_ERR_COUNT, "a put");
  is(MPI_Get_notify(&old, 1, MPI_INT, rank, 0, -1, MPI_INT, 0, window), MPI_ERR_COUNT, "a get");
  is(MPI_Accumulate_notify(&one, 1, MPI_INT, rank, 0, 1, MPI_INT, MPI_OP_NULL, 0, window), MPI_ERR_OP, "a change");
  is(MPI_Get_accumulate_notify(&one, 1, MPI_INT, &old, -1, MPI_INT, rank, 0, 1, MPI_INT, MPI_SUM, 0, window),
     MPI_ERR_COUNT, "a change with a result");
  is(MPI_Rput_notify(&one, -1, MPI_INT, rank, 0, 1, MPI_INT, 0, window, &request), MPI_ERR_COUNT, "a put's request");
  is(MPI_Rget_notify(&old, 1, MPI_INT, rank, 0, -1, MPI_INT, 0, window, &request), MPI_ERR_COUNT, "a get's request");
  is(MPI_Raccumulate_notify(&one, 1, MPI_INT, rank, 0, 1, MPI_INT, MPI_OP_NULL, 0, window, &request), MPI_ERR_OP,
     "a change's request");
  is(MPI_Rget_accumulate_notify(&one, 1, MPI_INT, &old, -1, MPI_INT, rank, 0, 1, MPI_INT, MPI_SUM, 0, window, &request),
     MPI_ERR_COUNT, "the request of a change with a result");
}

}  // namespace

void run_notified_errors() {
  Notified notified(2);
  const MPI_Win window = notified.window;
  const int one = 1;
  MPI_Count value = -1;
  int number = -1;
  const auto put = [&](int rank, int at, int counter) {
    return MPI_Put_notify(&one, 1, MPI_INT, rank, at, 1, MPI_INT, counter, window);
  };
  is(put(next(), 0, 0), MPI_ERR_RMA_SYNC, "a notified put outside of epochs");
  MPI_Win_fence(0, window);
  is(put(next(), 0, 0), MPI_ERR_RMA_SYNC, "a notified put between fences");
  MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
  MPI_Win_lock(MPI_LOCK_SHARED, next(), 0, window);
  is(put(next(), 0, -1), MPI_ERR_RMA_NOTIFICATION, "a negative counter");
  is(put(next(), kCount, 0), MPI_ERR_RMA_RANGE, "a place behind the window");
  is(put(world_size(), 0, 0), MPI_ERR_RANK, "a rank that is none");
  for (int rank = 0; rank < world_size(); ++rank) check_refused(window, rank);
  is(MPI_Accumulate_notify(&one, 1, MPI_INT, next(), 0, 1, MPI_INT, MPI_NO_OP, 0, window), MPI_ERR_OP,
     "an accumulate of nothing");
  is(MPI_Win_set_num_notify(window, MPI_INFO_NULL, 3), MPI_ERR_RMA_SYNC, "counters inside an epoch");
  MPI_Win_unlock(next(), window);
  MPI_Barrier(MPI_COMM_WORLD);
  is(MPI_Win_get_notify_value(window, 2, &value), MPI_ERR_RMA_NOTIFICATION, "the value of no counter");
  is(MPI_Win_reset_notify_value(window, -1, &value), MPI_ERR_RMA_NOTIFICATION, "a reset of no counter");
  is(MPI_Win_get_num_notify(window, world_size(), &number), MPI_ERR_RANK, "counters of no rank");
  is(SLUICE_Win_wait_notify_enqueue(window, 2, 1, sluice_stream{}), MPI_ERR_RMA_NOTIFICATION, "a wait for no counter");
  is(SLUICE_Win_wait_notify_enqueue(window, 0, -1, sluice_stream{}), MPI_ERR_ARG, "a wait for a negative number");
  expect_equal(notified.value(0) + notified.value(1) + notified.memory[0], 0, "what errors have left as it was");
}

/// MPI serves the windows.
void run_notified_unserved() {
  const Shared<int> shared(1);
  const int one = 1;
  MPI_Win_set_errhandler(shared.window, MPI_ERRORS_RETURN);
  const auto is = [](int code, const char* what) { expect_equal(code, MPI_ERR_RMA_FLAVOR, what); };
  is(MPI_Win_set_num_notify(shared.window, MPI_INFO_NULL, 1), "counters of a window of MPI's");
  is(MPI_Put_notify(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, 0, shared.window), "a put to it");
}

/// Notifications of accesses to memory that is attached.
void run_notified_dynamic() {
  constexpr int kTold = 300;
  std::vector<int> numbers(kTold);
  MPI_Aint mine = 0;
  MPI_Get_address(numbers.data(), &mine);
  std::vector<MPI_Aint> there(static_cast<std::size_t>(world_size()));
  MPI_Allgather(&mine, 1, MPI_AINT, there.data(), 1, MPI_AINT, MPI_COMM_WORLD);
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  expect_equal(MPI_Win_set_num_notify(window, MPI_INFO_NULL, 2), MPI_SUCCESS, "counters of a dynamic window");
  MPI_Win_attach(window, numbers.data(), kTold * sizeof(int));
  MPI_Barrier(MPI_COMM_WORLD);
  const std::vector<int> values(kTold, 5 + world_rank());
  MPI_Win_lock_all(0, window);
  const MPI_Aint at = there[static_cast<std::size_t>(next())];
  MPI_Put_notify(values.data(), kTold, MPI_INT, next(), at, kTold, MPI_INT, 1, window);
  MPI_Count count = 0;
  while (count < 1 && MPI_Win_get_notify_value(window, 1, &count) == MPI_SUCCESS) {
  }
  for (const int number : numbers) expect_equal(number, 5 + before(), "a number that was told");
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Accumulate_notify(values.data(), 1, MPI_INT, next(), at, 1, MPI_INT, MPI_SUM, 0, window);
  expect_equal(SLUICE_Win_wait_notify_enqueue(window, 0, 1, sluice_stream_program_order()), MPI_SUCCESS, "a wait");
  expect_equal(numbers[0], 2 * (5 + before()), "a sum that was told");
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
}

/// Threads notify each other's counters, and wait for them, in one window.
void run_notified_threads() {
  constexpr int kTalking = 3;
  constexpr int kTurnsEach = 50;
  const Notified notified(kTalking);
  MPI_Win_lock_all(0, notified.window);
  std::vector<std::thread> threads;
  for (int i = 0; i < kTalking; ++i) {
    threads.emplace_back([&notified, i] {
      for (int round = 1; round <= kTurnsEach; ++round) {
        const int value = round * kTalking + i;
        MPI_Put_notify(&value, 1, MPI_INT, next(), i * kTurnsEach + round, 1, MPI_INT, i, notified.window);
        if (round % 2 == 0) {
          notified.await(i, round);
        } else {
          SLUICE_Win_wait_notify_enqueue(notified.window, i, round, sluice_stream_program_order());
        }
        expect_equal(notified.memory[i * kTurnsEach + round], value, "what a thread was told");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MPI_Win_unlock_all(notified.window);
}

/// A stream waits for notifications, and then copies what the neighbour has put.
void run_notified_streams() {
  Notified notified(1, 2);
  const MPI_Win window = notified.window;
  sluice_host_stream* host = nullptr;
  expect_equal(sluice_host_stream_create(nullptr, &host), SLUICE_OK, "a host stream");
  const sluice_stream stream = sluice_stream_host(host);
  struct Copy {
    const int* from;
    int first;
    int last;
  };
  Copy copy{notified.memory, 0, 0};
  const auto look = [](void* argument) {
    auto& to = *static_cast<Copy*>(argument);
    to.first = to.from[0];
    to.last = to.from[kCount - 1];
    return 0;
  };
  std::vector<int> source(kCount);
  MPI_Win_lock_all(0, window);
  for (int i = 1; i <= 20; ++i) {
    // A wait counts from the last reset before it, and a later one does not change it.
    is(SLUICE_Win_wait_notify_enqueue(window, 0, 2, stream), MPI_SUCCESS, "a wait on a stream");
    sluice_host_stream_run(host, look, &copy);
    MPI_Barrier(MPI_COMM_WORLD);
    std::fill(source.begin(), source.end(), i * 100 + world_rank());
    MPI_Put_notify(source.data(), kCount / 2, MPI_INT, next(), 0, kCount / 2, MPI_INT, 0, window);
    if (i % 4 == 0) {
      is(SLUICE_Win_wait_notify_enqueue(window, 0, 1, sluice_stream{}), MPI_SUCCESS, "a wait in program order");
      expect_equal(sluice_host_stream_synchronize(host, SLUICE_SECOND / 1000), SLUICE_TIMEOUT, "one of two has come");
      MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Put_notify(source.data(), kCount / 2, MPI_INT, next(), kCount / 2, kCount / 2, MPI_INT, 0, window);
    expect_equal(sluice_host_stream_synchronize(host, 20 * SLUICE_SECOND), SLUICE_OK, "the stream");
    expect_equal(copy.first, i * 100 + before(), "what the stream saw first");
    expect_equal(copy.last, i * 100 + before(), "what the stream saw last");
    MPI_Count taken = 0;
    MPI_Win_reset_notify_value(window, 0, &taken);
    expect_equal(taken, 2, "what a reset has taken");
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Win_unlock_all(window);
  sluice_host_stream_free(&host);
}

/// Rank 0 enqueues waits on a stream that is full, while a callable in front of them makes accesses to the window.
void run_notified_threads_full() {
  constexpr int kCapacity = 4;
  constexpr int kPuts = 1000;
  const Notified notified(1);
  struct Shared {
    MPI_Win window;
    std::atomic<int> calls = 0;
  } shared{notified.window};
  const auto access = [](void* argument) {
    auto& its = *static_cast<Shared*>(argument);
    while (its.calls < kCapacity) std::this_thread::yield();  // this call or the next one finds the stream full
    const int value = 1;
    for (int i = 0; i < kPuts; ++i) {
      MPI_Put(&value, 1, MPI_INT, world_rank(), 0, 1, MPI_INT, its.window);
      MPI_Win_flush(world_rank(), its.window);
    }
    return 0;
  };
  sluice_host_stream_options options = SLUICE_HOST_STREAM_OPTIONS;
  options.capacity = kCapacity;
  sluice_host_stream* host = nullptr;
  expect_equal(sluice_host_stream_create(&options, &host), SLUICE_OK, "a host stream");
  MPI_Win_lock_all(0, notified.window);
  sluice_host_stream_run(host, access, &shared);
  for (int i = 0; i < 2 * kCapacity; ++i) {
    ++shared.calls;
    is(SLUICE_Win_wait_notify_enqueue(notified.window, 0, 0, sluice_stream_host(host)), MPI_SUCCESS, "a wait");
  }
  expect_equal(sluice_host_stream_synchronize(host, 20 * SLUICE_SECOND), SLUICE_OK, "the stream");
  MPI_Win_unlock_all(notified.window);
  sluice_host_stream_free(&host);
}

/// A thread of rank 0 resets a counter while another one waits for it in program order. Two ranks.
void run_notified_threads_reset() {
  constexpr int kLong = 1 << 20;
  enum { kReady, kWaits };  // numbers at rank 0
  const Notified notified(1);
  const MPI_Win window = notified.window;
  const auto number = [&](int which) { return std::atomic_ref(notified.memory[which]); };
  std::vector<int> message(kLong, world_rank());
  MPI_Win_lock_all(0, window);
  if (world_rank() == 1) {
    const int one = 1;
    MPI_Put_notify(&one, 1, MPI_INT, 0, kCount - 1, 1, MPI_INT, 0, window);
    MPI_Win_flush(0, window);
    for (int ready = 0; ready == 0; MPI_Win_flush(0, window)) {
      MPI_Get(&ready, 1, MPI_INT, 0, kReady, 1, MPI_INT, window);
    }
    MPI_Ssend(message.data(), kLong, MPI_INT, 0, 0, MPI_COMM_WORLD);  // rank 0 receives it in the wait alone
    MPI_Put(&one, 1, MPI_INT, 0, kWaits, 1, MPI_INT, window);
    MPI_Win_flush(0, window);
    MPI_Recv(nullptr, 0, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Put_notify(&one, 1, MPI_INT, 0, kCount - 1, 1, MPI_INT, 0, window);
  } else {
    notified.await(0, 1);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(message.data(), kLong, MPI_INT, 1, 0, MPI_COMM_WORLD, &request);
    std::thread resets([&] {
      while (number(kWaits).load() == 0) std::this_thread::yield();
      MPI_Count taken = 0;
      MPI_Win_reset_notify_value(window, 0, &taken);
      expect_equal(taken, 1, "what a reset has taken");
      MPI_Send(nullptr, 0, MPI_INT, 1, 1, MPI_COMM_WORLD);
    });
    number(kReady).store(1);
    is(SLUICE_Win_wait_notify_enqueue(window, 0, 2, sluice_stream_program_order()), MPI_SUCCESS, "a wait");
    resets.join();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect_equal(notified.value(0), 1, "what was counted after the reset");
  }
  MPI_Win_unlock_all(window);
}

/// Rank 0 looks at a counter until rank 1 has notified it, which sends it a long message first. Two ranks.
void run_notified_polling() {
  constexpr int kLong = 1 << 20;
  for (const auto look : {MPI_Win_get_notify_value, MPI_Win_reset_notify_value}) {
    Notified notified(1);
    std::vector<int> message(kLong, world_rank());
    MPI_Win_lock_all(0, notified.window);
    if (world_rank() == 0) {
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Irecv(message.data(), kLong, MPI_INT, 1, 0, MPI_COMM_WORLD, &request);
      for (MPI_Count seen = 0; seen == 0;) look(notified.window, 0, &seen);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      expect_equal(message.back(), 1, "the end of a message that came while its receiver polled");
    } else {
      MPI_Send(message.data(), kLong, MPI_INT, 0, 0, MPI_COMM_WORLD);
      MPI_Put_notify(message.data(), 1, MPI_INT, 0, 0, 1, MPI_INT, 0, notified.window);
    }
    MPI_Win_unlock_all(notified.window);
  }
}

void run_notified_not_freed() {
  static int* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_allocate(sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&memory), &window);
  MPI_Win_set_name(window, "notified");
  MPI_Win_set_num_notify(window, MPI_INFO_NULL, 3);
  MPI_Win_lock_all(0, window);
  const int value = 1;
  MPI_Put_notify(&value, 1, MPI_INT, next(), 0, 1, MPI_INT, 2, window);
  MPI_Win_flush_all(window);
  MPI_Barrier(MPI_COMM_WORLD);  // the memory of a rank ends in its MPI_Finalize
}
