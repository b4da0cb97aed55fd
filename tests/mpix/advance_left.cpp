// SPDX-License-Identifier: Apache-2.0
// MPI Advance's queues on streams of the emulated GPU, with the library's own sources: sends that start before their
// receives, while the program waits by MPI.
#include <dlfcn.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "tests/await_background.hpp"
#include "tests/mpis/order.hpp"
#include "tests/mpix/own_stream.hpp"
#include "tests/mpix/programs.hpp"

using namespace stream_mpi_test;

namespace {

std::vector<MPIS_Request> one_message(std::vector<int>& buffer, int tag = 0) {
  const int count = static_cast<int>(buffer.size());
  return {world_rank() == 0 ? send_of(buffer.data(), count, 1, tag) : receive_of(buffer.data(), count, 0, tag)};
}

/// Rank 1 receives when rank 0 has told it to. `started()`: once its stream has given the credit.
template <class Started>
void receive_late(Order& order, std::vector<MPIS_Request>& requests, Started started) {
  await_answer(0);
  order.start_all(requests);
  order.wait();
  started();
  order.wait_all();
  order.wait();
}

void receive_late(Order& order, std::vector<MPIS_Request>& requests) {
  receive_late(order, requests, [] {});
}

/// Rank 0 starts its sends first, and then waits for the answer alone.
void answer_late(Order& order, std::size_t ints, int steps) {
  std::vector<int> first = poisoned(ints);
  std::vector<int> second = poisoned(ints);
  std::vector<MPIS_Request> requests = one_message(first);
  requests.push_back(one_message(second, 1).front());
  match_all(requests);
  for (int step = 0; step < steps; ++step) {
    if (world_rank() == 1) {
      receive_late(order, requests);
      expect_filled(first, 0, step, "a message that its sender does not wait for");
      expect_filled(second, 1, step, "another message that its sender does not wait for");
      tell(0);
      continue;
    }
    order.run([&, step] {
      fill(first, 0, step);
      fill(second, 1, step);
    });
    order.start_all(requests);
    tell(1);
    await_answer(1);
    order.wait_all();
    order.wait();
  }
  free_all(requests);
}

}  // namespace

void run_gpu_answered_late() {
  Order order;
  answer_late(order, 1, 40);
  answer_late(order, 5000, 5);
  answer_late(order, 1 << 16, 3);
}

/// The receive starts first of all, but the host of the send does not see that before it enqueues the start. The stream
/// comes to the start later, when it has written the buffer.
void run_gpu_left_in_order() {
  Order order;
  std::vector<int> buffer = poisoned(1000);
  std::vector<MPIS_Request> requests = one_message(buffer);
  match_all(requests);
  for (int step = 0; step < 3; ++step) {
    if (world_rank() == 1) {
      receive_late(order, requests, [] { tell(0); });
      expect_filled(buffer, 0, step, "a message in the order of its stream");
      tell(0);
      continue;
    }
    std::fill(buffer.begin(), buffer.end(), -7);
    Gate gate(order);
    order.run([&, step] { fill(buffer, 0, step); });
    order.start_all(requests);
    tell(1);
    await_answer(1);
    await_more(Background::steps, Background::steps, 2);  // the last one has begun with credit
    gate.open();
    await_answer(1);
    order.wait_all();
    order.wait();
  }
  free_all(requests);
}

/// Behind the start the stream is held up, or captures a graph.
void run_gpu_left_by_a_busy_stream() {
  Order order;
  std::vector<int> buffer = poisoned(1000);
  std::vector<MPIS_Request> requests = one_message(buffer);
  match_all(requests);
  for (int step = 0; step < 2; ++step) {
    if (world_rank() == 1) {
      receive_late(order, requests);
      expect_filled(buffer, 0, step, "a message of a busy stream");
      tell(0);
      continue;
    }
    fill(buffer, 0, step);
    order.start_all(requests);
    std::optional<Gate> gate;
    CUgraph graph = nullptr;
    if (step == 0) gate.emplace(order);
    if (step == 1) cuStreamBeginCapture(order.stream->cuda, CU_STREAM_CAPTURE_MODE_GLOBAL);
    tell(1);
    await_answer(1);
    if (step == 1) expect(cuStreamEndCapture(order.stream->cuda, &graph) == CUDA_SUCCESS, "a capture");
    if (graph != nullptr) cuGraphDestroy(graph);
    order.wait_all();
    if (gate) gate->open();
    order.wait();
  }
  free_all(requests);
}

/// The buffers lie in memory of the GPU, and the variable of the queue names another stream at each step.
void run_gpu_left_by_two_streams() {
  constexpr int kInts = 3000;
  constexpr std::size_t kBytes = kInts * sizeof(int);
  Order order;
  OrderedStream other(true);
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "mpi_memory_alloc_kinds", "cuda:device");
  void* memory = nullptr;
  expect_equal(MPIS_Alloc_mem(kBytes, info, &memory), MPIS_SUCCESS, "memory of the GPU");
  MPI_Info_free(&info);
  const auto on_gpu = reinterpret_cast<CUdeviceptr>(memory);
  std::vector<int> here = poisoned(kInts);
  std::vector<MPIS_Request> requests{world_rank() == 0 ? send_of(memory, kInts, 1) : receive_of(memory, kInts, 0)};
  match_all(requests);
  for (int step = 0; step < 4; ++step) {
    if (world_rank() == 1) {
      receive_late(order, requests);
      cuMemcpyDtoH(here.data(), on_gpu, kBytes);
      expect_filled(here, 0, step, "a message in memory of the GPU");
      tell(0);
      continue;
    }
    fill(here, 0, step);
    cuMemcpyHtoD(on_gpu, here.data(), kBytes);
    order.start_all(requests);
    order.wait();
    std::swap(order.stream->cuda, other.cuda);
    tell(1);
    await_answer(1);
    order.wait_all();
    order.wait();
  }
  free_all(requests);
  expect_equal(MPIS_Free_mem(memory), MPIS_SUCCESS, "the end of memory");
}

/// A wait takes one send back, so the background goes on with the other one alone.
void run_gpu_left_taken_back() {
  Order order;
  Order other;
  std::vector<int> first = poisoned(1000);
  std::vector<int> second = poisoned(1000);
  std::vector<MPIS_Request> awaited = one_message(first);
  std::vector<MPIS_Request> left = one_message(second, 1);
  match_all(awaited);
  match_all(left);
  if (world_rank() == 1) {
    receive_late(order, awaited);
    receive_late(other, left);
    tell(0);
    expect_filled(first, 0, 1, "a message that its wait puts");
    expect_filled(second, 0, 2, "a message that the background puts");
  } else {
    const std::uint64_t steps = Background::steps;
    const std::uint64_t returned = Background::returned;
    fill(first, 0, 1);
    fill(second, 0, 2);
    order.start_all(awaited);
    other.start_all(left);
    await_more(Background::steps, steps, 2);
    order.wait_all();
    tell(1);
    order.wait();
    tell(1);
    await_answer(1);
    await_more(Background::returned, returned);
    other.wait_all();
    other.wait();
    expect_equal(Background::returned - returned, 1, "sends that the background has ended");
  }
  free_all(awaited);
  free_all(left);
}

namespace {

void refuse(unsigned taken, unsigned refused) {
  auto* const by_driver = reinterpret_cast<void (*)(unsigned, unsigned, int)>(dlsym(RTLD_DEFAULT, "emucuda_refuse"));
  expect(by_driver != nullptr, "an emulated driver");
  by_driver(taken, refused, 1);
}

/// The stream writes the buffer as soon as the wait permits it, before the library's own stream puts.
/// `before_wait(returned)`: when the receive has started; `returned`: before the start. `met`: by the wait of the host.
template <class BeforeWait>
void overwrite_behind_wait(Order& order, int steps, int met, BeforeWait before_wait) {
  std::vector<int> buffer = poisoned(1 << 16);
  std::vector<MPIS_Request> requests = one_message(buffer);
  match_all(requests);
  for (int step = 0; step < steps; ++step) {
    if (world_rank() == 1) {
      receive_late(order, requests, [] { tell(0); });
      expect_filled(buffer, 0, step, "a message whose buffer was written behind the wait");
      tell(0);
      continue;
    }
    const std::uint64_t returned = Background::returned;
    fill(buffer, 0, step);
    std::atomic<bool> written = false;
    const HeldUp own_stream(order, written);
    order.start_all(requests);
    order.wait();
    tell(1);
    await_answer(1);
    before_wait(returned);
    order.wait_all();
    order.run([&buffer, &written] {
      std::ranges::fill(buffer, -1);
      written = true;
    });
    expect_equal(MPIS_Queue_wait(order.queue), met, "a wait behind a put of another stream");
    await_answer(1);
  }
  free_all(requests);
}

}  // namespace

void run_gpu_left_overwritten() {
  Order order;
  int step = 0;
  overwrite_behind_wait(order, 10, MPIS_SUCCESS, [&](std::uint64_t returned) {
    if (step++ % 2 == 0) await_more(Background::returned, returned);  // else the wait may come before the put
  });
}

/// The driver refuses the answer of the library's own stream.
void run_gpu_left_answer_refused() {
  Order order;
  overwrite_behind_wait(order, 3, MPIS_SUCCESS, [](std::uint64_t returned) {
    await_more(Background::returned, returned);
    refuse(1, 1);
  });
}

/// The driver refuses to let the program's stream wait for that answer.
void run_gpu_left_wait_refused() {
  Order order;
  overwrite_behind_wait(order, 3, MPI_ERR_OTHER, [](std::uint64_t returned) {
    await_more(Background::returned, returned);
    refuse(0, 1);
  });
}

/// The variable of the queue names a stream of the other GPU when the program waits.
void run_gpu_left_by_two_gpus() {
  OrderedStream other(true, 1);
  Order order;
  for (int step = 0; step < 3; ++step) {
    overwrite_behind_wait(order, 1, MPIS_SUCCESS, [&](std::uint64_t returned) {
      await_more(Background::returned, returned);
      std::swap(order.stream->cuda, other.cuda);
    });
    if (world_rank() == 0) std::swap(order.stream->cuda, other.cuda);
  }
}

/// A queue ends before the library's own stream puts a message of its, and the send starts again on another queue.
void run_gpu_left_started_again() {
  std::vector<int> buffer = poisoned(1 << 16);
  std::vector<MPIS_Request> requests = one_message(buffer);
  std::optional<Order> order(std::in_place);
  match_all(requests);
  for (int step = 0; step < 3; ++step) {
    if (world_rank() == 1) {
      receive_late(*order, requests);
      expect_filled(buffer, 0, step, "a message of a queue that has ended");
      std::ranges::fill(buffer, -7);
      order->start_all(requests);
      order->wait_all();
      order->wait();
      expect_filled(buffer, 0, step, "a message of a send that was started on another queue");
      tell(0);
      continue;
    }
    const std::uint64_t returned = Background::returned;
    fill(buffer, 0, step);
    std::atomic<bool> open = false;
    OwnStream(*order).hold(open);
    order->start_all(requests);
    order.reset();
    tell(1);
    await_more(Background::returned, returned);
    order.emplace();
    order->start_all(requests);
    order->wait_all();
    await_or_abort([&] { return is_parked(order->stream->cuda); });
    open = true;
    open.notify_all();
    order->wait();
    await_answer(1);
  }
  free_all(requests);
}

/// Without a stream of the library's own, nothing goes on in the background.
void run_gpu_left_to_the_wait() {
  Order order;
  std::vector<int> buffer = poisoned(1000);
  std::vector<MPIS_Request> requests = one_message(buffer);
  match_all(requests);
  for (int step = 0; step < 3; ++step) {
    if (world_rank() == 1) {
      receive_late(order, requests);
      expect_filled(buffer, 0, step, "a message that leaves at its wait");
      tell(0);
      continue;
    }
    fill(buffer, 0, step);
    order.start_all(requests);
    order.wait_all();
    tell(1);
    order.wait();
    await_answer(1);
  }
  free_all(requests);
}

/// By one rank: the context of the GPU fails before its stream comes to the start of a send, which has credit.
void run_gpu_left_lost() {
  auto* const fail = reinterpret_cast<void (*)(CUresult)>(dlsym(RTLD_DEFAULT, "emucuda_fail"));
  expect(fail != nullptr, "an emulated driver");
  Order order;
  Order receiver;
  std::vector<int> out = poisoned(10);
  std::vector<int> in = poisoned(10);
  std::vector<MPIS_Request> requests{send_of(out.data(), 10, 0), receive_of(in.data(), 10, 0)};
  match_all(requests);
  const std::uint64_t returned = Background::returned;
  Gate gate(order);
  order.start(requests[0]);
  receiver.start(requests[1]);
  receiver.stream->wait();
  await_more(Background::steps, Background::steps, 2);  // the last one has begun with credit
  fail(CUDA_ERROR_ILLEGAL_ADDRESS);
  await_more(Background::returned, returned);
  gate.open();
  leave(MPIS_Queue_wait(order.queue) == MPI_ERR_OTHER);
}

/// A start or a wait that a stream captures is refused, and changes nothing.
void run_gpu_advance_captures() {
  Order order;
  const auto expect_refused = [&order](auto call, const char* what) {
    CUgraph graph = nullptr;
    cuStreamBeginCapture(order.stream->cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    expect_equal(call(), MPI_ERR_OTHER, what);
    expect(cuStreamEndCapture(order.stream->cuda, &graph) == CUDA_SUCCESS, "a capture");
    if (graph != nullptr) cuGraphDestroy(graph);
  };
  std::vector<int> buffer = poisoned(100);
  std::vector<MPIS_Request> requests = one_message(buffer);
  match_all(requests);
  const auto start = [&] { return MPIS_Enqueue_start(order.queue, requests.data()); };
  for (const bool receiver_is_first : {false, true}) {
    const bool is_first = receiver_is_first == (world_rank() == 1);
    if (world_rank() == 0) fill(buffer, 0, 1);
    if (!is_first) await_answer(1 - world_rank());
    expect_refused(start, "a start in a capture");
    order.start_all(requests);
    order.stream->wait();
    if (is_first) tell(1 - world_rank());
    expect_refused([&] { return MPIS_Enqueue_waitall(order.queue); }, "a wait in a capture");
    order.wait_all();
    order.wait();
    expect_filled(buffer, 0, 1, "a message behind refused calls");
    MPI_Barrier(MPI_COMM_WORLD);
  }
  free_all(requests);
}

/// The driver refuses the signal behind a start: the send leaves at its wait. The next ones leave before it.
void run_gpu_left_refused() {
  Order order;
  std::vector<int> buffer = poisoned(1000);
  std::vector<MPIS_Request> requests = one_message(buffer);
  match_all(requests);
  for (int step = 0; step < 3; ++step) {
    const bool refused = step == 0;
    if (world_rank() == 1) {
      receive_late(order, requests);
      expect_filled(buffer, 0, step, "a message behind a refused signal");
      tell(0);
      continue;
    }
    fill(buffer, 0, step);
    if (refused) refuse(0, 1);
    order.start_all(requests);
    tell(1);
    if (!refused) await_answer(1);
    order.wait_all();
    expect_equal(MPIS_Queue_wait(order.queue), refused ? MPI_ERR_OTHER : MPI_SUCCESS, "a wait behind a start");
    if (refused) await_answer(1);
  }
  free_all(requests);
}

/// With a short SLUICE_TIMEOUT: a send that has failed is an error of its start, too, and the next one starts.
void run_gpu_left_fails() {
  Order order;
  std::vector<int> late = poisoned(10);
  std::vector<int> good = poisoned(10);
  std::vector<MPIS_Request> requests = one_message(late);
  requests.push_back(one_message(good, 1).front());
  match_all(requests);
  if (world_rank() == 0) {
    order.start(requests[0]);
    order.wait_all();
    expect_equal(MPIS_Queue_wait(order.queue), MPI_ERR_OTHER, "a message that nobody receives");
    fill(good, 0, 1);
    order.start_all(requests);
    tell(1);
    await_answer(1);
    order.wait_all();
    expect_equal(MPIS_Queue_wait(order.queue), MPI_ERR_OTHER, "a start of a send that has failed");
  } else {
    await_answer(0);
    order.start(requests[1]);
    order.wait_all();
    (void)MPIS_Queue_wait(order.queue);  // the peer's failure is one of this rank, too
    expect_filled(good, 0, 1, "a message beside one that has failed");
    tell(0);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  free_all(requests);
}

/// The request is freed, or its queue, between the start of a send and its wait.
void run_gpu_left_freed() {
  std::optional<Order> order(std::in_place);
  std::vector<int> buffer = poisoned(1000);
  std::vector<MPIS_Request> requests = one_message(buffer);
  match_all(requests);
  for (int step = 0; step < 2; ++step) {  // the second time, the request starts on another queue
    if (world_rank() == 1) {
      receive_late(*order, requests);
      expect_filled(buffer, 0, step, "a message whose queue has ended");
      tell(0);
      continue;
    }
    fill(buffer, 0, step);
    order->start_all(requests);
    order.reset();
    tell(1);
    await_answer(1);
    order.emplace();
  }
  if (world_rank() == 1) {
    receive_late(*order, requests);
    expect_filled(buffer, 0, 2, "a message whose request was freed");
    free_all(requests);
    tell(0);
    return;
  }
  fill(buffer, 0, 2);
  order->start_all(requests);
  free_all(requests);
  tell(1);
  await_answer(1);
  order->wait_all();
  order->wait();
}

/// Ends while the send is left: its queue, its request, MPI.
void run_gpu_left_for_good() {
  std::vector<int> buffer = poisoned(10);
  std::vector<int> other = poisoned(10);
  std::vector<MPIS_Request> requests = one_message(buffer);
  std::vector<MPIS_Request> kept = one_message(other, 1);
  {
    Order order;
    match_all(requests);
    match_all(kept);
    if (world_rank() == 0) {
      const std::uint64_t steps = Background::steps;
      order.start_all(requests);
      order.start_all(kept);
      await_more(Background::steps, steps, 3);
    }
    MPI_Barrier(MPI_COMM_WORLD);  // the receive is freed behind the start
    free_all(requests);
  }
}

/// A rank dies while a send to it waits for credit and no stream waits for it; the wait behind it still fails.
void run_gpu_left_killed() {
  Order order;
  std::vector<int> buffer = poisoned(10);
  std::vector<MPIS_Request> requests = one_message(buffer);
  match_all(requests);
  if (world_rank() == 1) {
    await_answer(0);
    raise(SIGKILL);
  }
  const std::uint64_t steps = Background::steps;
  const std::uint64_t returned = Background::returned;
  order.start_all(requests);
  await_more(Background::steps, steps);
  tell(1);
  await_more(Background::returned, returned);
  order.wait_all();
  leave(MPIS_Queue_wait(order.queue) == MPI_ERR_OTHER);
}

/// The thread of the background sleeps until credit comes, and the peer starts a barrier.
void run_gpu_left_idle() {
  constexpr auto kLong = std::chrono::milliseconds(500);
  constexpr std::uint64_t kFew = 20;
  Order order;
  std::vector<int> buffer = poisoned(10);
  std::vector<MPIS_Request> requests = one_message(buffer);
  requests.push_back(MPIS_REQUEST_NULL);
  expect_equal(MPIS_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &requests.back()), MPIS_SUCCESS, "a barrier");
  match_all(requests);
  if (world_rank() == 0) {
    const std::uint64_t before = Background::steps;
    fill(buffer, 0, 1);
    order.start_all(requests);
    order.wait();
    std::this_thread::sleep_for(kLong);
    const std::uint64_t steps = Background::steps - before;
    expect(steps < kFew, "what waits for a peer is looked at " + std::to_string(steps) + " times");
    tell(1);
    order.wait_all();
    order.wait();
  } else {
    receive_late(order, requests);
  }
  expect_filled(buffer, 0, 1, "a message after a long time");
  free_all(requests);
}
