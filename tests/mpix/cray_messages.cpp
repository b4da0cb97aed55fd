// SPDX-License-Identifier: Apache-2.0
// Messages in Cray's words: datatypes, MPI_PROC_NULL and communicators; and requests.
#include <array>

#include "tests/mpix/cray_queue.hpp"
#include "tests/mpix/programs.hpp"

using namespace stream_mpi_test;

namespace {

int rank_in(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

/// Each communicator with its ranks in a ring, with one tag, all in one start.
void exchange(const std::vector<MPI_Comm>& comms) {
  CrayQueue queue;
  std::vector<std::vector<int>> out(comms.size());
  std::vector<std::vector<int>> in(comms.size());
  for (int step = 0; step < 5; ++step) {
    // One end goes through them backwards.
    for (std::size_t i = 0; i < comms.size(); ++i) {
      in[i] = poisoned(9);
      queue.receive(in[i], (rank_in(comms[i]) + size_of(comms[i]) - 1) % size_of(comms[i]), 4, comms[i]);
    }
    for (std::size_t i = comms.size(); i-- > 0;) {
      out[i] = poisoned(9);
      fill(out[i], rank_in(comms[i]) + 10 * static_cast<int>(i), step);
      queue.send(out[i], (rank_in(comms[i]) + 1) % size_of(comms[i]), 4, comms[i]);
    }
    queue.start_and_wait();
    queue.wait();
    for (std::size_t i = 0; i < comms.size(); ++i) {
      const int before = (rank_in(comms[i]) + size_of(comms[i]) - 1) % size_of(comms[i]);
      expect_filled(in[i], before + 10 * static_cast<int>(i), step, "communicator " + std::to_string(i));
    }
  }
}

}  // namespace

/// Communicators of each kind in which the same ranks use the same tag at once.
void run_cray_communicators() {
  std::vector<MPI_Comm> comms{MPI_COMM_WORLD};
  const auto next = [&]() -> MPI_Comm* { return &comms.emplace_back(MPI_COMM_NULL); };
  MPI_Comm_dup(MPI_COMM_WORLD, next());
  MPI_Comm_dup(MPI_COMM_WORLD, next());
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank(), next());
  MPI_Comm_split(MPI_COMM_WORLD, world_rank() % 2, 0, next());
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, next());
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, next());
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &group);
  MPI_Comm_create(MPI_COMM_WORLD, group, next());
  MPI_Comm_create_group(MPI_COMM_WORLD, group, 7, next());
  MPI_Group_free(&group);
  const std::array<int, 1> sizes{world_size()};
  const std::array<int, 1> yes{1};
  MPI_Comm* const line = next();
  MPI_Cart_create(MPI_COMM_WORLD, 1, sizes.data(), yes.data(), 0, line);
  const MPI_Comm cart = *line;
  MPI_Cart_sub(cart, yes.data(), next());
  const int peer = next_rank();
  const int before = rank_before();
  const int self = world_rank();
  const int degree = 1;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &before, MPI_UNWEIGHTED, 1, &peer, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                 next());
  MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &self, &degree, &peer, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, next());
  std::vector<int> index;
  std::vector<int> edges;
  for (int rank = 0; rank < world_size(); ++rank) {
    index.push_back(rank + 1);
    edges.push_back((rank + 1) % world_size());
  }
  MPI_Graph_create(MPI_COMM_WORLD, world_size(), index.data(), edges.data(), 0, next());
  comms.push_back(MPI_COMM_SELF);
  exchange(comms);
  comms.pop_back();
  for (std::size_t i = 1; i < comms.size(); ++i) MPI_Comm_free(&comms[i]);
  // A later one may get the handle of one that was freed.
  MPI_Comm later = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &later);
  exchange({later, MPI_COMM_WORLD});
  MPI_Comm_free(&later);
}

/// A column of a matrix is received as a row, in another number of parts; and a column of the other's row.
void run_cray_types() {
  constexpr int kMpixRows = 6000;
  CrayQueue queue;
  std::vector<int> matrix(2 * kMpixRows);
  std::vector<int> row = poisoned(kMpixRows);
  std::vector<int> columns = poisoned(2 * kMpixRows);
  MPI_Datatype column = MPI_DATATYPE_NULL;
  MPI_Type_vector(kMpixRows, 1, 2, MPI_INT, &column);
  MPI_Type_commit(&column);
  fill(matrix, world_rank(), 2);
  MPIX_Enqueue_send(&matrix[1], 1, column, next_rank(), 1, queue.queue, nullptr);
  MPIX_Enqueue_send(row.data(), kMpixRows, MPI_INT, next_rank(), 2, queue.queue, nullptr);
  MPIX_Enqueue_recv(row.data(), kMpixRows, MPI_INT, rank_before(), 1, queue.queue, nullptr);
  MPIX_Enqueue_recv(columns.data(), 1, column, rank_before(), 2, queue.queue, nullptr);
  MPI_Type_free(&column);
  queue.start_and_wait();
  queue.wait();
  for (int i = 0; i < kMpixRows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    expect_equal(row[at], stamp(rank_before(), 2, 1 + 2 * i), "a column");
    expect(columns[2 * at + 1] == -7, "what lies between the elements");
  }
}

void run_cray_nobody() {
  CrayQueue queue;
  std::vector<int> value{5};
  std::vector<int> none;
  queue.wait_on_stream();  // nothing is started
  queue.start();           // nothing is enqueued
  for (int step = 0; step < 5; ++step) {
    queue.send(value, MPI_PROC_NULL);
    queue.receive(value, MPI_PROC_NULL);
    queue.send(none, next_rank());
    queue.receive(none, rank_before());
    queue.start_and_wait();
  }
  queue.wait();
  expect_equal(value[0], 5, "a buffer for nobody");
}

/// Requests that the host waits for and tests, without a wait of the stream; and many that it drops.
void run_cray_requests() {
  CrayQueue queue;
  std::vector<int> out = poisoned(100000);
  std::vector<int> in = poisoned(200000);
  fill(out, world_rank(), 1);
  std::array<MPI_Request, 4> requests{};
  const int count = static_cast<int>(out.size());
  MPIX_Enqueue_send(out.data(), count, MPI_INT, next_rank(), 9, queue.queue, &requests[0]);
  MPIX_Enqueue_recv(in.data(), 2 * count, MPI_INT, rank_before(), 9, queue.queue, &requests[1]);
  MPIX_Enqueue_send(out.data(), 1, MPI_INT, MPI_PROC_NULL, 9, queue.queue, &requests[2]);
  MPIX_Enqueue_send(out.data(), 3, MPI_INT, next_rank(), 8, queue.queue, &requests[3]);
  int flag = 1;
  MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
  expect_equal(flag, 0, "a message that is not started");
  queue.start();
  std::array<MPI_Status, 3> statuses{};
  expect_equal(MPI_Waitall(3, requests.data(), statuses.data()), MPI_SUCCESS, "a wait for requests");
  expect(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL, "requests that were waited for");
  in.resize(out.size());
  expect_filled(in, rank_before(), 1, "a message whose request was waited for");
  int received = 0;
  MPI_Get_count(&statuses[1], MPI_INT, &received);
  expect_equal(received, count, "the count of a status");
  expect_equal(statuses[1].MPI_SOURCE, rank_before(), "the source of a status");
  expect_equal(statuses[1].MPI_TAG, 9, "the tag of a status");
  queue.receive(in, rank_before(), 8);
  queue.start_and_wait();
  while (flag == 0) expect_equal(MPI_Test(&requests[3], &flag, MPI_STATUS_IGNORE), MPI_SUCCESS, "a test of a request");

  std::vector<int> token{world_rank()};
  std::vector<int> next_token{-7};
  for (int step = 0; step < 3000; ++step) {
    queue.send(token, next_rank(), step % 3);
    queue.receive(next_token, rank_before(), step % 3);
    queue.start_and_wait();
    queue.run([&] { token[0] = next_token[0]; });
    if (step % 500 == 0) queue.wait();
  }
  queue.wait();
  expect_equal(token[0], (world_rank() + world_size() - 3000 % world_size()) % world_size(), "a token");
}
