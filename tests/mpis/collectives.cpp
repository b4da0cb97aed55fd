// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>

#include "tests/mpis/order.hpp"
#include "tests/mpis/programs.hpp"

using namespace stream_mpi_test;

namespace {

MPIS_Request matched_barrier(const Order& order, MPI_Comm comm = MPI_COMM_WORLD) {
  MPIS_Request request = MPIS_REQUEST_NULL;
  expect_equal(MPIS_Barrier_init(comm, MPI_INFO_NULL, &request), MPIS_SUCCESS, "a barrier");
  expect_equal(MPIS_Queue_match(order.queue, &request, MPI_STATUS_IGNORE), MPIS_SUCCESS, "the match of a barrier");
  return request;
}

template <class T>
void check_sum(Order& order, MPI_Datatype type, MPI_Op op, bool in_place, T expected_of_one) {
  std::vector<T> from(33, T(1));
  std::vector<T> to(33, T(1));
  MPIS_Request request = MPIS_REQUEST_NULL;
  const void* const source = in_place ? MPI_IN_PLACE : static_cast<const void*>(from.data());
  expect_equal(MPIS_Allreduce_init(source, to.data(), 33, type, op, MPI_COMM_WORLD, MPI_INFO_NULL, &request),
               MPIS_SUCCESS, "an allreduce");
  match(request);
  for (int step = 1; step <= 3; ++step) {
    order.run(
        [&, step] { std::fill((in_place ? to : from).begin(), (in_place ? to : from).end(), static_cast<T>(step)); });
    order.start(request);
    order.wait_all();
    order.run([&, step] {
      for (const T value : to) expect(value == static_cast<T>(static_cast<T>(step) * expected_of_one), "an allreduce");
    });
  }
  order.wait();
  expect_equal(MPIS_Request_free(&request), MPIS_SUCCESS, "the end of an allreduce");
}

/// In one wait; the stream of rank 1 stops before it.
void drop_barriers(std::size_t count) {
  Order order;
  std::vector<MPIS_Request> barriers;
  for (std::size_t i = 0; i < count; ++i) barriers.push_back(matched_barrier(order));
  if (world_rank() == 1)
    sluice_host_stream_run(
        order.stream->stream, [](void*) { return 1; }, nullptr);
  order.start_all(barriers);
  order.wait_all();
  expect_equal(MPIS_Queue_wait(order.queue), MPI_ERR_OTHER, "a barrier that one rank has dropped");
  if (world_rank() == 1)
    expect(sluice_host_stream_synchronize(order.stream->stream, SLUICE_FOREVER) != SLUICE_OK, "a stopped stream");
  MPI_Barrier(MPI_COMM_WORLD);  // not by the end of the request
  free_all(barriers);
}

constexpr MPI_Aint kShift = 2 * sizeof(double);

/// An operation for a datatype whose data begin behind its address, or before it.
void add_shifted(const void* in, void* in_out, int count, MPI_Aint shift) {
  const auto* const from = reinterpret_cast<const double*>(static_cast<const char*>(in) + shift);
  auto* const to = reinterpret_cast<double*>(static_cast<char*>(in_out) + shift);
  for (int i = 0; i < count; ++i) to[i] += from[i];
}

extern "C" {
void mpis_test_add_behind(void* in, void* in_out, int* count, MPI_Datatype*) {
  add_shifted(in, in_out, *count, kShift);
}
void mpis_test_add_before(void* in, void* in_out, int* count, MPI_Datatype*) {
  add_shifted(in, in_out, *count, -kShift);
}
}

/// Sums doubles of which the data lie `shift` from the buffer that is named; those beside them stay.
void check_shifted(Order& order, MPI_Aint shift, MPI_User_function* add, bool in_place) {
  constexpr int kCount = 3;
  constexpr std::size_t kBegin = 4;
  const int one = 1;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_hindexed(1, &one, &shift, MPI_DOUBLE, &type);
  MPI_Type_commit(&type);
  MPI_Op op = MPI_OP_NULL;
  MPI_Op_create(add, 1, &op);
  std::array<double, 2 * kBegin + kCount> from{};
  from.fill(100);
  for (std::size_t i = 0; i < kCount; ++i) from.at(kBegin + i) = static_cast<double>(i + 1);
  auto to = from;
  const auto named = [shift](auto& doubles) { return reinterpret_cast<char*>(&doubles.at(kBegin)) - shift; };
  const void* const source = in_place ? MPI_IN_PLACE : static_cast<const void*>(named(from));
  MPIS_Request request = MPIS_REQUEST_NULL;
  MPIS_Allreduce_init(source, named(to), kCount, type, op, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  match(request);
  order.start(request);
  order.wait_all();
  order.wait();
  for (std::size_t i = 0; i < to.size(); ++i)
    expect_equal(to.at(i), i < kBegin || i >= kBegin + kCount ? from.at(i) : world_size() * from.at(i),
                 "a sum at an offset");
  expect_equal(MPIS_Request_free(&request), MPIS_SUCCESS, "the end of an allreduce");
  MPI_Op_free(&op);
  MPI_Type_free(&type);
}

void or_to(short& number, short other) { number = static_cast<short>(number | other); }

extern "C" void mpis_test_or(void* in, void* in_out, int* count, MPI_Datatype*) {
  for (int i = 0; i < *count; ++i) or_to(static_cast<short*>(in_out)[i], static_cast<short*>(in)[i]);
}

}  // namespace

/// No rank passes before all have started; each counts its steps in a window of MPI's.
void run_barrier() {
  Order order;
  MPI_Win window = MPI_WIN_NULL;
  int* count = nullptr;
  MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&count), &window);
  std::atomic_ref(*count).store(0);
  MPIS_Request barrier = matched_barrier(order);
  std::vector<int*> of_all;
  for (int rank = 0; rank < world_size(); ++rank) {
    MPI_Aint bytes = 0;
    int unit = 0;
    int* its = nullptr;
    MPI_Win_shared_query(window, rank, &bytes, &unit, static_cast<void*>(&its));
    of_all.push_back(its);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (int step = 1; step <= 30; ++step) {
    order.run([&, step] { std::atomic_ref(*count).store(step); });
    order.start(barrier);
    order.wait_all();
    order.run([&, step] {
      for (int* const its : of_all) expect(std::atomic_ref(*its).load() >= step, "a barrier that all have reached");
    });
  }
  order.wait();
  expect_equal(MPIS_Request_free(&barrier), MPIS_SUCCESS, "the end of a barrier");
  MPI_Win_free(&window);
}

void run_allreduce() {
  Order order;
  const int size = world_size();
  check_sum<int>(order, MPI_INT, MPI_SUM, false, size);
  check_sum<int>(order, MPI_INT, MPI_SUM, true, size);
  check_sum<double>(order, MPI_DOUBLE, MPI_SUM, true, size);
  check_sum<unsigned long>(order, MPI_UNSIGNED_LONG, MPI_MAX, false, 1);
  check_sum<float>(order, MPI_FLOAT, MPI_MIN, false, 1);
  if (stream_kind() == "cuda") return;
  // These are combined by MPI, on the host.
  check_sum<short>(order, MPI_SHORT, MPI_SUM, false, static_cast<short>(size));
  MPI_Op own = MPI_OP_NULL;
  MPI_Op_create(mpis_test_or, 1, &own);
  check_sum<short>(order, MPI_SHORT, own, false, 1);
  MPI_Op_free(&own);
  for (const bool in_place : {false, true}) {
    check_shifted(order, kShift, mpis_test_add_behind, in_place);
    check_shifted(order, -kShift, mpis_test_add_before, in_place);
  }
  struct Pair {
    short value;
    int place;
  };
  std::array<Pair, 2> pairs{Pair{static_cast<short>(10 - world_rank()), world_rank()}, Pair{3, world_rank()}};
  MPIS_Request request = MPIS_REQUEST_NULL;
  MPIS_Allreduce_init(MPI_IN_PLACE, pairs.data(), 2, MPI_SHORT_INT, MPI_MINLOC, MPI_COMM_WORLD, MPI_INFO_NULL,
                      &request);
  match(request);
  order.start(request);
  order.wait_all();
  order.wait();
  expect(pairs[0].value == 10 - (size - 1) && pairs[0].place == size - 1 && pairs[1].place == 0, "a place");
  expect_equal(MPIS_Request_free(&request), MPIS_SUCCESS, "its end");
  expect_equal(
      MPIS_Allreduce_init(pairs.data(), pairs.data(), 1, MPI_DOUBLE, MPI_BAND, MPI_COMM_WORLD, MPI_INFO_NULL, &request),
      MPI_ERR_OP, "bits of a double");
}

/// The stream of rank 1 stops before barriers, and the waits of all others end. A stream waits for the messages of one
/// barrier, and tests two barriers in turns. On a host stream of the program's.
void run_dropped_barriers() {
  for (const std::size_t count : {1U, 2U}) drop_barriers(count);
}

/// A reduction that MPI refuses is an error of the stream; pairs in a derived datatype are refused, and gaps between
/// pairs for an operation of the program's, too.
void run_refused_reductions() {
  Order order;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  std::array<int, 8> values{1, 2, 3, 4, 5, 6, 7, 8};
  const auto allreduce = [&](MPI_Datatype type, MPI_Op op, MPIS_Request& request) {
    return MPIS_Allreduce_init(MPI_IN_PLACE, values.data(), 2, type, op, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  };
  MPI_Datatype two = MPI_DATATYPE_NULL;
  MPI_Datatype two_pairs = MPI_DATATYPE_NULL;
  MPI_Datatype spread = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(2, MPI_INT, &two);
  MPI_Type_contiguous(2, MPI_2INT, &two_pairs);
  MPI_Type_create_resized(MPI_2INT, 0, 4 * sizeof(int), &spread);
  for (MPI_Datatype* const type : {&two, &two_pairs, &spread}) MPI_Type_commit(type);
  MPIS_Request request = MPIS_REQUEST_NULL;
  MPI_Datatype row = MPI_DATATYPE_NULL;
  MPI_Datatype large = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(1 << 30, MPI_INT, &row);
  MPI_Type_contiguous(1 << 3, row, &large);
  MPI_Type_free(&row);
  expect_equal(MPIS_Allreduce_init(MPI_IN_PLACE, values.data(), 1 << 29, large, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                                   &request),
               MPI_ERR_COUNT, "2^64 bytes");
  MPI_Type_free(&large);
  for (const MPI_Datatype type : {two_pairs, spread})
    expect_equal(allreduce(type, MPI_MINLOC, request), MPIS_UNSUPPORTED_BEHAVIOR, "pairs in a derived datatype");
  MPI_Op own = MPI_OP_NULL;
  MPI_Op_create(mpis_test_or, 1, &own);
  expect_equal(allreduce(spread, own, request), MPIS_UNSUPPORTED_BEHAVIOR, "pairs with gaps between them");
  MPI_Op_free(&own);
  expect_equal(allreduce(two, MPI_LAND, request), MPIS_SUCCESS, "an operation of MPI's on a derived datatype");
  match(request);
  order.start(request);
  order.wait_all();
  expect_equal(MPIS_Queue_wait(order.queue), MPI_ERR_OTHER, "an operation that MPI refuses");
  expect_equal(MPIS_Request_free(&request), MPIS_SUCCESS, "the end of an allreduce");
  for (MPI_Datatype* const type : {&two, &two_pairs, &spread}) MPI_Type_free(type);
}

/// Messages and collectives in one wait, on communicators with the same ranks.
void run_together() {
  Order order;
  MPI_Comm same = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &same);
  int out = world_rank();
  int in = -1;
  int sum = 0;
  const int before = rank_before();
  MPIS_Request allreduce = MPIS_REQUEST_NULL;
  MPIS_Allreduce_init(&out, &sum, 1, MPI_INT, MPI_SUM, same, MPI_INFO_NULL, &allreduce);
  std::vector<MPIS_Request> requests{send_of(&out, 1, next_rank()), receive_of(&in, 1, before), matched_barrier(order),
                                     allreduce};
  match(requests[3]);
  std::vector<MPIS_Request> messages{requests[0], requests[1]};
  match_all(messages);
  MPI_Comm_free(&same);
  for (int step = 0; step < 20; ++step) {
    order.run([&, step] { out = world_rank() + step; });
    order.start_all(requests);
    order.wait_all();
    order.run([&, step] {
      expect_equal(in, before + step, "a message beside collectives");
      expect_equal(sum, world_size() * step + world_size() * (world_size() - 1) / 2, "a sum beside a message");
    });
  }
  order.wait();
  free_all(requests);
}
