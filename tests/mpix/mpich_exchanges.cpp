// SPDX-License-Identifier: Apache-2.0
// Programs in MPICH's words, with the host ahead of its stream.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>

#include "tests/mpis/beside_mpi.hpp"
#include "tests/mpix/mpich_comm.hpp"
#include "tests/mpix/programs.hpp"

using namespace stream_mpi_test;

namespace {

constexpr int kMpichSteps = 20;

template <class T>
void check_sum(StreamComm& order, MPI_Datatype type, MPI_Op op, T expected_of_one) {
  std::vector<T> from(33);
  std::vector<T> to(33);
  for (int step = 1; step <= 3; ++step) {
    for (const bool in_place : {false, true}) {
      order.run(
          [&, step, in_place] { std::fill((in_place ? to : from).begin(), (in_place ? to : from).end(), T(step)); });
      const void* const source = in_place ? MPI_IN_PLACE : static_cast<const void*>(from.data());
      expect_equal(MPIX_Allreduce_enqueue(source, to.data(), 33, type, op, order.comm), MPI_SUCCESS, "an allreduce");
      order.run([&, step] {
        for (const T value : to) expect(value == static_cast<T>(T(step) * expected_of_one), "an allreduce");
      });
    }
  }
  order.wait();
}

}  // namespace

/// A large message and work behind it; then a send and a receive that are waited for alone, and as a list.
void run_mpich_pair() {
  constexpr std::size_t kMpichMany = 1000000;
  StreamComm order;
  std::vector<int> buffer = poisoned(kMpichMany);
  for (int step = 0; step < 3; ++step) {
    if (world_rank() == 0) {
      order.run([&, step] { fill(buffer, 0, step); });
      order.send(buffer, 1);
      order.run([&] { std::ranges::fill(buffer, -7); });
      MPI_Request request = order.begin_send(buffer, 1, 2);
      expect_equal(MPIX_Wait_enqueue(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "a wait");
      expect(request != MPI_REQUEST_NULL, "a request that MPIX_Wait_enqueue leaves as it is");
      expect_equal(MPIX_Wait_enqueue(&request, MPI_STATUS_IGNORE), MPI_ERR_REQUEST, "a request that is used up");
    } else {
      order.receive(buffer, 0);
      order.run([&, step] { expect_filled(buffer, 0, step, "a large message"); });
      order.wait_all({order.begin_receive(buffer, 0, 2)});
      order.run([&] { expect(buffer == poisoned(kMpichMany), "the message behind it"); });
    }
  }
  order.wait();
}

/// Receives for all neighbours first, sends that are waited for, and a list with null requests.
void run_mpich_halo() {
  StreamComm order;
  std::array<std::vector<int>, 2> out{poisoned(40), poisoned(40)};
  std::array<std::vector<int>, 2> in = out;
  for (int step = 0; step < kMpichSteps; ++step) {
    std::vector<MPI_Request> requests{order.begin_receive(in[0], rank_before(), 50), MPI_REQUEST_NULL,
                                      order.begin_receive(in[1], next_rank(), 50)};
    order.run([&, step] {
      for (int i : {0, 1}) fill(out.at(static_cast<std::size_t>(i)), world_rank() * 10 + i, step);
    });
    order.send(out[0], next_rank(), 50);
    order.send(out[1], rank_before(), 50);
    order.wait_all(requests);
    order.run([&, step] {
      expect_filled(in[0], rank_before() * 10, step, "a halo from below");
      expect_filled(in[1], next_rank() * 10 + 1, step, "a halo from above");
    });
  }
  order.wait();
}

/// Large sends that have begun move while the stream waits for a receive, and for an allreduce.
void run_mpich_meanwhile() {
  StreamComm order;
  std::vector<int> out = poisoned(200000);
  std::vector<int> in = poisoned(200000);
  int sum = 0;
  for (int step = 0; step < 3; ++step) {
    order.run([&, step] { fill(out, world_rank(), step); });
    const MPI_Request first = order.begin_send(out, next_rank());
    order.receive(in, rank_before());
    order.run([&, step] { expect_filled(in, rank_before(), step, "a message of a send that has begun"); });
    const MPI_Request second = order.begin_send(out, next_rank());
    const int one = 1;
    if (world_rank() == 0) order.receive(in, rank_before());
    expect_equal(MPIX_Allreduce_enqueue(&one, &sum, 1, MPI_INT, MPI_SUM, order.comm), MPI_SUCCESS, "an allreduce");
    if (world_rank() != 0) order.receive(in, rank_before());
    order.wait_all({first, second});
    order.wait();
    expect_equal(sum, world_size(), "a sum beside messages");
  }
}

void run_mpich_allreduce() {
  StreamComm order;
  const int size = world_size();
  check_sum<int>(order, MPI_INT, MPI_SUM, size);
  check_sum<double>(order, MPI_DOUBLE, MPI_SUM, size);
  check_sum<unsigned long>(order, MPI_UNSIGNED_LONG, MPI_MAX, 1);
  check_sum<short>(order, MPI_SHORT, MPI_SUM, static_cast<short>(size));
  struct Pair {
    short value;
    int place;
  };
  std::array<Pair, 2> pairs{Pair{static_cast<short>(10 - world_rank()), world_rank()}, Pair{3, world_rank()}};
  MPIX_Allreduce_enqueue(MPI_IN_PLACE, pairs.data(), 2, MPI_SHORT_INT, MPI_MINLOC, order.comm);
  order.wait();
  expect(pairs[0].value == 10 - (size - 1) && pairs[0].place == size - 1 && pairs[1].place == 0, "a place");
  double value = 1;
  expect_equal(MPIX_Allreduce_enqueue(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_BAND, order.comm), MPI_ERR_OP,
               "bits of a double");
  expect_equal(MPIX_Allreduce_enqueue(MPI_IN_PLACE, &value, 0, MPI_DOUBLE, MPI_SUM, order.comm), MPI_SUCCESS,
               "an allreduce of nothing");
}

/// Communicators of one stream that come and go leave no buffers behind.
void run_mpich_freed() {
  constexpr int kFreedInts = 1 << 20;
  constexpr int kRounds = 16;
  constexpr long kMostGrowth = 32L << 20;
  const auto resident = [] {
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    return pages * sysconf(_SC_PAGESIZE);
  };
  const std::vector<int> from(kFreedInts, 1);
  std::vector<int> to = poisoned(kFreedInts);
  long after_some = 0;
  StreamComm order;
  for (int round = 0; round < kRounds; ++round) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPIX_Stream_comm_create(MPI_COMM_WORLD, order.handle, &comm);
    to.back() = -7;
    const int code = MPIX_Allreduce_enqueue(from.data(), to.data(), kFreedInts, MPI_INT, MPI_SUM, comm);
    expect_equal(code, MPI_SUCCESS, "an allreduce on a communicator that is freed");
    order.wait();
    expect_equal(to.back(), world_size(), "an allreduce on a communicator that is freed");
    MPI_Comm_free(&comm);
    if (round == 2) after_some = resident();
  }
  const long grown = resident() - after_some;
  expect(grown < kMostGrowth, "communicators that were freed leave " + std::to_string(grown) + " bytes");
}

namespace {

/// An allreduce whose communicator is freed while the stream of each rank stands still before it.
class FreedWhileRunning {
 public:
  FreedWhileRunning() {
    order_.run([this] { open_.wait(false); });
    expect_equal(MPIX_Allreduce_enqueue(from_.data(), to.data(), kInts, MPI_INT, MPI_SUM, order_.comm), MPI_SUCCESS,
                 "an allreduce on a communicator that is freed");
    MPI_Comm_free(&order_.comm);
    MPIX_Stream_comm_create(MPI_COMM_WORLD, order_.handle, &order_.comm);  // for the end of `order_`
  }
  FreedWhileRunning(const FreedWhileRunning&) = delete;
  FreedWhileRunning& operator=(const FreedWhileRunning&) = delete;
  ~FreedWhileRunning() = default;

  StreamComm& order() { return order_; }
  void go_on() {
    open_ = true;
    open_.notify_all();
  }

  static constexpr int kInts = 1000;
  std::vector<int> to = poisoned(kInts);

 private:
  std::vector<int> from_ = std::vector<int>(kInts, world_rank() + 1);
  std::atomic<bool> open_ = false;
  StreamComm order_;
};

}  // namespace

/// Another allreduce is the first of its communicator, so it ends what no stream uses any more.
void run_mpich_freed_running() {
  FreedWhileRunning freed;
  int sum = 0;
  const int one = 1;
  expect_equal(MPIX_Allreduce_enqueue(&one, &sum, 1, MPI_INT, MPI_SUM, freed.order().comm), MPI_SUCCESS,
               "an allreduce");
  freed.go_on();
  freed.order().wait();
  expect_equal(sum, world_size(), "a sum behind that of a communicator that was freed");
  expect(freed.to == std::vector<int>(FreedWhileRunning::kInts, world_size() * (world_size() + 1) / 2),
         "sums on a communicator that was freed before the stream came to them");
}

/// MPI ends while the stream carries out such an allreduce, or has not come to it: that it ends is all that is seen.
void run_mpich_left_running() {
  auto* const left = new FreedWhileRunning;  // it lives as long as the process
  left->go_on();
}

/// Duplicates keep the stream, and have messages of their own; a rank may have no stream.
void run_mpich_communicators() {
  StreamComm order;
  MPI_Comm same = MPI_COMM_NULL;
  MPI_Comm_dup(order.comm, &same);
  MPIX_Stream found = MPIX_STREAM_NULL;
  expect_equal(MPIX_Comm_get_stream(same, 0, &found), MPI_SUCCESS, "the stream of a duplicate");
  expect_equal(found, order.handle, "the stream of a duplicate");
  expect_equal(MPIX_Comm_get_stream(MPI_COMM_WORLD, 0, &found), MPI_SUCCESS, "the stream of the world");
  expect_equal(found, MPIX_STREAM_NULL, "the stream of the world");
  int out = world_rank();
  int out_same = world_rank() + 100;
  int in = -1;
  int in_same = -1;
  MPIX_Send_enqueue(&out, 1, MPI_INT, next_rank(), 4, order.comm);
  MPIX_Send_enqueue(&out_same, 1, MPI_INT, next_rank(), 4, same);
  MPIX_Recv_enqueue(&in_same, 1, MPI_INT, rank_before(), 4, same, MPI_STATUS_IGNORE);
  MPIX_Recv_enqueue(&in, 1, MPI_INT, rank_before(), 4, order.comm, MPI_STATUS_IGNORE);
  order.wait();
  expect_equal(in, rank_before(), "a message of one communicator");
  expect_equal(in_same, rank_before() + 100, "a message of its duplicate");

  MPIX_Stream_free(&order.handle);
  expect_equal(MPIX_Comm_get_stream(same, 0, &found), MPI_SUCCESS, "a stream that was freed");
  expect_equal(found, MPIX_STREAM_NULL, "a stream that was freed");
  MPIX_Send_enqueue(&in, 1, MPI_INT, next_rank(), 5, same);
  MPIX_Recv_enqueue(&in_same, 1, MPI_INT, rank_before(), 5, same, MPI_STATUS_IGNORE);
  order.wait();
  expect_equal(in_same, (rank_before() + world_size() - 1) % world_size(), "a communicator keeps its stream");
  MPI_Comm_free(&same);

  MPI_Comm half = MPI_COMM_NULL;
  StreamComm other;
  expect_equal(MPIX_Stream_comm_create(MPI_COMM_WORLD, world_rank() == 0 ? other.handle : MPIX_STREAM_NULL, &half),
               MPI_SUCCESS, "a communicator with one stream");
  const int met = MPIX_Send_enqueue(&out, 1, MPI_INT, MPI_PROC_NULL, 0, half);
  expect_equal(met, world_rank() == 0 ? MPI_SUCCESS : MPI_ERR_COMM, "a send on a rank without a stream");
  MPI_Comm_free(&half);
}

/// Statuses are written when the stream comes there.
void run_mpich_statuses() {
  StreamComm order;
  std::vector<int> out{1, 2, 3};
  std::vector<int> in = poisoned(8);
  std::array<MPI_Status, 3> statuses{};
  for (MPI_Status& status : statuses) status.MPI_SOURCE = -7;
  std::vector<MPI_Request> requests{order.begin_receive(in, rank_before(), 17), order.begin_send(out, next_rank(), 17),
                                    order.begin_receive(in, MPI_PROC_NULL, 17)};
  expect_equal(MPIX_Waitall_enqueue(3, requests.data(), statuses.data()), MPI_SUCCESS, "a wait for all");
  MPI_Status status;
  order.send(out, next_rank(), 18);
  order.receive(in, rank_before(), 18, &status);
  order.wait();
  int count = 0;
  for (const MPI_Status* const one : {statuses.data(), &status}) {
    MPI_Get_count(one, MPI_INT, &count);
    expect_equal(count, 3, "the count");
    expect_equal(one->MPI_SOURCE, rank_before(), "the source");
    expect_equal(one->MPI_TAG, one == &status ? 18 : 17, "the tag");
  }
  MPI_Get_count(&statuses[2], MPI_INT, &count);
  expect(count == 0 && statuses[2].MPI_SOURCE == MPI_PROC_NULL, "the status of a message of nobody");
}

/// The end of a stream, while the peer is in a call of MPI that needs this rank.
void run_mpich_beside_mpi() {
  const NotReceived other;
  const int peer = 1 - world_rank();
  const std::vector<int> out(100, world_rank());
  std::vector<int> in = poisoned(100);
  StreamComm comm;
  beside_mpi([&] {
    std::vector<MPI_Request> requests{comm.begin_receive(in, peer), comm.begin_send(out, peer)};
    comm.wait_all(requests);
    expect_equal(MPIX_Stream_free(&comm.handle), MPI_SUCCESS, "the end of a stream");
  });
  expect(in == std::vector<int>(100, peer), "a message beside MPI");
}
