// SPDX-License-Identifier: Apache-2.0
// Windows of MPI_Win_create_dynamic: memory that is attached and detached, whose displacements are addresses.
#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

using namespace checks;

MPI_Aint address_of(const void* memory) {
  MPI_Aint address = 0;
  MPI_Get_address(memory, &address);
  return address;
}

/// The values of all ranks.
std::vector<MPI_Aint> of_all(MPI_Aint mine) {
  std::vector<MPI_Aint> all(static_cast<std::size_t>(world_size()));
  MPI_Allgather(&mine, 1, MPI_AINT, all.data(), 1, MPI_AINT, MPI_COMM_WORLD);
  return all;
}

int to_the_right() { return (world_rank() + 1) % world_size(); }
int to_the_left() { return (world_rank() + world_size() - 1) % world_size(); }

/// A dynamic window on all ranks, whose errors are returned.
class Dynamic {
 public:
  Dynamic() {
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  }
  Dynamic(const Dynamic&) = delete;
  Dynamic& operator=(const Dynamic&) = delete;
  ~Dynamic() { MPI_Win_free(&window); }

  void attach(void* memory, std::size_t bytes) const {
    expect_equal(MPI_Win_attach(window, memory, static_cast<MPI_Aint>(bytes)), MPI_SUCCESS, "attach");
  }
  void detach(void* memory) const { expect_equal(MPI_Win_detach(window, memory), MPI_SUCCESS, "detach"); }

  MPI_Win window = MPI_WIN_NULL;
};

/// A put to the right neighbour in each kind of epoch.
void check_epochs(const Dynamic& dynamic, int* numbers, MPI_Aint there) {
  const MPI_Win window = dynamic.window;
  const auto put = [&](int place, int value) {
    const MPI_Aint to = MPI_Aint_add(there, static_cast<MPI_Aint>(sizeof(int)) * place);
    expect_equal(MPI_Put(&value, 1, MPI_INT, to_the_right(), to, 1, MPI_INT, window), MPI_SUCCESS, "a put");
  };
  MPI_Win_fence(0, window);
  put(0, 100 + world_rank());
  MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
  expect_equal(numbers[0], 100 + to_the_left(), "what was put between fences");
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group to = MPI_GROUP_NULL;
  MPI_Group from = MPI_GROUP_NULL;
  MPI_Win_get_group(window, &all);
  const int ranks[] = {to_the_left(), to_the_right()};
  MPI_Group_incl(all, 1, &ranks[0], &from);
  MPI_Group_incl(all, 1, &ranks[1], &to);
  MPI_Win_post(from, 0, window);
  MPI_Win_start(to, 0, window);
  put(1, 200 + world_rank());
  MPI_Win_complete(window);
  MPI_Win_wait(window);
  expect_equal(numbers[1], 200 + to_the_left(), "what was put before complete");
  for (MPI_Group* const group : {&all, &from, &to}) MPI_Group_free(group);
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to_the_right(), 0, window);
  put(2, 300 + world_rank());
  MPI_Win_unlock(to_the_right(), window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, world_rank(), 0, window);
  expect_equal(numbers[2], 300 + to_the_left(), "what was put under a lock");
  MPI_Win_unlock(world_rank(), window);
}

/// All ranks change elements of rank 0.
void check_atomics(const Dynamic& dynamic, const std::vector<MPI_Aint>& there) {
  constexpr int kAdds = 50;
  const MPI_Win window = dynamic.window;
  const long one = 1;
  long old = 0;
  MPI_Win_lock_all(0, window);
  for (int i = 0; i < kAdds; ++i) {
    MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, there[0], MPI_SUM, window);
    MPI_Win_flush(0, window);
    MPI_Accumulate(&one, 1, MPI_LONG, 0, there[0] + 8, 1, MPI_LONG, MPI_SUM, window);
    for (bool done = false; !done;) {
      long expected = 0;
      MPI_Fetch_and_op(nullptr, &expected, MPI_LONG, 0, there[0] + 16, MPI_NO_OP, window);
      MPI_Win_flush(0, window);
      const long desired = expected + 1;
      MPI_Compare_and_swap(&desired, &expected, &old, MPI_LONG, 0, there[0] + 16, window);
      MPI_Win_flush(0, window);
      done = old == expected;
    }
  }
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  long sums[3] = {};
  MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
  MPI_Get(&sums[0], 3, MPI_LONG, 0, there[0], 3, MPI_LONG, window);
  MPI_Win_unlock(0, window);
  for (const long sum : sums) expect_equal(sum, static_cast<long>(kAdds) * world_size(), "a sum of all ranks");
}

}  // namespace

void run_dynamic() {
  const Dynamic dynamic;
  void* base = &base;
  int flag = 0;
  MPI_Win_get_attr(dynamic.window, MPI_WIN_BASE, static_cast<void*>(&base), &flag);
  expect(flag != 0 && base == MPI_BOTTOM, "MPI_WIN_BASE is MPI_BOTTOM");
  expect_equal(attribute<MPI_Aint>(dynamic.window, MPI_WIN_SIZE), 0, "MPI_WIN_SIZE");
  expect_equal(attribute<int>(dynamic.window, MPI_WIN_DISP_UNIT), 1, "MPI_WIN_DISP_UNIT");
  expect_equal(attribute<int>(dynamic.window, MPI_WIN_CREATE_FLAVOR), MPI_WIN_FLAVOR_DYNAMIC, "the flavor");
  std::vector<int> numbers(10);
  std::vector<long> sums(3);
  dynamic.attach(numbers.data(), numbers.size() * sizeof(int));
  dynamic.attach(sums.data(), sums.size() * sizeof(long));
  dynamic.attach(nullptr, 0);
  dynamic.attach(numbers.data(), 0);
  check_epochs(dynamic, numbers.data(), of_all(address_of(numbers.data()))[static_cast<std::size_t>(to_the_right())]);
  check_atomics(dynamic, of_all(address_of(sums.data())));
  MPI_Barrier(MPI_COMM_WORLD);
  dynamic.detach(numbers.data());
  dynamic.detach(numbers.data());  // the region of 0 bytes
  dynamic.detach(nullptr);
  // The sums stay until the window is freed.
}

/// Regions of any length that adjoin, in one order and detached in another, and accesses across them.
void run_dynamic_neighbours() {
  constexpr std::size_t kBytes = 9000;  // of several pages
  const Dynamic dynamic;
  std::minstd_rand random(static_cast<unsigned>(world_rank()) + 1);
  std::vector<char> memory(kBytes);
  const auto there = of_all(address_of(memory.data()))[static_cast<std::size_t>(to_the_right())];
  for (int round = 0; round < 8; ++round) {
    std::vector<std::pair<std::size_t, std::size_t>> regions;  // offset, bytes
    for (std::size_t at = 0; at < kBytes;) {
      const std::size_t bytes = std::min<std::size_t>(1 + random() % (round % 2 == 0 ? 500 : 6000), kBytes - at);
      regions.emplace_back(at, bytes);
      at += bytes;
    }
    std::shuffle(regions.begin(), regions.end(), random);
    for (const auto& [at, bytes] : regions) dynamic.attach(&memory[at], bytes);
    std::fill(memory.begin(), memory.end(), 'x');
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<char> mine(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i)
      mine[i] = static_cast<char>(i + static_cast<std::size_t>(world_rank() + round));
    MPI_Win_lock(MPI_LOCK_SHARED, to_the_right(), 0, dynamic.window);
    MPI_Put(mine.data(), kBytes, MPI_CHAR, to_the_right(), there, kBytes, MPI_CHAR, dynamic.window);
    MPI_Win_flush(to_the_right(), dynamic.window);
    std::vector<char> back(kBytes);
    MPI_Get(back.data(), kBytes, MPI_CHAR, to_the_right(), there, kBytes, MPI_CHAR, dynamic.window);
    MPI_Win_unlock(to_the_right(), dynamic.window);
    expect(back == mine, "bytes of several regions");
    MPI_Barrier(MPI_COMM_WORLD);
    for (std::size_t i = 0; i < kBytes; ++i)
      expect_equal(memory[i], static_cast<char>(i + static_cast<std::size_t>(to_the_left() + round)), "a byte");
    std::shuffle(regions.begin(), regions.end(), random);
    // All but one leave, and that one is still reached.
    const auto [kept, kept_bytes] = regions.back();
    const auto kept_there = of_all(address_of(&memory[kept]))[static_cast<std::size_t>(to_the_right())];
    const auto lengths = of_all(static_cast<MPI_Aint>(kept_bytes));
    const int length = static_cast<int>(lengths[static_cast<std::size_t>(to_the_right())]);
    for (std::size_t i = 0; i + 1 < regions.size(); ++i) dynamic.detach(&memory[regions[i].first]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, to_the_right(), 0, dynamic.window);
    expect_equal(MPI_Get(back.data(), length, MPI_CHAR, to_the_right(), kept_there, length, MPI_CHAR, dynamic.window),
                 MPI_SUCCESS, "a get of what is left");
    MPI_Win_unlock(to_the_right(), dynamic.window);
    MPI_Barrier(MPI_COMM_WORLD);
    dynamic.detach(&memory[kept]);
  }
}

void run_dynamic_errors() {
  const auto is = [](int code, int error_class, const char* what) {
    int found = MPI_SUCCESS;
    MPI_Error_class(code, &found);
    expect_equal(found, error_class, what);
  };
  // The region is of whole pages: of others, peers may access the rest of a page.
  constexpr int kPage = 4096 / sizeof(int);
  struct alignas(4096) Pages {
    int numbers[3 * kPage];
  };
  const auto pages = std::make_unique<Pages>();
  int* const numbers = pages->numbers;
  const std::vector<int> values(kPage + 1, 7);
  {
    const Dynamic dynamic;
    const MPI_Win window = dynamic.window;
    dynamic.attach(&numbers[kPage], kPage * sizeof(int));
    const MPI_Aint there = of_all(address_of(numbers))[static_cast<std::size_t>(to_the_right())];
    const auto put = [&](int first, int count) {
      return MPI_Put(values.data(), count, MPI_INT, to_the_right(), there + first * 4, count, MPI_INT, window);
    };
    is(MPI_Win_attach(window, &numbers[kPage], 4), MPI_ERR_RMA_ATTACH, "attach of the same memory");
    is(MPI_Win_attach(window, &numbers[0], 4 * (kPage + 1)), MPI_ERR_RMA_ATTACH, "attach of memory that overlaps");
    is(MPI_Win_attach(window, &numbers[2 * kPage - 1], 4), MPI_ERR_RMA_ATTACH, "attach of the last element");
    is(MPI_Win_attach(window, nullptr, 8), MPI_ERR_RMA_ATTACH, "attach of no memory");
    is(MPI_Win_attach(window, &numbers[0], -1), MPI_ERR_SIZE, "attach of a negative size");
    is(MPI_Win_detach(window, &numbers[kPage + 1]), MPI_ERR_ARG, "detach inside of a region");
    is(put(kPage, 1), MPI_ERR_RMA_SYNC, "a put outside of epochs");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, to_the_right(), 0, window);
    is(put(0, 1), MPI_ERR_RMA_RANGE, "a put before the region");
    is(put(kPage, kPage + 1), MPI_ERR_RMA_RANGE, "a put beyond its end");
    is(put(kPage - 1, 2), MPI_ERR_RMA_RANGE, "a put that begins before it");
    is(MPI_Put(&values[0], 1, MPI_INT, to_the_right(), 0, 1, MPI_INT, window), MPI_ERR_RMA_RANGE,
       "a put to MPI_BOTTOM");
    is(MPI_Accumulate(&values[0], 2, MPI_INT, to_the_right(), there + 4 * (2 * kPage - 1), 2, MPI_INT, MPI_SUM, window),
       MPI_ERR_RMA_RANGE, "a sum beyond its end");
    MPI_Win_flush(to_the_right(), window);
    is(put(2 * kPage - 1, 1), MPI_SUCCESS, "a put after errors");
    MPI_Win_unlock(to_the_right(), window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 3 * kPage; ++i) expect_equal(numbers[i], i == 2 * kPage - 1 ? 7 : 0, "a number");
    MPI_Barrier(MPI_COMM_WORLD);
    dynamic.detach(&numbers[kPage]);
    is(MPI_Win_detach(window, &numbers[kPage]), MPI_ERR_ARG, "detach again");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, to_the_right(), 0, window);
    is(put(2 * kPage - 1, 1), MPI_ERR_RMA_RANGE, "a put to what was detached");
    MPI_Win_unlock(to_the_right(), window);
    MPI_Barrier(MPI_COMM_WORLD);
    dynamic.attach(&numbers[kPage + 4], 4);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to_the_right(), 0, window);
    is(put(kPage + 4, 1), MPI_SUCCESS, "a put to what was attached later");
    MPI_Win_unlock(to_the_right(), window);
    MPI_Barrier(MPI_COMM_WORLD);
    expect_equal(numbers[kPage + 4], 7, "what was put there");
  }
  const Shared<int> shared(1);
  MPI_Win_set_errhandler(shared.window, MPI_ERRORS_RETURN);
  is(MPI_Win_attach(shared.window, numbers, 4), MPI_ERR_RMA_FLAVOR, "attach to another window");
  is(MPI_Win_detach(shared.window, numbers), MPI_ERR_RMA_FLAVOR, "detach from another window");
}

/// Nodes of a list that all ranks append to, each attached by itself, and memory that comes and goes meanwhile.
void run_dynamic_lists() {
  constexpr int kNodes = 40;
  struct Node {
    long rank;
    long next_rank;  // -1: it is the last
    MPI_Aint next;
  };
  const Dynamic dynamic;
  const MPI_Win window = dynamic.window;
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::unique_ptr<std::vector<int>>> others;
  const auto make = [&] {
    nodes.push_back(std::make_unique<Node>(Node{world_rank(), -1, 0}));
    dynamic.attach(nodes.back().get(), sizeof(Node));
    return address_of(nodes.back().get());
  };
  MPI_Aint head = make();
  MPI_Bcast(&head, 1, MPI_AINT, 0, MPI_COMM_WORLD);
  const auto next_of = [&](long rank, MPI_Aint at) {
    Node node{};
    MPI_Get(&node, 3, MPI_LONG, static_cast<int>(rank), at, 3, MPI_LONG, window);
    MPI_Win_flush(static_cast<int>(rank), window);
    return node;
  };
  MPI_Win_lock_all(0, window);
  long rank = 0;
  MPI_Aint at = head;
  for (int i = 0; i < kNodes; ++i) {
    const MPI_Aint mine = make();
    for (;;) {  // the last node is behind the last one that this rank has seen
      // The swap of the rank decides which rank appends; the address of its node follows.
      const long me = world_rank();
      const long none = -1;
      long found = 0;
      MPI_Compare_and_swap(&me, &none, &found, MPI_LONG, static_cast<int>(rank), at + 8, window);
      MPI_Win_flush(static_cast<int>(rank), window);
      if (found == none) {
        MPI_Accumulate(&mine, 1, MPI_AINT, static_cast<int>(rank), at + 16, 1, MPI_AINT, MPI_REPLACE, window);
        MPI_Win_flush(static_cast<int>(rank), window);
        break;
      }
      MPI_Aint next = 0;
      while (next == 0) {
        MPI_Fetch_and_op(nullptr, &next, MPI_AINT, static_cast<int>(rank), at + 16, MPI_NO_OP, window);
        MPI_Win_flush(static_cast<int>(rank), window);
      }
      rank = found;
      at = next;
    }
    others.push_back(std::make_unique<std::vector<int>>(i + 1));
    dynamic.attach(others.back()->data(), others.back()->size() * sizeof(int));
    if (i % 2 == 1) {
      dynamic.detach(others.front()->data());
      others.erase(others.begin());
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  std::vector<int> counts(static_cast<std::size_t>(world_size()));
  for (rank = 0, at = head; rank >= 0;) {
    const Node node = next_of(rank, at);
    expect_equal(node.rank, rank, "the rank of a node");
    ++counts[static_cast<std::size_t>(node.rank)];
    rank = node.next_rank;
    at = node.next;
  }
  for (std::size_t i = 0; i < counts.size(); ++i) expect_equal(counts[i], kNodes + (i == 0 ? 1 : 0), "nodes of a rank");
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  for (const auto& node : nodes) {
    if (node->next == 0 && world_rank() != 0) continue;  // some stay until the window is freed
    dynamic.detach(node.get());
  }
}

/// A put of two regions by a type with their addresses, as MPI_BOTTOM wants it, and a long one.
void run_dynamic_types() {
  const Dynamic dynamic;
  constexpr int kLong = 200000;
  std::vector<int> numbers(kLong);
  std::vector<double> doubles(5);
  dynamic.attach(numbers.data(), numbers.size() * sizeof(int));
  dynamic.attach(doubles.data(), doubles.size() * sizeof(double));
  MPI_Aint places[2] = {of_all(address_of(&numbers[3]))[static_cast<std::size_t>(to_the_right())],
                        of_all(address_of(&doubles[1]))[static_cast<std::size_t>(to_the_right())]};
  int lengths[2] = {4, 2};
  MPI_Datatype kinds[2] = {MPI_INT, MPI_DOUBLE};
  MPI_Datatype there = MPI_DATATYPE_NULL;
  MPI_Type_create_struct(2, lengths, places, kinds, &there);
  MPI_Type_commit(&there);
  struct {
    int numbers[4];
    double doubles[2];
  } mine{{1, 2, 3, 4}, {5.0, 6.0}};
  MPI_Datatype here = MPI_DATATYPE_NULL;
  MPI_Aint offsets[2] = {
      0, static_cast<MPI_Aint>(reinterpret_cast<char*>(&mine.doubles[0]) - reinterpret_cast<char*>(&mine))};
  MPI_Type_create_struct(2, lengths, offsets, kinds, &here);
  MPI_Type_commit(&here);
  MPI_Win_fence(0, dynamic.window);
  expect_equal(MPI_Put(&mine, 1, here, to_the_right(), 0, 1, there, dynamic.window), MPI_SUCCESS, "a put of addresses");
  MPI_Win_fence(0, dynamic.window);
  for (std::size_t i = 0; i < 4; ++i) expect_equal(numbers[3 + i], i + 1, "a number");
  for (std::size_t i = 0; i < 2; ++i) expect_equal(doubles[1 + i], 5 + i, "a double");
  MPI_Win_fence(0, dynamic.window);
  std::vector<int> values(kLong, 3 + world_rank());
  const MPI_Aint all = of_all(address_of(numbers.data()))[static_cast<std::size_t>(to_the_right())];
  MPI_Put(values.data(), kLong, MPI_INT, to_the_right(), all, kLong, MPI_INT, dynamic.window);
  MPI_Win_fence(0, dynamic.window);
  MPI_Accumulate(values.data(), kLong, MPI_INT, to_the_right(), all, kLong, MPI_INT, MPI_SUM, dynamic.window);
  MPI_Win_fence(MPI_MODE_NOSUCCEED, dynamic.window);
  for (const int number : numbers) expect_equal(number, 2 * (3 + to_the_left()), "a number of many");
  MPI_Type_free(&there);
  MPI_Type_free(&here);
  MPI_Barrier(MPI_COMM_WORLD);
}
