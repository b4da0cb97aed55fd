// SPDX-License-Identifier: Apache-2.0
// Programs that exchange messages in rounds, with the host ahead of its stream.
#include <array>
#include <chrono>
#include <thread>

#include "tests/mpis/beside_mpi.hpp"
#include "tests/mpis/order.hpp"
#include "tests/mpis/programs.hpp"

using namespace stream_mpi_test;

namespace {

constexpr int kMpisInts = 40;
constexpr int kMpisSteps = 20;

}  // namespace

/// Each rank adds 1 to what the one before sends, from rank 0 around to it; the send is named first.
void run_ring() {
  Order order;
  std::vector<int> out = poisoned(kMpisInts);
  std::vector<int> in = poisoned(kMpisInts);
  std::vector<MPIS_Request> requests{send_of(out.data(), kMpisInts, next_rank()),
                                     receive_of(in.data(), kMpisInts, rank_before())};
  match_all(requests);
  for (int step = 0; step < kMpisSteps; ++step) {
    if (world_rank() == 0) {
      order.run([&out, step] { fill(out, 0, step); });
      order.start_all(requests);
    } else {
      order.start(requests[1]);
      order.wait_all();
      order.run([&] {
        for (std::size_t i = 0; i < in.size(); ++i) out[i] = in[i] + 1;
      });
      order.start(requests[0]);
    }
    order.wait_all();
    order.run([&in, step] {
      const int added = world_rank() == 0 ? world_size() - 1 : world_rank() - 1;
      for (std::size_t i = 0; i < in.size(); ++i)
        expect_equal(in[i], stamp(0, step, static_cast<int>(i)) + added, "a ring");
    });
  }
  order.wait();
  free_all(requests);
}

/// Four neighbours.
void run_halo() {
  Order order;
  Grid grid;
  std::array<std::vector<int>, 4> out;
  std::array<std::vector<int>, 4> in;
  std::vector<MPIS_Request> receives;
  std::vector<MPIS_Request> sends;
  // A message to one direction arrives from the opposite one: both are named in the same order.
  for (std::size_t i = 0; i < 4; ++i) {
    out[i] = in[i] = poisoned(kMpisInts);
    receives.push_back(receive_of(in[i].data(), kMpisInts, grid.peers[i], 50, grid.comm));
    sends.push_back(send_of(out[i].data(), kMpisInts, grid.peers[i ^ 1U], 50, grid.comm));
  }
  std::vector<MPIS_Request> all = receives;
  all.insert(all.end(), sends.begin(), sends.end());
  match_all(all);
  for (int step = 0; step < kMpisSteps; ++step) {
    order.start_all(receives);
    order.run([&, step] {
      for (std::size_t i = 0; i < 4; ++i) fill(out[i], grid.rank * 10 + static_cast<int>(i), step);
    });
    order.start_all(sends);
    order.wait_all();
    order.run([&, step] {
      for (std::size_t i = 0; i < 4; ++i)
        expect_filled(in[i], grid.peers[i] * 10 + static_cast<int>(i), step, "a halo");
    });
  }
  order.wait();
  free_all(receives);
  free_all(sends);
  MPI_Comm_free(&grid.comm);
}

/// Two ranks, of which one matches its receive first and the other its send.
void run_ping_pong() {
  Order order;
  const int peer = 1 - world_rank();
  const bool first = world_rank() == 0;
  std::vector<int> out = poisoned(kMpisInts);
  std::vector<int> in = poisoned(kMpisInts);
  std::vector<MPIS_Request> requests{
      first ? receive_of(in.data(), kMpisInts, peer) : send_of(out.data(), kMpisInts, peer),
      first ? send_of(out.data(), kMpisInts, peer) : receive_of(in.data(), kMpisInts, peer)};
  match(requests[0]);
  match(requests[1]);
  for (int step = 0; step < 10 * kMpisSteps; ++step) {
    if (first) {
      order.run([&out, step] { fill(out, 0, step); });
      order.start_all(requests);
    } else {
      order.start(requests[1]);
      order.wait_all();
      order.run([&out, &in] { out = in; });
      order.start(requests[0]);
    }
    order.wait_all();
    order.run([&in, step] { expect_filled(in, 0, step, "a ping-pong"); });
  }
  order.wait();
  free_all(requests);
}

/// Two ranks, which both match their sends first, one at a time; then both their receives.
void run_crossed() {
  Order order;
  const int peer = 1 - world_rank();
  for (const bool send_first : {true, false}) {
    std::vector<int> out = poisoned(kMpisInts);
    std::vector<int> in = poisoned(kMpisInts);
    std::vector<MPIS_Request> requests{send_of(out.data(), kMpisInts, peer), receive_of(in.data(), kMpisInts, peer)};
    match(requests[send_first ? 0 : 1]);
    match(requests[send_first ? 1 : 0]);
    fill(out, world_rank(), 1);
    order.start_all(requests);
    order.wait_all();
    order.wait();
    expect_filled(in, peer, 1, "a message of requests that were matched in opposite order");
    free_all(requests);
  }
}

/// Two sets of requests with one tag, which take turns: the n-th belongs to the n-th.
void run_doubles() {
  Order order;
  const int peer = 1 - world_rank();
  std::array<std::vector<int>, 2> out{poisoned(kMpisInts), poisoned(kMpisInts)};
  std::array<std::vector<int>, 2> in{poisoned(kMpisInts), poisoned(kMpisInts)};
  std::array<std::vector<MPIS_Request>, 2> sets;
  for (std::size_t i = 0; i < 2; ++i) {
    sets[i] = {receive_of(in[i].data(), kMpisInts, peer), send_of(out[i].data(), kMpisInts, peer)};
    for (MPIS_Request& request : sets[i]) match(request);
  }
  for (int step = 0; step < kMpisSteps; ++step) {
    const auto set = static_cast<std::size_t>(step % 2);
    order.run([&out, set, step] { fill(out[set], world_rank(), step); });
    order.start_all(sets[set]);
    order.wait_all();
    order.run([&in, set, peer, step] { expect_filled(in[set], peer, step, "a double buffer"); });
  }
  order.wait();
  for (auto& set : sets) free_all(set);
}

/// A send whose receiver starts late, by a ready send and by another: nothing lands before the receiver's start, also
/// not in memory that the sender writes to.
void run_ready() {
  Order order;
  const int peer = 1 - world_rank();
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "mpi_memory_alloc_kinds", "system");
  void* memory = nullptr;
  expect_equal(MPIS_Alloc_mem(2 * kMpisInts * sizeof(int), info, &memory), MPIS_SUCCESS, "memory");
  MPI_Info_free(&info);
  int* const buffer = static_cast<int*>(memory);
  for (int i = 0; i < 2 * kMpisInts; ++i) buffer[i] = world_rank() == 0 ? stamp(0, 3, i) : -7;
  std::vector<MPIS_Request> requests(2);
  if (world_rank() == 0) {
    requests[1] = send_of(buffer + kMpisInts, kMpisInts, peer);
    const int code =
        MPIS_Rsend_init(buffer, kMpisInts, MPI_INT, peer, 0, MPI_COMM_WORLD, MPI_INFO_NULL, requests.data());
    expect_equal(code, MPIS_SUCCESS, "a ready send");
  } else {
    requests = {receive_of(buffer, kMpisInts, peer), receive_of(buffer + kMpisInts, kMpisInts, peer)};
  }
  match_all(requests);
  if (world_rank() == 1) MPI_Barrier(MPI_COMM_WORLD);  // the sender has enqueued its start
  if (world_rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
  for (int i = 0; i < 2 * kMpisInts && world_rank() == 1; ++i)
    expect_equal(buffer[i], -7, "a buffer before the start of its receive");
  for (MPIS_Request& request : requests) {
    order.start(request);
    order.wait_all();
    if (world_rank() == 0 && &request == requests.data()) MPI_Barrier(MPI_COMM_WORLD);
  }
  order.wait();
  for (int i = 0; i < 2 * kMpisInts; ++i) expect_equal(buffer[i], stamp(0, 3, i), "a ready send");
  free_all(requests);
  expect_equal(MPIS_Free_mem(memory), MPIS_SUCCESS, "the end of memory");
}

/// Both ranks start their sends first, and their receives by a later call, before they wait for any.
void run_sends_first() {
  Order order;
  const int peer = 1 - world_rank();
  std::vector<int> out = poisoned(kMpisInts);
  std::vector<int> in = poisoned(kMpisInts);
  std::vector<MPIS_Request> requests{send_of(out.data(), kMpisInts, peer), receive_of(in.data(), kMpisInts, peer)};
  match_all(requests);
  for (int step = 0; step < kMpisSteps; ++step) {
    order.run([&out, step] { fill(out, world_rank(), step); });
    order.start(requests[0]);
    order.start(requests[1]);
    order.wait_all();
    order.run([&in, peer, step] { expect_filled(in, peer, step, "sends first"); });
  }
  order.wait();
  free_all(requests);
}

/// Rank 0 waits for sends to 1 and 2 together; 1 takes its message only when it has one of 2, which needs its own.
/// On a host stream alone: a GPU's stream puts one after the other.
void run_fan() {
  Order order;
  std::vector<int> to_one = poisoned(kMpisInts);
  std::vector<int> to_two = poisoned(kMpisInts);
  std::vector<int> forwarded = poisoned(kMpisInts);
  std::vector<MPIS_Request> requests;
  if (world_rank() == 0) requests = {send_of(to_one.data(), kMpisInts, 1), send_of(to_two.data(), kMpisInts, 2)};
  if (world_rank() == 1)
    requests = {receive_of(forwarded.data(), kMpisInts, 2), receive_of(to_one.data(), kMpisInts, 0)};
  if (world_rank() == 2) requests = {receive_of(to_two.data(), kMpisInts, 0), send_of(to_two.data(), kMpisInts, 1)};
  match_all(requests);
  for (int step = 0; step < kMpisSteps && world_rank() < 3; ++step) {
    if (world_rank() == 0) {
      fill(to_one, 1, step);
      fill(to_two, 2, step);
      order.start_all(requests);
    } else {
      order.start(requests[0]);
      order.wait_all();
      order.start(requests[1]);
    }
    order.wait_all();
    order.wait();
    if (world_rank() != 1) continue;
    expect_filled(to_one, 1, step, "a message that was held back");
    expect_filled(forwarded, 2, step, "a message by way of another rank");
  }
  free_all(requests);
}

/// The host enqueues all steps before the stream of its peer takes any.
void run_ahead() {
  constexpr int kAhead = 1500;
  Order order;
  const int peer = 1 - world_rank();
  int out = 0;
  int in = -1;
  int wrong = 0;
  std::vector<MPIS_Request> requests{receive_of(&in, 1, peer), send_of(&out, 1, peer)};
  match_all(requests);
  for (int step = 0; step < kAhead; ++step) {
    order.run([&, step] { out = stamp(world_rank(), step, 0); });
    order.start_all(requests);
    order.wait_all();
    order.run([&, step] { wrong += in == stamp(peer, step, 0) ? 0 : 1; });
  }
  order.wait();
  expect_equal(wrong, 0, "messages of a host that is ahead");
  free_all(requests);
}

/// More lists of requests are in front of the stream than a line looks through.
void run_many_lists_ahead() {
  constexpr int kLists = 40;
  Order order;
  std::vector<std::vector<int>> out(kLists, std::vector<int>(3));
  std::vector<std::vector<int>> in(kLists, poisoned(3));
  std::vector<std::vector<MPIS_Request>> lists;
  for (std::size_t i = 0; i < kLists; ++i) {
    fill(out[i], world_rank(), static_cast<int>(i));
    lists.push_back({receive_of(in[i].data(), 3, rank_before(), static_cast<int>(i)),
                     send_of(out[i].data(), 3, next_rank(), static_cast<int>(i))});
    match_all(lists.back());
  }
  {
    const Gate gate(order);
    for (auto& requests : lists) {
      order.start_all(requests);
      order.wait_all();
    }
  }
  order.wait();
  for (std::size_t i = 0; i < kLists; ++i) expect_filled(in[i], rank_before(), static_cast<int>(i), "a list ahead");
  for (auto& requests : lists) free_all(requests);
}

void run_many_requests() {
  constexpr int kRequests = 300;
  Order order;
  const int peer = 1 - world_rank();
  std::vector<int> out = poisoned(kRequests);
  std::vector<int> in = poisoned(kRequests);
  std::vector<MPIS_Request> requests;
  for (int i = 0; i < kRequests; ++i) {
    requests.push_back(receive_of(&in[static_cast<std::size_t>(i)], 1, peer, i % 7));
    requests.push_back(send_of(&out[static_cast<std::size_t>(i)], 1, peer, i % 7));
  }
  match_all(requests);
  for (int step = 0; step < 5; ++step) {
    order.run([&out, step] { fill(out, world_rank(), step); });
    order.start_all(requests);
    order.wait_all();
    order.run([&in, peer, step] { expect_filled(in, peer, step, "one of many requests"); });
  }
  order.wait();
  free_all(requests);
}

void run_beside_mpi() { advance_beside_mpi(); }
