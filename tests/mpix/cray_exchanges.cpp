// SPDX-License-Identifier: Apache-2.0
// Programs in Cray's words that exchange messages in rounds, with the host ahead of its stream.
#include <array>
#include <atomic>
#include <cstdio>

#include "tests/mpis/beside_mpi.hpp"
#include "tests/mpix/cray_queue.hpp"
#include "tests/mpix/programs.hpp"

using namespace stream_mpi_test;

namespace {
constexpr int kMpixSteps = 20;
constexpr std::size_t kMpixInts = 40;
}  // namespace

/// Each rank adds 1 to what the one before sends, from rank 0 around to it.
void run_cray_ring() {
  CrayQueue queue;
  std::vector<int> out = poisoned(kMpixInts);
  std::vector<int> in = poisoned(kMpixInts);
  for (int step = 0; step < kMpixSteps; ++step) {
    if (world_rank() == 0) {
      queue.run([&out, step] { fill(out, 0, step); });
      queue.send(out, next_rank());
      queue.receive(in, rank_before());
    } else {
      queue.receive(in, rank_before());
      queue.start_and_wait();
      queue.run([&] {
        for (std::size_t i = 0; i < in.size(); ++i) out[i] = in[i] + 1;
      });
      queue.send(out, next_rank());
    }
    queue.start_and_wait();
    queue.run([&in, step] {
      const int added = world_rank() == 0 ? world_size() - 1 : world_rank() - 1;
      for (std::size_t i = 0; i < in.size(); ++i)
        expect_equal(in[i], stamp(0, step, static_cast<int>(i)) + added, "a ring");
    });
  }
  queue.wait();
}

/// Four neighbours. All messages have one tag.
void run_cray_halo() {
  Grid grid;
  CrayQueue queue(grid.comm);
  std::array<std::vector<int>, 4> out;
  std::array<std::vector<int>, 4> in;
  for (std::size_t i = 0; i < 4; ++i) out[i] = in[i] = poisoned(kMpixInts);
  for (int step = 0; step < kMpixSteps; ++step) {
    // A message to one direction arrives from the opposite one: both are named in the same order.
    for (std::size_t i = 0; i < 4; ++i) queue.receive(in[i], grid.peers[i], 50);
    queue.start();
    queue.run([&, step] {
      for (std::size_t i = 0; i < 4; ++i) fill(out[i], grid.rank * 10 + static_cast<int>(i), step);
    });
    for (std::size_t i = 0; i < 4; ++i) queue.send(out[i], grid.peers[i ^ 1U], 50);
    queue.start_and_wait();
    queue.run([&, step] {
      for (std::size_t i = 0; i < 4; ++i)
        expect_filled(in[i], grid.peers[i] * 10 + static_cast<int>(i), step, "a halo");
    });
  }
  queue.wait();
  MPI_Comm_free(&grid.comm);
}

/// Several messages of one tag in one start, whose sizes differ from step to step; none, one slot and many.
void run_cray_sizes() {
  CrayQueue queue;
  const std::array<std::size_t, 8> counts{0, 1, 4090, 4094, 4095, 17, 20000, 300};
  std::array<std::vector<int>, 5> out;
  std::array<std::vector<int>, 5> in;
  for (int step = 0; step < kMpixSteps; ++step) {
    queue.wait();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t count = counts.at((i + static_cast<std::size_t>(step)) % counts.size());
      out[i] = in[i] = poisoned(count);
      queue.send(out[i], next_rank(), 3);
      queue.receive(in[i], rank_before(), 3);
    }
    queue.run([&, step] {
      for (std::size_t i = 0; i < out.size(); ++i) fill(out[i], world_rank() * 10 + static_cast<int>(i), step);
    });
    queue.start_and_wait();
    queue.run([&, step] {
      for (std::size_t i = 0; i < in.size(); ++i)
        expect_filled(in[i], rank_before() * 10 + static_cast<int>(i), step, "one of several sizes");
    });
  }
  queue.wait();
}

/// Messages of 1 MB, of which all ranks start their sends first. A stream that waits for another queue moves them, too.
void run_cray_large() {
  constexpr std::size_t kMpixMany = 1 << 18;
  CrayQueue queue;
  MPIX_Queue other = nullptr;
  expect_equal(MPIX_Create_queue(queue.handle_of_stream(), &other), MPI_SUCCESS, "a queue of the same stream");
  std::vector<int> out = poisoned(kMpixMany);
  std::vector<int> in = poisoned(kMpixMany);
  for (int step = 0; step < 3; ++step) {
    queue.run([&out, step] { fill(out, world_rank(), step); });
    queue.send(out, next_rank());
    queue.start();
    MPI_Request dropped = MPI_REQUEST_NULL;
    expect_equal(MPIX_Enqueue_recv(in.data(), static_cast<int>(in.size()), MPI_INT, rank_before(), 0, other, &dropped),
                 MPI_SUCCESS, "a receive on another queue");
    expect_equal(MPIX_Enqueue_start(other), MPI_SUCCESS, "its start");
    expect_equal(MPIX_Enqueue_wait(other), MPI_SUCCESS, "its wait");
    queue.wait_on_stream();
    queue.run([&in, step] { expect_filled(in, rank_before(), step, "a large message"); });
  }
  queue.wait();
  expect_equal(MPIX_Free_queue(other), MPI_SUCCESS, "the end of another queue");
}

/// The host enqueues all steps before the stream of its peer takes any.
void run_cray_ahead() {
  constexpr int kMpixAhead = 1500;
  CrayQueue queue;
  std::vector<int> out = poisoned(1);
  std::vector<int> in = poisoned(1);
  int wrong = 0;
  for (int step = 0; step < kMpixAhead; ++step) {
    queue.run([&, step] { out[0] = stamp(world_rank(), step, 0); });
    queue.send(out, next_rank());
    queue.receive(in, rank_before());
    queue.start_and_wait();
    queue.run([&, step] { wrong += in[0] == stamp(rank_before(), step, 0) ? 0 : 1; });
  }
  queue.wait();
  expect_equal(wrong, 0, "messages of a host that is ahead");
}

/// Two streams of one rank share a tag: the order of the starts decides, not which stream is faster.
void run_cray_streams() {
  CrayQueue first;
  CrayQueue second;
  std::vector<int> out = poisoned(5000);
  std::vector<int> out_second = poisoned(5000);
  std::vector<int> in = poisoned(5000);
  std::vector<int> in_second = poisoned(5000);
  for (int step = 0; step < kMpixSteps; ++step) {
    fill(out, world_rank(), step);
    fill(out_second, world_rank() + 100, step);
    first.send(out, next_rank());
    first.receive(in, rank_before());
    second.send(out_second, next_rank());
    second.receive(in_second, rank_before());
    first.start_and_wait();
    second.start_and_wait();
    second.wait();
    first.wait();
    expect_filled(in, rank_before(), step, "the first of two streams");
    expect_filled(in_second, rank_before() + 100, step, "the second of two streams");
  }
}

/// A queue that the program leaves to MPI_Finalize, in which the stream begins with its messages.
void run_cray_left() {
  static std::atomic<bool> ending = false;
  static HostOrder& order = *new HostOrder;  // outlives MPI_Finalize, as do the buffers
  static std::vector<int>& out = *new std::vector<int>(poisoned(1 << 18));
  static std::vector<int>& in = *new std::vector<int>(poisoned(1 << 18));
  static std::vector<int>& expected = *new std::vector<int>(poisoned(1 << 18));
  fill(out, world_rank(), 1);
  fill(expected, rank_before(), 1);
  const int count = static_cast<int>(out.size());
  std::array<MPI_Request, 2> dropped{};
  MPIX_Queue queue = nullptr;
  expect_equal(MPIX_Create_queue(order.handle_of_stream(), &queue), MPI_SUCCESS, "a queue");
  order.run([] { ending.wait(false); });
  MPIX_Enqueue_send(out.data(), count, MPI_INT, next_rank(), 0, queue, &dropped[0]);
  MPIX_Enqueue_recv(in.data(), count, MPI_INT, rank_before(), 0, queue, &dropped[1]);
  expect_equal(MPIX_Enqueue_start(queue), MPI_SUCCESS, "a start");
  expect_equal(MPIX_Enqueue_wait(queue), MPI_SUCCESS, "a wait of the stream");
  order.run([] {
    std::puts(in == expected ? "the message has arrived" : "the message is lost");
    std::fflush(stdout);
  });
  // MPI_Finalize deletes the last attribute first, and so it ends the queue with its messages under way.
  int key = MPI_KEYVAL_INVALID;
  const auto let_go = [](MPI_Comm, int, void*, void*) -> int {
    ending = true;
    ending.notify_all();
    return MPI_SUCCESS;
  };
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, let_go, &key, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
}

/// The end of a queue, while the peer is in a call of MPI that needs this rank.
void run_cray_beside_mpi() {
  const NotReceived other;
  const int peer = 1 - world_rank();
  const std::vector<int> out(kMpixInts, world_rank());
  std::vector<int> in = poisoned(kMpixInts);
  beside_mpi([&] {
    CrayQueue queue;
    queue.receive(in, peer);
    queue.send(out, peer);
    queue.start_and_wait();
  });
  expect(in == std::vector<int>(kMpixInts, peer), "a message beside MPI");
}
