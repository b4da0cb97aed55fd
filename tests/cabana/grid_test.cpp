// SPDX-License-Identifier: Apache-2.0
// Grid halos of Sluice and of Cabana's own, side by side on equal arrays: every element is the same afterwards.
#include <sluice/cabana.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/cabana/heard.hpp"

namespace {

using namespace sluice;
namespace grid = Cabana::Grid;
using Exec = Kokkos::DefaultHostExecutionSpace;
using Host = Kokkos::HostSpace;

int rank_of(MPI_Comm comm) {
  int rank = -1;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

/// Two arrays of one layout: one for each communication space.
template <class Array>
struct Pair {
  std::shared_ptr<Array> ours, theirs;
};

template <class Value, class... Params, class Entity, class LocalGrid>
auto make_pair(const char* name, const LocalGrid& local, int dofs, Entity entity) {
  const auto layout = grid::createArrayLayout(local, dofs, entity);
  const auto make = [&] { return grid::createArray<Value, Params...>(name, layout); };
  return Pair<typename decltype(make())::element_type>{make(), make()};
}

/// A small number that depends on the rank, the element and the step, so that sums are exact in every order.
template <class Value>
Value value_of(int rank, std::size_t element, int step) {
  return static_cast<Value>(
      (static_cast<std::size_t>(rank) * 7919 + element * 31 + static_cast<std::size_t>(step) * 101) % 97);
}

template <class View>
void fill(const View& view, int rank, int step) {
  for (std::size_t i = 0; i < view.span(); ++i) view.data()[i] = value_of<typename View::value_type>(rank, i, step);
}

template <class View>
void expect_equal(const View& ours, const View& theirs, const std::string& what) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < ours.span(); ++i) wrong += ours.data()[i] != theirs.data()[i];
  EXPECT_EQ(wrong, 0U) << "elements of " << ours.label() << " after " << what;
}

/// The fields of a test: three or four entities, types and layouts, and one that has no elements.
template <std::size_t D>
auto make_fields(const auto& local) {
  auto cells = make_pair<double, Host>("cells", local, 2, grid::Cell());
  auto nodes = make_pair<float, Kokkos::LayoutLeft, Host>("nodes", local, 1, grid::Node());
  auto faces = make_pair<std::int64_t, Host>("faces", local, 3, grid::Face<grid::Dim::I>());
  auto none = make_pair<double, Host>("none", local, 0, grid::Cell());
  if constexpr (D == 2)
    return std::tuple(cells, nodes, none, faces);
  else
    return std::tuple(cells, nodes, none, faces,
                      make_pair<int, Kokkos::LayoutLeft, Host>("edges", local, 1, grid::Edge<grid::Dim::K>()));
}

constexpr int kCells = 13;  // no multiple of the ranks: blocks differ in size

template <std::size_t D>
auto make_grid(const std::array<bool, D>& periodic, int ghosts, int side = kCells, MPI_Comm comm = MPI_COMM_WORLD) {
  std::array<double, D> low{}, high;
  std::array<int, D> cells;
  for (std::size_t k = 0; k < D; ++k) {
    cells[k] = side + static_cast<int>(2 * k);
    high[k] = cells[k];
  }
  const auto mesh = grid::createUniformGlobalMesh(low, high, cells);
  const grid::DimBlockPartitioner<D> partitioner;
  return grid::createLocalGrid(grid::createGlobalGrid(comm, mesh, periodic, partitioner), ghosts);
}

template <class Pattern, std::size_t D>
void compare(const std::array<bool, D>& periodic, int width, int ghosts, int side = kCells) {
  const auto local = make_grid<D>(periodic, ghosts, side);
  const int rank = rank_of(local->globalGrid().comm());
  const auto fields = make_fields<D>(local);
  const auto each = [&](auto f) { std::apply([&](const auto&... pair) { (f(pair), ...); }, fields); };
  const auto ours = [&](auto f) { return std::apply([&](const auto&... pair) { return f(*pair.ours...); }, fields); };
  const auto theirs = [&](auto f) {
    return std::apply([&](const auto&... pair) { return f(*pair.theirs...); }, fields);
  };
  const Exec exec;
  const Pattern pattern;
  const auto mpi = theirs([&](const auto&... all) { return grid::createHalo(pattern, width, all...); });
  const auto halo =
      ours([&](const auto&... all) { return grid::createHalo<cabana::CommSpace>(pattern, width, all...); });
  const auto stream = ours([&](const auto&... all) { return cabana::createStreamHalo(exec, pattern, width, all...); });

  int step = 0;
  const auto refill = [&] {
    ++step;
    each([&](const auto& pair) {
      fill(pair.ours->view(), rank, step);
      fill(pair.theirs->view(), rank, step);
    });
  };
  const auto expect = [&](const std::string& what) {
    each([&](const auto& pair) { expect_equal(pair.ours->view(), pair.theirs->view(), what); });
  };
  for (int turn = 0; turn < 3; ++turn) {
    refill();
    ours([&](const auto&... all) { halo->gather(exec, all...); });
    theirs([&](const auto&... all) { mpi->gather(exec, all...); });
    expect("gather");
    refill();
    ours([&](const auto&... all) { stream->enqueueGather(all...); });
    theirs([&](const auto&... all) { mpi->gather(exec, all...); });
    expect("enqueueGather");
    refill();
    ours([&](const auto&... all) { stream->gather(exec, all...); });
    theirs([&](const auto&... all) { mpi->gather(exec, all...); });
    expect("gather of a StreamHalo");
    const auto scatter = [&](const auto& operation, const std::string& name) {
      refill();
      ours([&](const auto&... all) { halo->scatter(exec, operation, all...); });
      theirs([&](const auto&... all) { mpi->scatter(exec, operation, all...); });
      expect("scatter by " + name);
      refill();
      ours([&](const auto&... all) { stream->enqueueScatter(operation, all...); });
      theirs([&](const auto&... all) { mpi->scatter(exec, operation, all...); });
      expect("enqueueScatter by " + name);
      refill();
      ours([&](const auto&... all) { stream->scatter(exec, operation, all...); });
      theirs([&](const auto&... all) { mpi->scatter(exec, operation, all...); });
      expect("scatter of a StreamHalo by " + name);
    };
    scatter(grid::ScatterReduce::Sum(), "Sum");
    scatter(grid::ScatterReduce::Min(), "Min");
    scatter(grid::ScatterReduce::Max(), "Max");
    // Replace may take the value of any of several ghosts: after a gather all are alike, and then own elements lose
    // their values.
    const auto replace = [&](auto by_ours, const std::string& what) {
      refill();
      theirs([&](const auto&... all) { mpi->gather(exec, all...); });
      each([&](const auto& pair) {
        const auto own = pair.theirs->layout()->indexSpace(grid::Own(), grid::Local());
        Kokkos::deep_copy(grid::createSubview(pair.theirs->view(), own), -1);
        Kokkos::deep_copy(pair.ours->view(), pair.theirs->view());
      });
      ours(by_ours);
      theirs([&](const auto&... all) { mpi->scatter(exec, grid::ScatterReduce::Replace(), all...); });
      expect(what);
    };
    replace([&](const auto&... all) { halo->scatter(exec, grid::ScatterReduce::Replace(), all...); },
            "scatter by Replace");
    replace([&](const auto&... all) { stream->enqueueScatter(grid::ScatterReduce::Replace(), all...); },
            "enqueueScatter by Replace");
  }
}

template <std::size_t D, class Node, class Face>
void compare_all() {
  for (int periods = 0; periods < (1 << D); ++periods) {
    std::array<bool, D> periodic{};
    for (std::size_t k = 0; k < D; ++k) periodic[k] = ((periods >> k) & 1) != 0;
    for (const auto& [width, ghosts] : {std::pair{1, 1}, {2, 2}, {1, 3}, {2, 3}, {0, 1}}) {
      SCOPED_TRACE(testing::Message() << D << "-D, periods " << periods << ", width " << width << " of " << ghosts);
      compare<Node>(periodic, width, ghosts);
      compare<Face>(periodic, width, ghosts);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(GridHalo, in_2d_is_as_that_of_mpi) { compare_all<2, grid::NodeHaloPattern<2>, grid::FaceHaloPattern<2>>(); }
TEST(GridHalo, in_3d_is_as_that_of_mpi) { compare_all<3, grid::NodeHaloPattern<3>, grid::FaceHaloPattern<3>>(); }

/// Three cells and five: from two ranks on there are blocks of one cell, with a width of two.
TEST(GridHalo, of_blocks_thinner_than_its_width_is_as_that_of_mpi) {
  for (const bool periodic : {false, true}) compare<grid::NodeHaloPattern<2>, 2>({periodic, periodic}, 2, 2, 3);
}

/// On a stream of its own all is enqueued at once: halos of two fields that take turns, kernels between, and no fence.
TEST(StreamHalo, needs_no_fence_between_exchanges_and_kernels) {
  const auto local = make_grid<2>({true, false}, 1);
  const int rank = rank_of(local->globalGrid().comm());
  auto now = make_pair<double, Host>("now", local, 1, grid::Cell());
  auto next = make_pair<double, Host>("next", local, 1, grid::Cell());
  const auto cells = local->indexSpace(grid::Own(), grid::Cell(), grid::Local());
  const auto smooth = [cells](const auto& from, const auto& to) {
    return [from, to, cells](std::int64_t i) {
      const auto x = cells.min(0) + i / cells.extent(1);
      const auto y = cells.min(1) + i % cells.extent(1);
      to(x, y, 0) = 0.25 * (from(x - 1, y, 0) + from(x + 1, y, 0) + from(x, y - 1, 0) + from(x, y + 1, 0));
    };
  };
  for (const auto* pair : {&now, &next}) {
    fill(pair->ours->view(), rank, 1);
    fill(pair->theirs->view(), rank, 1);
  }
  HostStream host;
  const Exec exec;
  const kokkos::Queue<Exec> queue(exec, host);
  const grid::FaceHaloPattern<2> pattern;
  const auto stream = cabana::createStreamHalo(queue, pattern, 1, *now.ours);
  const auto mpi = grid::createHalo(pattern, 1, *now.theirs);
  for (int step = 0; step < 20; ++step) {
    stream->enqueueGather(*now.ours);
    queue.parallel_for("smooth", cells.size(), smooth(now.ours->view(), next.ours->view()));
    mpi->gather(exec, *now.theirs);
    kokkos::Queue<Exec>(exec).parallel_for("smooth", cells.size(), smooth(now.theirs->view(), next.theirs->view()));
    std::swap(now, next);
  }
  queue.fence("test");
  expect_equal(now.ours->view(), now.theirs->view(), "20 steps");
}

/// Several at a time, which are closed and made again while others live, on one communicator and on two.
TEST(GridHalo, may_be_many) {
  const auto first = make_grid<2>({true, true}, 1);
  const auto second = make_grid<2>({false, true}, 2);
  const Exec exec;
  const grid::NodeHaloPattern<2> pattern;
  const auto check = [&](const auto& local, int step) {
    const int rank = rank_of(local->globalGrid().comm());
    auto cells = make_pair<double, Host>("cells", local, 2, grid::Cell());
    auto nodes = make_pair<int, Host>("nodes", local, 1, grid::Node());
    const auto of_cells = grid::createHalo<cabana::CommSpace>(pattern, 1, *cells.ours);
    const auto of_nodes = grid::createHalo<cabana::CommSpace>(pattern, 1, *nodes.ours);
    const auto compare = [&](const auto& halo, auto& pair) {
      fill(pair.ours->view(), rank, step);
      fill(pair.theirs->view(), rank, step);
      halo->gather(exec, *pair.ours);
      grid::createHalo(pattern, 1, *pair.theirs)->gather(exec, *pair.theirs);
      expect_equal(pair.ours->view(), pair.theirs->view(), "gather");
    };
    compare(of_nodes, nodes);
    compare(of_cells, cells);
    compare(of_nodes, nodes);
  };
  for (int step = 0; step < 3; ++step) {
    check(first, step);
    check(second, step);
  }
}

template <class Array, class Mpi>
void expect_gather(const std::string& what, const Pair<Array>& pair, const Mpi& mpi, int step, auto gather) {
  const int rank = rank_of(MPI_COMM_WORLD);
  fill(pair.ours->view(), rank, step);
  fill(pair.theirs->view(), rank, step);
  gather();
  mpi->gather(Exec(), *pair.theirs);
  expect_equal(pair.ours->view(), pair.theirs->view(), what);
}

TEST(GridHalo, goes_on_in_other_instances_and_spaces_and_by_copies) {
  const auto cells = make_pair<double, Host>("cells", make_grid<2>({true, true}, 1), 2, grid::Cell());
  const grid::NodeHaloPattern<2> pattern;
  const auto halo = grid::createHalo<cabana::CommSpace>(pattern, 1, *cells.ours);
  const std::vector copies(2, *halo);
  const auto mpi = grid::createHalo(pattern, 1, *cells.theirs);
  const Exec own = Kokkos::Experimental::partition_space(Exec(), 1)[0];
  for (int step = 0; step < 3; ++step) {
    expect_gather("gather", cells, mpi, step, [&] { halo->gather(Exec(), *cells.ours); });
    const Heard heard;
    expect_gather("gather on another instance", cells, mpi, step, [&] { halo->gather(own, *cells.ours); });
    EXPECT_EQ(Heard::count("sluice: halo goes to another instance"), 1);
    expect_gather("gather by a copy", cells, mpi, step, [&] { copies[1].gather(own, *cells.ours); });
    expect_gather("gather in another space", cells, mpi, step, [&] { halo->gather(Kokkos::Serial(), *cells.ours); });
  }
}

template <class Make>
void expect_opened(int times, const std::string& what,
                   const Pair<grid::Array<double, grid::Cell, grid::UniformMesh<double, 2>, Host>>& cells, int step,
                   const Make& make) {
  const auto mpi = grid::createHalo(grid::NodeHaloPattern<2>(), 1, *cells.theirs);
  const Heard heard;
  const auto halo = make();
  expect_gather(what, cells, mpi, step, [&] { halo->gather(Exec(), *cells.ours); });
  EXPECT_EQ(Heard::count("sluice: halo commit"), times) << what;
}

TEST(GridHalo, takes_over_the_channels_of_one_that_is_gone) {
  const auto local = make_grid<2>({true, true}, 1, 31);
  const auto cells = make_pair<double, Host>("cells", local, 3, grid::Cell());
  const auto make = [&] { return grid::createHalo<cabana::CommSpace>(grid::NodeHaloPattern<2>(), 1, *cells.ours); };
  expect_opened(1, "the first", cells, 1, make);
  expect_opened(0, "the next", cells, 2, make);
  const auto again = make_pair<double, Host>("cells", make_grid<2>({true, true}, 1, 31), 3, grid::Cell());
  expect_opened(0, "one of another grid with the same ranks", again, 3,
                [&] { return grid::createHalo<cabana::CommSpace>(grid::NodeHaloPattern<2>(), 1, *again.ours); });
  const auto others = make_pair<double, Host>("cells", local, 4, grid::Cell());
  expect_opened(1, "one of another shape", others, 4,
                [&] { return grid::createHalo<cabana::CommSpace>(grid::NodeHaloPattern<2>(), 1, *others.ours); });
  auto kept = make();
  expect_opened(1, "one beside another", cells, 5, make);
  if (rank_of(MPI_COMM_WORLD) > 0) kept.reset();  // rank 0 still has it, and no other rank takes it
  const auto second = make();
  expect_opened(1, "one beside two", cells, 6, make);
  kept.reset();
  expect_opened(0, "one after another", cells, 7, make);
}

/// More shapes than channels are kept for.
TEST(GridHalo, opens_its_own_again_where_many_others_were_made_since) {
  const auto local = make_grid<2>({true, true}, 1, 37);
  for (int turn = 0; turn < 2; ++turn) {
    for (int components = 1; components < 12; ++components) {
      const auto cells = make_pair<double, Host>("cells", local, components, grid::Cell());
      expect_opened(1, std::to_string(components) + " components", cells, components,
                    [&] { return grid::createHalo<cabana::CommSpace>(grid::NodeHaloPattern<2>(), 1, *cells.ours); });
    }
  }
}

TEST(StreamHalo, keeps_arrays_as_long_as_a_host_stream_has_not_come_to_them) {
  const auto local = make_grid<2>({true, true}, 1);
  HostStream host;
  const kokkos::Queue<Exec> queue(Exec(), host);
  auto cells = make_pair<double, Host>("cells", local, 1, grid::Cell()).ours;
  const auto halo = cabana::createStreamHalo(queue, grid::NodeHaloPattern<2>(), 1, *cells);
  const auto view = cells->view();
  std::promise<void> go;
  queue.run([wanted = go.get_future().share()] { wanted.wait(); });
  halo->enqueueGather(*cells);
  cells.reset();
  EXPECT_GT(view.use_count(), 1);
  go.set_value();
  queue.fence("test");
  EXPECT_EQ(view.use_count(), 1);
}

/// The stream ends with its halo; the next halo of that shape runs on another stream.
TEST(StreamHalo, leaves_no_channels_that_run_on_its_stream) {
  const auto local = make_grid<2>({true, true}, 1);
  const int rank = rank_of(local->globalGrid().comm());
  const auto cells = make_pair<double, Host>("cells", local, 2, grid::Cell());
  const grid::NodeHaloPattern<2> pattern;
  const auto mpi = grid::createHalo(pattern, 1, *cells.theirs);
  for (int step = 0; step < 3; ++step) {
    HostStream host;
    const kokkos::Queue<Exec> queue(Exec(), host);
    const auto halo = cabana::createStreamHalo(queue, pattern, 1, *cells.ours);
    fill(cells.ours->view(), rank, step);
    fill(cells.theirs->view(), rank, step);
    halo->enqueueGather(*cells.ours);
    queue.fence("test");
    mpi->gather(Exec(), *cells.theirs);
    expect_equal(cells.ours->view(), cells.theirs->view(), "gather " + std::to_string(step));
  }
}

TEST(GridHalo, says_where_its_arrays_are) {
  const auto local = make_grid<2>({true, true}, 2);
  const auto cells = make_pair<double, Host>("cells", local, 1, grid::Cell()).ours;
  const auto nodes = make_pair<int, Host>("nodes", local, 1, grid::Node()).ours;
  const auto thin = make_pair<int, Host>("nodes", make_grid<2>({true, true}, 1), 1, grid::Node()).ours;
  const auto halo = grid::createHalo<cabana::CommSpace>(grid::NodeHaloPattern<2>(), 1, *cells, *nodes);
  EXPECT_EQ(halo->getComm(*cells, *nodes), local->globalGrid().comm());
  EXPECT_EQ(halo->getLocalGrid(*cells, *nodes), local);
  EXPECT_THROW(halo->getLocalGrid(*cells, *thin), Error);
}

TEST(GridHalo, refuses_what_it_is_not_for) {
  const auto array = [](const auto& local) { return make_pair<double, Host>("cells", local, 1, grid::Cell()).ours; };
  const auto local = make_grid<2>({true, false}, 1);
  const auto cells = array(local);
  const grid::NodeHaloPattern<2> pattern;
  const auto create = [&](int width, const auto&... arrays) {
    return grid::createHalo<cabana::CommSpace>(pattern, width, arrays...);
  };
  EXPECT_THROW(create(2, *cells), std::logic_error) << "a width beyond the ghosts";
  EXPECT_THROW(create(1, *cells, *array(make_grid<2>({true, true}, 1))), Error) << "other neighbours";
  if (local->globalGrid().totalNumBlock() > 1) {
    const auto alone = array(make_grid<2>({true, false}, 1, kCells, MPI_COMM_SELF));
    EXPECT_THROW(create(1, *cells, *alone), Error) << "other ranks";
  }
  const auto halo = create(1, *cells);
  EXPECT_THROW(halo->gather(Exec(), *array(make_grid<2>({true, false}, 1))), Error) << "another grid";
  EXPECT_THROW(halo->gather(Exec(), *array(make_grid<3>({true, false, true}, 1))), Error) << "other dimensions";
  const auto mine = make_pair<double, Host>("cells", local, 1, grid::Cell());
  const auto mpi = grid::createHalo(pattern, 1, *mine.theirs);
  expect_gather("all that", mine, mpi, 1, [&] { halo->gather(Exec(), *mine.ours); });
}

}  // namespace
