// SPDX-License-Identifier: Apache-2.0
// MPI Advance's collectives on streams of the emulated GPU, with the library's own sources: they go on while the
// program waits by MPI.
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>

#include "tests/await_background.hpp"
#include "tests/mpis/order.hpp"
#include "tests/mpix/own_stream.hpp"
#include "tests/mpix/programs.hpp"

using namespace stream_mpi_test;

namespace {

constexpr int kManyInts = 1 << 16;  // the peer needs this rank to go on behind its start

/// Numbers in memory of the host, or of the GPU.
class Numbers {
 public:
  Numbers(int count, bool on_gpu) : host_(poisoned(static_cast<std::size_t>(count))), on_gpu_(on_gpu) {
    if (!on_gpu_) return;
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_memory_alloc_kinds", "cuda:device");
    const auto bytes = static_cast<MPI_Aint>(host_.size() * sizeof(int));
    expect_equal(MPIS_Alloc_mem(bytes, info, &memory_), MPIS_SUCCESS, "memory of the GPU");
    MPI_Info_free(&info);
    upload();
  }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  ~Numbers() {
    if (on_gpu_) expect_equal(MPIS_Free_mem(memory_), MPIS_SUCCESS, "the end of memory");
  }

  void* data() { return on_gpu_ ? memory_ : host_.data(); }
  int count() const { return static_cast<int>(host_.size()); }
  void fill(int rank, int step) {
    stream_mpi_test::fill(host_, rank, step);
    if (on_gpu_) upload();
  }
  void poison() {
    std::ranges::fill(host_, -7);
    if (on_gpu_) upload();
  }
  /// They are the sums of what all ranks have filled in.
  void expect_sums(int step, const std::string& what) {
    if (on_gpu_) cuMemcpyDtoH(host_.data(), reinterpret_cast<CUdeviceptr>(memory_), host_.size() * sizeof(int));
    for (std::size_t i = 0; i < host_.size(); ++i) {
      int sum = 0;
      for (int rank = 0; rank < world_size(); ++rank) sum += stamp(rank, step, static_cast<int>(i));
      expect_equal(host_[i], sum, what + " at step " + std::to_string(step));
    }
  }

 private:
  void upload() {
    cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(memory_), host_.data(), host_.size() * sizeof(int));
    cuStreamSynchronize(nullptr);  // the copy may go on behind its call
  }

  std::vector<int> host_;
  bool on_gpu_;
  void* memory_ = nullptr;
};

/// An allreduce of all ranks.
struct Sum {
  explicit Sum(int count, bool on_gpu = false) : in(count, on_gpu), out(count, on_gpu) {
    requests.resize(1);
    const int code = MPIS_Allreduce_init(in.data(), out.data(), count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                                         requests.data());
    expect_equal(code, MPIS_SUCCESS, "an allreduce");
  }
  void fill(int step) {
    in.fill(world_rank(), step);
    out.poison();
  }

  Numbers in;
  Numbers out;
  std::vector<MPIS_Request> requests;
};

/// Rank 0 starts, and waits by MPI until all others have the result.
void answer_behind(Order& order, std::vector<MPIS_Request>& requests) {
  order.start_all(requests);
  for (int rank = 1; rank < world_size() && world_rank() == 0; ++rank) await_answer(rank);
  order.wait_all();
  order.wait();
  if (world_rank() != 0) tell(0);
}

void add_behind(Order& order, int count, bool on_gpu, int steps) {
  Sum sum(count, on_gpu);
  match_all(sum.requests);
  for (int step = 0; step < steps; ++step) {
    sum.fill(step);
    answer_behind(order, sum.requests);
    sum.out.expect_sums(step, "an allreduce that rank 0 does not wait for");
  }
  free_all(sum.requests);
}

}  // namespace

void run_gpu_sums_answered() {
  Order order;
  add_behind(order, 1, false, 20);
  add_behind(order, 5000, false, 5);
  add_behind(order, kManyInts, false, 3);
  add_behind(order, 3000, true, 5);
  add_behind(order, kManyInts, true, 2);
}

void run_gpu_barriers_answered() {
  Order order;
  std::vector<MPIS_Request> requests(1, MPIS_REQUEST_NULL);
  expect_equal(MPIS_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, requests.data()), MPIS_SUCCESS, "a barrier");
  match_all(requests);
  for (int step = 0; step < 20; ++step) answer_behind(order, requests);
  free_all(requests);
}

/// Behind the start the stream is held up, or captures a graph.
void run_gpu_sums_by_a_busy_stream() {
  Order order;
  Sum sum(kManyInts);
  match_all(sum.requests);
  for (int step = 0; step < 4; ++step) {
    sum.fill(step);
    std::optional<Gate> gate;
    CUgraph graph = nullptr;
    order.start_all(sum.requests);
    if (world_rank() == 0) {
      if (step % 2 == 0) gate.emplace(order);
      if (step % 2 == 1) cuStreamBeginCapture(order.stream->cuda, CU_STREAM_CAPTURE_MODE_GLOBAL);
      await_answer(1);
      if (step % 2 == 1) expect(cuStreamEndCapture(order.stream->cuda, &graph) == CUDA_SUCCESS, "a capture");
      if (graph != nullptr) cuGraphDestroy(graph);
    }
    order.wait_all();
    if (gate) gate->open();
    order.wait();
    sum.out.expect_sums(step, "an allreduce of a busy stream");
    if (world_rank() == 1) tell(0);
  }
  free_all(sum.requests);
}

/// The stream of rank 0 comes to the start later, when it has written the numbers. All that the others send is there.
void run_gpu_sums_in_order() {
  Order order;
  for (const int count : {1, kManyInts}) {
    Sum sum(count);
    match_all(sum.requests);
    for (int step = 0; step < 3; ++step) {
      if (world_rank() == 0) {
        sum.in.poison();
        sum.out.poison();
        Gate gate(order);
        order.run([&] { sum.in.fill(0, step); });
        order.start_all(sum.requests);
        await_answer(1);
        await_more(Background::steps, Background::steps, 2);  // the last one has begun with what rank 1 has sent
        gate.open();
        await_answer(1);
        order.wait_all();
        order.wait();
      } else {
        sum.fill(step);
        order.start_all(sum.requests);
        order.wait();
        tell(0);
        order.wait_all();
        order.wait();
        tell(0);
      }
      sum.out.expect_sums(step, "an allreduce in the order of its stream");
    }
    free_all(sum.requests);
  }
}

/// The stream reads the result as soon as the wait permits it, while the library's own stream is held up.
void run_gpu_sums_behind_own_stream() {
  Order order;
  Sum sum(1);
  match_all(sum.requests);
  for (int step = 0; step < 5; ++step) {
    sum.fill(step);
    std::atomic<bool> passed = false;
    const std::uint64_t returned = Background::returned;
    const HeldUp own_stream(order, passed);
    order.start_all(sum.requests);
    await_more(Background::returned, returned);
    order.wait_all();
    std::vector<int> seen;
    order.run([&] {
      seen.assign(1, *static_cast<int*>(sum.out.data()));
      passed = true;
    });
    order.wait();
    sum.out.expect_sums(step, "an allreduce on the library's own stream");
    expect_equal(seen[0], stamp(0, step, 0) + stamp(1, step, 0), "what the stream reads behind its wait");
    MPI_Barrier(MPI_COMM_WORLD);
  }
  free_all(sum.requests);
}

namespace {

/// Rank 2 of three is late, so rank 0 goes on a part of the way, with rank 1, before its stream waits.
void wait_halfway(int count) {
  Order order;
  const OwnStream own(order);
  Sum sum(count);
  match_all(sum.requests);
  for (int step = 0; step < 4; ++step) {
    sum.fill(step);
    if (world_rank() == 2) await_answer(0);
    const unsigned long long before = own.submitted();
    order.start_all(sum.requests);
    if (world_rank() == 0) {
      await_or_abort([&] { return own.submitted() > before; });
      order.wait_all();
      tell(2);
    } else {
      order.wait_all();
    }
    order.wait();
    sum.out.expect_sums(step, "an allreduce of which a part is left to the wait");
  }
  free_all(sum.requests);
}

}  // namespace

void run_gpu_sums_halfway() {
  wait_halfway(1);
  wait_halfway(kManyInts);
}

/// An allreduce that waits for a peer keeps no send from leaving.
void run_gpu_sums_hold_up_no_send() {
  Order order;
  Sum sum(1);
  std::vector<int> buffer = poisoned(1000);
  std::vector<MPIS_Request> message{world_rank() == 0 ? send_of(buffer.data(), 1000, 1)
                                                      : receive_of(buffer.data(), 1000, 0)};
  match_all(sum.requests);
  match_all(message);
  for (int step = 0; step < 3; ++step) {
    sum.fill(step);
    if (world_rank() == 0) {
      fill(buffer, 0, step);
      const std::uint64_t steps = Background::steps;
      order.start_all(sum.requests);
      await_more(Background::steps, steps, 2);
      order.start_all(message);
      tell(1);
      await_answer(1);
    } else {
      await_answer(0);
      order.start_all(message);
      order.wait_all();
      order.wait();
      expect_filled(buffer, 0, step, "a message beside an allreduce");
      tell(0);
      order.start_all(sum.requests);
    }
    order.wait_all();
    order.wait();
    sum.out.expect_sums(step, "an allreduce beside a message");
  }
  free_all(sum.requests);
  free_all(message);
}

/// The queue ends behind the start, or the request is freed there.
void run_gpu_sums_freed() {
  std::optional<Order> order(std::in_place);
  Sum sum(kManyInts);
  match_all(sum.requests);
  for (int step = 0; step < 3; ++step) {  // from the second time on, the request starts on another queue
    sum.fill(step);
    order->start_all(sum.requests);
    if (world_rank() == 0) {
      order.reset();
      await_answer(1);
      order.emplace();
    } else {
      order->wait_all();
      order->wait();
      sum.out.expect_sums(step, "an allreduce whose queue has ended");
      tell(0);
    }
  }
  sum.fill(3);
  order->start_all(sum.requests);
  if (world_rank() == 0) {
    free_all(sum.requests);
    await_answer(1);
  }
  order->wait_all();
  order->wait();
  sum.out.expect_sums(3, "an allreduce whose request was freed");
  if (world_rank() == 0) return;
  tell(0);
  free_all(sum.requests);
}

/// Ends while the allreduce is left: its queue, its request, MPI.
void run_gpu_sums_left_for_good() {
  Sum sum(kManyInts);
  Sum kept(kManyInts);
  std::optional<Order> order(std::in_place);
  match_all(sum.requests);
  match_all(kept.requests);
  if (world_rank() == 0) {
    const std::uint64_t steps = Background::steps;
    order->start_all(sum.requests);
    order->start_all(kept.requests);
    await_more(Background::steps, steps, 3);
  }
  order.reset();
  MPI_Barrier(MPI_COMM_WORLD);  // later errors are of no queue
  free_all(sum.requests);
}

/// Without a stream of the library's own, nothing goes on in the background.
void run_gpu_sums_left_to_the_wait() {
  Order order;
  Sum sum(kManyInts);
  match_all(sum.requests);
  for (int step = 0; step < 3; ++step) {
    sum.fill(step);
    if (world_rank() == 1) await_answer(0);
    order.start_all(sum.requests);
    order.wait_all();
    if (world_rank() == 0) tell(1);
    order.wait();
    sum.out.expect_sums(step, "an allreduce that goes on at its wait");
  }
  free_all(sum.requests);
}

/// The driver refuses one of the operations that the library's own stream is given, each in its turn. The allreduce
/// fails, and what the driver has taken still comes before what follows the wait.
void run_gpu_sums_refused() {
  constexpr unsigned kLeast = 3;
  Order order;
  int met = MPI_ERR_OTHER;
  unsigned taken = 0;
  for (; met != MPIS_SUCCESS; ++taken) {
    Sum sum(kManyInts);
    match_all(sum.requests);
    sum.fill(0);
    if (world_rank() == 0) {
      std::atomic<bool> passed = false;
      std::atomic<bool> overtakes = false;
      const std::uint64_t returned = Background::returned;
      const HeldUp held_up(order, passed);
      held_up.own().refuse_after(taken);
      order.start_all(sum.requests);
      tell(1);
      await_more(Background::returned, returned);
      order.wait_all();
      order.run([&] {
        overtakes = !held_up.open();
        passed = true;
      });
      met = MPIS_Queue_wait(order.queue);
      expect(!overtakes, "work behind a wait overtakes what the driver has taken of " + std::to_string(taken));
    } else {
      await_answer(0);
      order.start_all(sum.requests);
      order.wait_all();
      if (MPIS_Queue_wait(order.queue) == MPIS_SUCCESS) sum.out.expect_sums(0, "an allreduce that a peer fails behind");
    }
    MPI_Bcast(&met, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (met == MPIS_SUCCESS) sum.out.expect_sums(0, "an allreduce of which nothing is refused");
    free_all(sum.requests);
    while (MPIS_Queue_wait(order.queue) != MPIS_SUCCESS) continue;  // what else has failed with it
  }
  expect(taken > kLeast, std::to_string(taken) + " operations of the library's own stream");
}

/// A rank dies before it starts; the wait of the other one fails.
void run_gpu_sums_killed() {
  Order order;
  Sum sum(kManyInts);
  match_all(sum.requests);
  if (world_rank() == 1) {
    await_answer(0);
    raise(SIGKILL);
  }
  const std::uint64_t steps = Background::steps;
  const std::uint64_t returned = Background::returned;
  order.start_all(sum.requests);
  await_more(Background::steps, steps);
  tell(1);
  await_more(Background::returned, returned);
  order.wait_all();
  leave(MPIS_Queue_wait(order.queue) == MPI_ERR_OTHER);
}
