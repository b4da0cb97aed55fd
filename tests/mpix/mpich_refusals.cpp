// SPDX-License-Identifier: Apache-2.0
// Calls that MPICH's dialect refuses, and failures.
#include "tests/mpix/mpich_comm.hpp"
#include "tests/mpix/programs.hpp"

using namespace stream_mpi_test;

void run_mpich_arguments() {
  StreamComm order;
  int value = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  const auto receive = [&](int peer, int tag, MPI_Comm comm) {
    return MPIX_Irecv_enqueue(&value, 1, MPI_INT, peer, tag, comm, &request);
  };
  expect_equal(receive(MPI_ANY_SOURCE, 0, order.comm), MPI_ERR_UNSUPPORTED_OPERATION, "any source");
  expect_equal(receive(0, MPI_ANY_TAG, order.comm), MPI_ERR_UNSUPPORTED_OPERATION, "any tag");
  expect_equal(receive(world_size(), 0, order.comm), MPI_ERR_RANK, "a rank that does not exist");
  expect_equal(receive(0, 0, MPI_COMM_WORLD), MPI_ERR_COMM, "a communicator without a stream");
  expect_equal(receive(0, 0, MPI_COMM_NULL), MPI_ERR_COMM, "a null communicator");
  expect_equal(MPIX_Send_enqueue(&value, -1, MPI_INT, 0, 0, order.comm), MPI_ERR_COUNT, "a negative count");
  expect(request == MPI_REQUEST_NULL, "a request that was not made");
  expect_equal(MPIX_Wait_enqueue(&request, MPI_STATUS_IGNORE), MPI_ERR_REQUEST, "a null request");
  int other_value = 0;
  MPI_Irecv(&other_value, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request);
  expect_equal(MPIX_Waitall_enqueue(1, &request, MPI_STATUSES_IGNORE), MPI_ERR_REQUEST, "a request of MPI's");
  MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  StreamComm other;
  MPI_Request requests[2] = {order.begin_send({}, MPI_PROC_NULL), other.begin_send({}, MPI_PROC_NULL)};
  expect_equal(MPIX_Waitall_enqueue(2, requests, MPI_STATUSES_IGNORE), MPI_ERR_REQUEST, "requests of two streams");
  order.wait_all({requests[0]});
  other.wait_all({requests[1]});

  MPIX_Stream stream = MPIX_STREAM_NULL;
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "type", "river");
  expect_equal(MPIX_Stream_create(info, &stream), MPI_ERR_UNSUPPORTED_OPERATION, "a type of no stream");
  void* const no_stream = nullptr;
  for (const char* const type : {"cudaStream_t", "hipStream_t"}) {
    MPI_Info_set(info, "type", type);
    expect_equal(MPIX_Stream_create(info, &stream), MPI_ERR_INFO_VALUE, type);
    if (on_gpu()) continue;
    MPIX_Info_set_hex(info, "value", static_cast<const void*>(&no_stream), sizeof no_stream);
    expect_equal(MPIX_Stream_create(info, &stream), MPI_ERR_UNSUPPORTED_OPERATION, "a stream of a GPU without one");
    MPI_Info_delete(info, "value");
  }
  MPI_Info_set(info, "type", "sluice_host_stream*");
  expect_equal(MPIX_Stream_create(info, &stream), MPI_ERR_INFO_VALUE, "a type without a value");
  MPI_Info_set(info, "value", "00112233445566zz");
  expect_equal(MPIX_Stream_create(info, &stream), MPI_ERR_INFO_VALUE, "a value that is not in hex");
  MPI_Info_free(&info);
  expect_equal(stream, MPIX_STREAM_NULL, "a stream that was not made");
  expect_equal(MPIX_Stream_free(&stream), MPI_ERR_ARG, "the end of a null stream");
  expect_equal(MPIX_Stream_create(MPI_INFO_NULL, &stream), MPI_SUCCESS, "a stream for a thread");
  MPI_Comm of_thread = MPI_COMM_NULL;
  expect_equal(MPIX_Stream_comm_create(MPI_COMM_WORLD, stream, &of_thread), MPI_SUCCESS, "its communicator");
  expect_equal(receive(0, 0, of_thread), MPI_ERR_COMM, "a communicator with a stream for a thread");
  MPI_Comm_free(&of_thread);
  expect_equal(MPIX_Stream_free(&stream), MPI_SUCCESS, "the end of a stream for a thread");
}

/// The status and the stream tell that a message does not fit.
void run_mpich_truncation() {
  StreamComm order;
  std::vector<int> out{1, 2, 3};
  std::vector<int> in = poisoned(2);
  MPI_Status status;
  status.MPI_ERROR = MPI_SUCCESS;
  order.send(out, next_rank());
  order.receive(in, rank_before(), 0, &status);
  expect_equal(MPIX_Stream_free(&order.handle), MPI_ERR_TRUNCATE, "a message that does not fit");
  expect_equal(status.MPI_ERROR, MPI_ERR_TRUNCATE, "the status of a message that does not fit");
  expect(in[0] == 1 && in[1] == 2, "the part that fits");
  order.handle = MPIX_STREAM_NULL;
}

/// The stream of rank 1 stops before an allreduce: no rank waits for it for ever, and none gets a sum, nor from later
/// ones of this size. Those of another size go on.
void run_mpich_dropped() {
  StreamComm order;
  const int sum = world_size() * (world_size() + 1) / 2;
  std::vector<int> values;
  const auto allreduce = [&](int count) {
    values.assign(3, world_rank() + 1);
    expect_equal(MPIX_Allreduce_enqueue(MPI_IN_PLACE, values.data(), count, MPI_INT, MPI_SUM, order.comm), MPI_SUCCESS,
                 "an allreduce");
  };
  allreduce(2);
  order.wait();
  expect_equal(values[0], sum, "a sum");
  if (world_rank() == 1)
    sluice_host_stream_run(
        order.stream, [](void*) { return 1; }, nullptr);
  allreduce(2);
  if (world_rank() == 1)
    expect(sluice_host_stream_synchronize(order.stream, SLUICE_FOREVER) != SLUICE_OK, "a stream that has stopped");
  else
    order.wait();
  expect_equal(values[0], world_rank() + 1, "a sum that one rank has dropped");
  allreduce(2);
  order.wait();
  expect_equal(values[0], world_rank() + 1, "a sum behind one that was dropped");
  allreduce(3);
  order.wait();
  expect_equal(values[0], sum, "a sum of another size");
  expect_equal(MPIX_Stream_free(&order.handle), MPI_ERR_OTHER, "sums that one rank has dropped");
  order.handle = MPIX_STREAM_NULL;
}

/// With a short SLUICE_CONNECT_TIMEOUT: rank 1 calls for an allreduce before rank 0 does, and then again.
void run_mpich_late() {
  StreamComm order;
  std::vector<int> value{world_rank() + 1, 7};
  const auto allreduce = [&](int count) {
    return MPIX_Allreduce_enqueue(MPI_IN_PLACE, value.data(), count, MPI_INT, MPI_SUM, order.comm);
  };
  if (world_rank() == 1) expect_equal(allreduce(1), MPI_ERR_OTHER, "an allreduce without rank 0");
  MPI_Barrier(MPI_COMM_WORLD);
  expect_equal(allreduce(1), MPI_SUCCESS, "the same allreduce");
  order.wait();
  expect_equal(value[0], 3, "the sum of an allreduce that was called again");
  expect_equal(allreduce(2), MPI_SUCCESS, "the allreduce behind it");
  order.wait();
  expect_equal(value[0], 6, "a sum behind it");
  expect_equal(value[1], 14, "a sum behind it");
}
