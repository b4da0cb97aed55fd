// SPDX-License-Identifier: Apache-2.0
// The least and the largest of pairs, at MPI_THREAD_SINGLE.
#include <array>

#include "tests/mpix/mpich_comm.hpp"
#include "tests/mpix/programs.hpp"

using namespace stream_mpi_test;

namespace {

template <class Value>
struct Place {
  Value value;
  int index;
};

/// The extreme is at one rank, at all of them, and at the last two.
template <class Value>
void check_places(StreamComm& order, MPI_Datatype type, MPI_Op op) {
  const bool least = op == MPI_MINLOC;
  const int last = world_size() - 1;
  const auto worse = static_cast<Value>(least ? 9 : -9);
  const auto mine = [&](bool extreme) { return Place<Value>{extreme ? Value(0) : worse, world_rank() + 3}; };
  const std::array<Place<Value>, 3> from{mine(world_rank() == last), mine(true), mine(world_rank() >= last - 1)};
  std::array<Place<Value>, 3> to{};
  expect_equal(MPIX_Allreduce_enqueue(from.data(), to.data(), 3, type, op, order.comm), MPI_SUCCESS, "places");
  order.wait();
  for (const Place<Value>& one : to) expect(one.value == Value(0), "an extreme");
  expect_equal(to[0].index, last + 3, "the place of an extreme");
  expect_equal(to[1].index, 3, "the lowest place of several");
  expect_equal(to[2].index, last + 2, "the lower place of two");
}

}  // namespace

void run_mpich_places() {
  StreamComm order;
  for (const MPI_Op op : {MPI_MINLOC, MPI_MAXLOC}) {
    check_places<int>(order, MPI_2INT, op);
    check_places<short>(order, MPI_SHORT_INT, op);
    check_places<long>(order, MPI_LONG_INT, op);
    check_places<float>(order, MPI_FLOAT_INT, op);
    check_places<double>(order, MPI_DOUBLE_INT, op);
    check_places<long double>(order, MPI_LONG_DOUBLE_INT, op);
  }
  short value = 1;
  expect_equal(MPIX_Allreduce_enqueue(MPI_IN_PLACE, &value, 1, MPI_SHORT, MPI_SUM, order.comm),
               MPI_ERR_UNSUPPORTED_OPERATION, "an operation that MPI carries out, without MPI_THREAD_MULTIPLE");
}

/// A stream has a thread of its own, so that these change nothing but how far messages have got.
void run_mpich_progress() {
  StreamComm order;
  std::vector<int> out = poisoned(50000);
  std::vector<int> in = poisoned(50000);
  fill(out, world_rank(), 0);
  expect_equal(MPIX_Start_progress_thread(order.handle), MPI_SUCCESS, "the start of a progress thread");
  const MPI_Request send = order.begin_send(out, next_rank());
  const MPI_Request receive = order.begin_receive(in, rank_before());
  order.wait();
  const double limit = MPI_Wtime() + 10;  // reached only by a library that moves nothing
  while (in.back() == -7 && MPI_Wtime() < limit)
    expect_equal(MPIX_Stream_progress(order.handle), MPI_SUCCESS, "progress without a wait");
  expect_filled(in, rank_before(), 0, "a message that progress has moved");
  order.wait_all({send, receive});
  order.wait();
  expect_equal(MPIX_Stop_progress_thread(order.handle), MPI_SUCCESS, "the end of a progress thread");

  for (auto* const call : {MPIX_Start_progress_thread, MPIX_Stop_progress_thread, MPIX_Stream_progress}) {
    expect_equal(call(MPIX_STREAM_NULL), MPI_SUCCESS, "progress of no stream");
    expect_equal(call(order.handle + 1), MPI_ERR_ARG, "progress of a stream that does not exist");
  }
}
