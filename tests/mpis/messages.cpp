// SPDX-License-Identifier: Apache-2.0
// Datatypes, messages without bytes or peer, statuses, matches that complete later.
#include <array>

#include "tests/mpis/order.hpp"
#include "tests/mpis/programs.hpp"

using namespace stream_mpi_test;

namespace {

void run_once(Order& order, std::vector<MPIS_Request>& requests) {
  order.start_all(requests);
  order.wait_all();
  order.wait();
}

}  // namespace

/// A column of a matrix is received as a row, and a struct with gaps as it is.
void run_types() {
  constexpr int kMpisRows = 6;
  Order order;
  const int peer = 1 - world_rank();
  std::array<int, kMpisRows * kMpisRows> matrix{};
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = stamp(world_rank(), 1, static_cast<int>(i));
  std::vector<int> row(kMpisRows, -7);
  const std::array<int, 2> sizes{kMpisRows, kMpisRows};
  const std::array<int, 2> part{kMpisRows, 1};
  const std::array<int, 2> first{0, 2};
  MPI_Datatype subarray = MPI_DATATYPE_NULL;  // not committed, since it is a part of a type
  MPI_Datatype column = MPI_DATATYPE_NULL;
  MPI_Type_create_subarray(2, sizes.data(), part.data(), first.data(), MPI_ORDER_C, MPI_INT, &subarray);
  MPI_Type_contiguous(1, subarray, &column);
  MPI_Type_free(&subarray);
  MPI_Type_commit(&column);
  struct Gaps {
    char tag;
    double value;
  };
  Gaps out_gaps{static_cast<char>('a' + world_rank()), 0.5 + world_rank()};
  Gaps in_gaps{'?', -1};
  const std::array<int, 2> lengths{1, 1};
  const std::array<MPI_Aint, 2> places{0, sizeof(double)};
  const std::array<MPI_Datatype, 2> kinds{MPI_CHAR, MPI_DOUBLE};
  MPI_Datatype gaps = MPI_DATATYPE_NULL;
  MPI_Type_create_struct(2, lengths.data(), places.data(), kinds.data(), &gaps);
  MPI_Type_commit(&gaps);
  std::vector<MPIS_Request> requests{
      send_of(matrix.data(), 1, peer, 0, MPI_COMM_WORLD, column), receive_of(row.data(), kMpisRows, peer),
      send_of(&out_gaps, 1, peer, 1, MPI_COMM_WORLD, gaps), receive_of(&in_gaps, 1, peer, 1, MPI_COMM_WORLD, gaps)};
  MPI_Type_free(&column);
  MPI_Type_free(&gaps);
  match_all(requests);
  for (int step = 0; step < 5; ++step) {
    order.run([&, step] {
      for (int& value : matrix) value += step;
      out_gaps.value += step;
    });
    run_once(order, requests);
  }
  for (int i = 0; i < kMpisRows; ++i)
    expect_equal(row[static_cast<std::size_t>(i)], stamp(peer, 1, 2 + i * kMpisRows) + 10, "a column");
  expect(in_gaps.tag == 'a' + peer && in_gaps.value == 10.5 + peer, "a struct with gaps");
  free_all(requests);
}

void run_nobody() {
  Order order;
  int value = 5;
  std::vector<MPIS_Request> requests{send_of(&value, 1, MPI_PROC_NULL), receive_of(&value, 1, MPI_PROC_NULL)};
  std::array<MPI_Status, 2> statuses{};
  expect_equal(MPIS_Matchall(2, requests.data(), statuses.data()), MPIS_SUCCESS, "a match with nobody");
  expect_equal(statuses[1].MPI_SOURCE, MPI_PROC_NULL, "the source of a message of nobody");
  expect_equal(statuses[1].MPI_TAG, MPI_ANY_TAG, "the tag of a message of nobody");
  for (int step = 0; step < 3; ++step) run_once(order, requests);
  expect_equal(value, 5, "a buffer for nobody");
  requests.push_back(MPIS_REQUEST_NULL);
  run_once(order, requests);
  free_all(requests);
}

/// A message without bytes orders streams all the same.
void run_empty() {
  Order order;
  const int peer = 1 - world_rank();
  std::vector<MPIS_Request> requests{receive_of(nullptr, 0, peer), send_of(nullptr, 0, peer)};
  match_all(requests);
  for (int step = 0; step < 10; ++step) run_once(order, requests);
  free_all(requests);
}

void run_statuses() {
  Order order;
  const int peer = 1 - world_rank();
  const std::array<int, 3> out{1, 2, 3};
  std::array<int, 8> in{};
  in.fill(-7);
  std::vector<MPIS_Request> requests{receive_of(in.data(), 8, peer, 17), send_of(out.data(), 3, peer, 17)};
  std::array<MPI_Status, 2> statuses{};
  expect_equal(MPIS_Matchall(2, requests.data(), statuses.data()), MPIS_SUCCESS, "a match");
  int count = 0;
  MPI_Get_count(statuses.data(), MPI_INT, &count);
  expect_equal(statuses[0].MPI_SOURCE, peer, "the source");
  expect_equal(statuses[0].MPI_TAG, 17, "the tag");
  expect_equal(count, 3, "the count");
  run_once(order, requests);
  expect(in[2] == 3 && in[3] == -7, "a message that is shorter than its buffer");
  free_all(requests);
}

/// Matches that begin, and complete later: by a wait, or by the first start.
void run_imatch() {
  Order order;
  const int peer = 1 - world_rank();
  int out = 40 + world_rank();
  int in = 0;
  std::vector<MPIS_Request> requests{receive_of(&in, 1, peer), send_of(&out, 1, peer), MPIS_REQUEST_NULL};
  std::vector<MPIS_Request> matches(3);
  int flag = 1;
  expect_equal(MPIS_Is_matched(&requests[0], &flag), MPIS_SUCCESS, "a question");
  expect_equal(flag, 0, "whether it is matched before");
  for (std::size_t i = 0; i < 3; ++i)
    expect_equal(MPIS_Imatch(&requests[i], &matches[i]), MPIS_SUCCESS, "the beginning of a match");
  expect(matches[2] == MPIS_REQUEST_NULL, "the match of a null request is null");
  MPI_Status status;
  expect_equal(MPIS_Wait(&matches[0], &status), MPIS_SUCCESS, "a wait for a match");
  expect(matches[0] == MPIS_REQUEST_NULL && status.MPI_SOURCE == peer, "a match that was waited for");
  expect_equal(MPIS_Is_matched(&requests[0], &flag), MPIS_SUCCESS, "a question");
  expect_equal(flag, 1, "whether it is matched behind");
  expect_equal(MPIS_Waitall(3, matches.data(), MPI_STATUSES_IGNORE), MPIS_SUCCESS, "a wait for matches");
  expect(matches[1] == MPIS_REQUEST_NULL, "a match that was waited for");
  run_once(order, requests);
  expect_equal(in, 40 + peer, "a message after a match that completed later");
  free_all(requests);

  requests = {receive_of(&in, 1, peer), send_of(&out, 1, peer)};
  for (std::size_t i = 0; i < 2; ++i) {
    expect_equal(MPIS_Imatch(&requests[i], &matches[i]), MPIS_SUCCESS, "the beginning of a match");
    expect_equal(MPIS_Request_free(&matches[i]), MPIS_SUCCESS, "a match that is forgotten");
  }
  out += 10;
  run_once(order, requests);
  expect_equal(in, 50 + peer, "a message after a match that the start has completed");
  free_all(requests);
}
