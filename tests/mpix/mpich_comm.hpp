// SPDX-License-Identifier: Apache-2.0
// A communicator of MPICH's dialect with a host stream.
#pragma once

#include <sluice/dialects/mpich.h>

#include <vector>

#include "tests/mpix/host_order.hpp"

namespace stream_mpi_test {

class StreamComm : public HostOrder {
 public:
  explicit StreamComm(MPI_Comm of = MPI_COMM_WORLD) {
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    void* const named = handle_of_stream();
    MPI_Info_set(info, "type", type_of_stream().c_str());
    expect_equal(MPIX_Info_set_hex(info, "value", static_cast<const void*>(&named), sizeof named), MPI_SUCCESS,
                 "a stream in hex");
    expect_equal(MPIX_Stream_create(info, &handle), MPI_SUCCESS, "a stream");
    MPI_Info_free(&info);
    expect_equal(MPIX_Stream_comm_create(of, handle, &comm), MPI_SUCCESS, "a communicator with a stream");
  }
  StreamComm(const StreamComm&) = delete;
  StreamComm& operator=(const StreamComm&) = delete;
  ~StreamComm() {
    MPI_Comm_free(&comm);
    if (handle == MPIX_STREAM_NULL) return;
    expect_equal(MPIX_Stream_free(&handle), MPI_SUCCESS, "the end of a stream");
    expect(handle == MPIX_STREAM_NULL, "a freed stream is null");
  }

  void send(const std::vector<int>& buffer, int peer, int tag = 0) {
    expect_equal(MPIX_Send_enqueue(buffer.data(), static_cast<int>(buffer.size()), MPI_INT, peer, tag, comm),
                 MPI_SUCCESS, "a send");
  }
  void receive(std::vector<int>& buffer, int peer, int tag = 0, MPI_Status* status = MPI_STATUS_IGNORE) {
    expect_equal(MPIX_Recv_enqueue(buffer.data(), static_cast<int>(buffer.size()), MPI_INT, peer, tag, comm, status),
                 MPI_SUCCESS, "a receive");
  }
  MPI_Request begin_send(const std::vector<int>& buffer, int peer, int tag = 0) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int count = static_cast<int>(buffer.size());
    expect_equal(MPIX_Isend_enqueue(buffer.data(), count, MPI_INT, peer, tag, comm, &request), MPI_SUCCESS, "a send");
    return request;
  }
  MPI_Request begin_receive(std::vector<int>& buffer, int peer, int tag = 0) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int count = static_cast<int>(buffer.size());
    expect_equal(MPIX_Irecv_enqueue(buffer.data(), count, MPI_INT, peer, tag, comm, &request), MPI_SUCCESS,
                 "a receive");
    return request;
  }
  void wait_all(std::vector<MPI_Request> requests) {
    const int count = static_cast<int>(requests.size());
    expect_equal(MPIX_Waitall_enqueue(count, requests.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS, "a wait for all");
    for (const MPI_Request request : requests) expect(request == MPI_REQUEST_NULL, "a request that was waited for");
  }

  MPIX_Stream handle = MPIX_STREAM_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
};

}  // namespace stream_mpi_test
