// SPDX-License-Identifier: Apache-2.0
// Sends that are started without credit, while the program waits for something else by MPI.
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "tests/await_background.hpp"
#include "tests/mpis/order.hpp"
#include "tests/mpis/programs.hpp"

using namespace stream_mpi_test;

namespace {

/// How often a thread has gone to sleep.
long sleeps_of(const std::filesystem::path& thread) {
  const std::string label = "voluntary_ctxt_switches:";
  std::ifstream status(thread / "status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(label)) return std::stol(line.substr(label.size()));
  return 0;
}

long sleeps_of_streams() {
  long sum = 0;
  for (const auto& thread : threads_of_streams()) sum += sleeps_of(thread);
  return sum;
}

/// Returns once these threads have slept for a while without an interruption, and whether that was so.
bool all_sleep_on() {
  constexpr auto kLong = std::chrono::milliseconds(200);
  for (int tries = 0; tries < 25; ++tries) {
    const long before = sleeps_of_streams();
    std::this_thread::sleep_for(kLong);
    if (sleeps_of_streams() - before <= 2) return true;
  }
  return false;
}

/// Rank 0 starts a send, and rank 1 its receive afterwards. Then rank 0 waits for the answer alone.
void answer_steps(Order& order, int count, MPI_Datatype type, std::size_t ints, std::size_t stride) {
  const int peer = 1 - world_rank();
  const bool sends = world_rank() == 0;
  std::vector<int> buffer = poisoned(ints);
  std::vector<MPIS_Request> requests{sends ? send_of(buffer.data(), count, peer, 0, MPI_COMM_WORLD, type)
                                           : receive_of(buffer.data(), count, peer, 0, MPI_COMM_WORLD, type)};
  match_all(requests);
  for (int step = 0; step < 4; ++step) {
    if (sends) {
      fill(buffer, 0, step);
      order.start_all(requests);
      order.wait();  // until the stream has run the start
      tell(peer);
      await_answer(peer);
      order.wait_all();
      order.wait();
      continue;
    }
    await_answer(peer);
    order.start_all(requests);
    order.wait_all();
    order.wait();
    for (std::size_t i = 0; i < ints; i += stride)
      expect_equal(buffer[i], stamp(0, step, static_cast<int>(i)), "a message that nobody waits for");
    tell(peer);
  }
  free_all(requests);
}

}  // namespace

void run_answered() {
  Order order;
  for (const int count : {1, 10000, 1000000}) answer_steps(order, count, MPI_INT, static_cast<std::size_t>(count), 1);
  MPI_Datatype gaps = MPI_DATATYPE_NULL;
  MPI_Type_vector(1000, 1, 2, MPI_INT, &gaps);
  MPI_Type_commit(&gaps);
  answer_steps(order, 1, gaps, 2000, 2);
  MPI_Type_free(&gaps);
}

/// The program writes the buffer as soon as the wait permits it, while the receiver starts.
void run_overwritten() {
  constexpr int kInts = 1 << 20;
  Order order;
  const int peer = 1 - world_rank();
  const bool sends = world_rank() == 0;
  std::vector<int> buffer = poisoned(kInts);
  std::vector<int> expected = buffer;
  std::vector<MPIS_Request> requests{sends ? send_of(buffer.data(), kInts, peer)
                                           : receive_of(buffer.data(), kInts, peer)};
  match_all(requests);
  for (int step = 0; step < 40; ++step) {
    if (sends) {
      const std::uint64_t steps = Background::steps;
      fill(buffer, 0, step);
      order.start_all(requests);
      order.wait();
      await_more(Background::steps, steps);
      tell(peer);
      std::this_thread::sleep_for(std::chrono::microseconds(50 * step));
    } else {
      await_answer(peer);
      order.start_all(requests);
    }
    order.wait_all();
    order.wait();
    if (sends) std::fill(buffer.rbegin(), buffer.rend(), -1);
    if (sends) {
      await_answer(peer);
    } else {
      fill(expected, 0, step);
      expect(buffer == expected, "bytes of a buffer that was written after the wait");
      tell(peer);
    }
  }
  free_all(requests);
}

/// One send stays without a receive while others come and go.
void run_answered_beside() {
  Order order;
  Order other;
  const int peer = 1 - world_rank();
  int value = world_rank() == 0 ? 77 : -7;
  std::vector<MPIS_Request> requests{world_rank() == 0 ? send_of(&value, 1, peer, 9) : receive_of(&value, 1, peer, 9)};
  match_all(requests);
  if (world_rank() == 0) {
    const std::uint64_t steps = Background::steps;
    other.start_all(requests);
    await_more(Background::steps, steps, 2);  // then the thread that waits for its receive sleeps
  }
  for (int i = 0; i < 2; ++i) answer_steps(order, 1000, MPI_INT, 1000, 1);
  if (world_rank() == 0) await_answer(peer);
  if (world_rank() == 1) {
    expect_equal(value, -7, "a message whose receive has not started");
    other.start_all(requests);
    tell(peer);
  }
  other.wait_all();
  other.wait();
  expect_equal(value, 77, "a message that was late");
  free_all(requests);
}

void run_idle_without_credit() {
  Order order;
  const int peer = 1 - world_rank();
  int value = world_rank() == 0 ? 5 : -7;
  std::vector<MPIS_Request> requests{world_rank() == 0 ? send_of(&value, 1, peer) : receive_of(&value, 1, peer)};
  match_all(requests);
  if (world_rank() == 0) {
    order.start_all(requests);
    order.wait();
    const double load = least_load_while_asleep();
    expect(load < kIdle, "a rank whose send waits for credit uses " + std::to_string(load) + " of a core");
    tell(peer);
  } else {
    await_answer(peer);
    order.start_all(requests);
  }
  order.wait_all();
  order.wait();
  expect_equal(value, 5, "a message after a long time");
  free_all(requests);
}

/// The last rank starts a collective late, and answers once it is complete; the others wait for that alone. A
/// collective of three ranks needs steps of each.
void run_answered_collectives() {
  Order order;
  int in = world_rank() + 1;
  int sum = 0;
  MPIS_Request barrier = MPIS_REQUEST_NULL;
  MPIS_Request allreduce = MPIS_REQUEST_NULL;
  MPIS_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &barrier);
  MPIS_Allreduce_init(&in, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &allreduce);
  std::vector<MPIS_Request> requests{barrier, allreduce};
  match_all(requests);
  const int last = world_size() - 1;
  for (int step = 0; step < 5; ++step) {
    sum = -7;
    if (world_rank() == last)
      for (int peer = 0; peer < last; ++peer) await_answer(peer);
    order.start_all(requests);
    if (world_rank() == last) {
      order.wait_all();
      order.wait();
      for (int peer = 0; peer < last; ++peer) tell(peer);
    } else {
      order.wait();
      tell(last);
      await_answer(last);
      order.wait_all();
      order.wait();
    }
    expect_equal(sum, world_size() * (world_size() + 1) / 2, "a sum that one rank waits for");
  }
  free_all(requests);
}

void run_idle_collective() {
  Order order;
  MPIS_Request barrier = MPIS_REQUEST_NULL;
  MPIS_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &barrier);
  std::vector<MPIS_Request> requests{barrier};
  match_all(requests);
  if (world_rank() == 0) {
    order.start_all(requests);
    order.wait();
    expect(all_sleep_on(), "a barrier that waits for another rank wakes a thread again and again");
    tell(1);
  } else {
    await_answer(0);
    order.start_all(requests);
  }
  order.wait_all();
  order.wait();
  free_all(requests);
}

/// Steps of a rank alone, which its stream waits for at once: the thread of the background has nothing to do.
void run_waited_for_at_once() {
  constexpr auto kLong = std::chrono::seconds(1);
  constexpr long kMostSleeps = 500;
  Order order;
  MPIS_Request barrier = MPIS_REQUEST_NULL;
  MPIS_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &barrier);
  match(barrier);
  const auto before = threads_of_streams();
  const auto end = std::chrono::steady_clock::now() + kLong;
  do {
    order.start(barrier);
    order.wait_all();
    order.wait();
  } while (std::chrono::steady_clock::now() < end);
  long sleeps = 0;
  for (const auto& thread : threads_of_streams())
    if (!std::ranges::count(before, thread)) sleeps += sleeps_of(thread);
  expect(sleeps > 0, "no thread of the background");
  expect(sleeps < kMostSleeps, "the background looks " + std::to_string(sleeps) + " times in a second in vain");
  expect_equal(MPIS_Request_free(&barrier), MPIS_SUCCESS, "the end of a barrier");
}

/// MPI refuses the operation when the elements of the ranks have met, before a stream waits for the allreduce.
void run_refused_in_background() {
  Order order;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  std::array<int, 4> values{1, 2, 3, 4};
  MPI_Datatype two = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(2, MPI_INT, &two);
  MPI_Type_commit(&two);
  MPIS_Request allreduce = MPIS_REQUEST_NULL;
  MPIS_Allreduce_init(MPI_IN_PLACE, values.data(), 2, two, MPI_LAND, MPI_COMM_WORLD, MPI_INFO_NULL, &allreduce);
  std::vector<MPIS_Request> requests{allreduce};
  match_all(requests);
  const std::uint64_t returned = Background::returned;
  order.start_all(requests);
  order.wait();
  await_more(Background::returned, returned);
  order.wait_all();
  expect_equal(MPIS_Queue_wait(order.queue), MPI_ERR_OTHER, "an operation that MPI refuses");
  free_all(requests);
  MPI_Type_free(&two);
}

/// Its peer dies while the send waits for credit and no stream waits for it; the wait behind it still fails.
void run_killed_without_credit() {
  int value = 0;
  MPIS_Queue queue = MPIS_QUEUE_NULL;
  MPIS_Queue_init(&queue, THREAD, nullptr);
  std::vector<MPIS_Request> requests{world_rank() == 0 ? send_of(&value, 1, 1) : receive_of(&value, 1, 0)};
  match_all(requests);
  if (world_rank() == 1) {
    await_answer(0);
    raise(SIGKILL);
  }
  const std::uint64_t steps = Background::steps;
  const std::uint64_t returned = Background::returned;
  MPIS_Enqueue_startall(queue, 1, requests.data());
  await_more(Background::steps, steps);
  tell(1);
  await_more(Background::returned, returned);
  MPIS_Enqueue_waitall(queue);
  leave(MPIS_Queue_wait(queue) == MPI_ERR_OTHER);
}

namespace {

/// A message that takes a while, in memory into which a peer puts straight: rank 0 has sent, or rank 1 receives.
struct LongMessage {
  static constexpr int kInts = 1 << 25;
  static constexpr int kSent = 5;

  LongMessage() {
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_memory_alloc_kinds", "system");
    void* memory = nullptr;
    MPIS_Alloc_mem(static_cast<MPI_Aint>(kInts * sizeof(int)), info, &memory);
    MPI_Info_free(&info);
    buffer = static_cast<int*>(memory);
    std::fill(buffer, buffer + kInts, world_rank() == 0 ? kSent : kPoison);
    requests = {world_rank() == 0 ? send_of(buffer, kInts, 1) : receive_of(buffer, kInts, 0)};
    Order order;
    match_all(requests);
  }
  LongMessage(const LongMessage&) = delete;
  LongMessage& operator=(const LongMessage&) = delete;
  ~LongMessage() {
    free_all(requests);
    MPIS_Free_mem(buffer);
  }

  /// A copy may begin at either end.
  void await_first_bytes() const {
    const volatile int* const at = buffer;
    while (at[0] == kPoison && at[kInts - 1] == kPoison) {
    }
  }
  /// And poisons the buffer.
  void expect_arrived(const std::string& what) const {
    expect(std::count(buffer, buffer + kInts, kSent) == kInts, what);
    std::fill(buffer, buffer + kInts, kPoison);
  }

  static constexpr int kPoison = -7;
  int* buffer = nullptr;
  std::vector<MPIS_Request> requests;
};

}  // namespace

/// Its peer dies while the background puts a message: the wait behind it fails, or in mapped memory that of the next
/// message, since a put there takes no part of the peer.
void run_killed_in_put() {
  MPIS_Queue queue = MPIS_QUEUE_NULL;
  MPIS_Queue_init(&queue, THREAD, nullptr);
  LongMessage message;
  std::vector<MPIS_Request>& requests = message.requests;
  if (world_rank() == 1) {
    await_answer(0);
    MPIS_Enqueue_startall(queue, 1, requests.data());
    message.await_first_bytes();
    raise(SIGKILL);
  }
  const std::uint64_t steps = Background::steps;
  const std::uint64_t returned = Background::returned;
  MPIS_Enqueue_startall(queue, 1, requests.data());
  await_more(Background::steps, steps);
  tell(1);
  await_more(Background::returned, returned);
  const double began = MPI_Wtime();
  MPIS_Enqueue_waitall(queue);
  int met = MPIS_Queue_wait(queue);
  if (std::getenv("MPIS_TEST_MAPPED") != nullptr && met == MPIS_SUCCESS) {
    MPIS_Enqueue_startall(queue, 1, requests.data());
    MPIS_Enqueue_waitall(queue);
    met = MPIS_Queue_wait(queue);
  }
  leave(met == MPI_ERR_OTHER && MPI_Wtime() - began < 5);
}

/// A rank dies while the thread of the background waits for it in a collective; the wait behind that fails.
void run_killed_before_barrier() {
  MPIS_Queue queue = MPIS_QUEUE_NULL;
  MPIS_Queue_init(&queue, THREAD, nullptr);
  MPIS_Request barrier = MPIS_REQUEST_NULL;
  MPIS_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &barrier);
  match(barrier);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 1) {
    await_answer(0);
    raise(SIGKILL);
  }
  const std::uint64_t returned = Background::returned;
  MPIS_Enqueue_start(queue, &barrier);
  MPIS_Queue_wait(queue);
  (void)all_sleep_on();
  tell(1);
  await_more(Background::returned, returned);
  MPIS_Enqueue_waitall(queue);
  leave(MPIS_Queue_wait(queue) == MPI_ERR_OTHER);
}

/// A queue ends while the background puts a message of its, and the send starts again on another queue: both messages
/// arrive.
void run_started_again() {
  constexpr int kRounds = 3;  // the second start of each comes during the put, mostly
  LongMessage message;
  std::vector<MPIS_Request>& requests = message.requests;
  const int peer = 1 - world_rank();
  std::optional<Order> order(std::in_place);
  for (int round = 0; round < kRounds; ++round) {
    if (world_rank() == 1) await_answer(peer);
    const std::uint64_t steps = Background::steps;
    order->start_all(requests);
    if (world_rank() == 0) {
      order.reset();
      await_more(Background::steps, steps);
      tell(peer);
      await_answer(peer);  // until bytes arrive
      order.emplace();
      order->start_all(requests);
      order->wait();
      await_answer(peer);  // until the first message has arrived
    } else {
      order->wait();
      message.await_first_bytes();
      tell(peer);
      order->wait_all();
      order->wait();
      message.expect_arrived("a message of a queue that has ended");
      tell(peer);
      order->start_all(requests);
    }
    order->wait_all();
    order->wait();
    if (world_rank() == 1) message.expect_arrived("a message of a send that was started on another queue");
  }
}

namespace {

/// At the end of the process, behind MPI_Finalize.
void expect_no_thread() {
  if (!threads_of_streams().empty()) std::printf("a thread has outlived MPI\n");
}

/// MPI ends while a send waits for credit, and the thread is about to sleep, or sleeps, if `asleep`.
void leave_without_credit(bool asleep) {
  static int value = 0;
  MPIS_Queue queue = MPIS_QUEUE_NULL;
  MPIS_Queue_init(&queue, THREAD, nullptr);
  std::vector<MPIS_Request> requests{world_rank() == 0 ? send_of(&value, 1, 1) : receive_of(&value, 1, 0)};
  match_all(requests);
  const std::uint64_t steps = Background::steps;
  if (world_rank() == 0) MPIS_Enqueue_startall(queue, 1, requests.data());
  if (world_rank() == 0 && asleep) await_more(Background::steps, steps, 2);
  std::atexit(expect_no_thread);
}

}  // namespace

void run_left_without_credit() { leave_without_credit(false); }
void run_left_asleep() { leave_without_credit(true); }
