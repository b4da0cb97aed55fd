// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/cabana/comm_space.hpp>
#include <sluice/kokkos/halo.hpp>
#include <sluice/kokkos/mpi_contexts.hpp>

#include <Cabana_Grid.hpp>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <any>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeindex>
#include <utility>
#include <vector>

namespace sluice::cabana {

namespace detail {

inline kokkos::Sum operation(Cabana::Grid::ScatterReduce::Sum) { return {}; }
inline kokkos::Min operation(Cabana::Grid::ScatterReduce::Min) { return {}; }
inline kokkos::Max operation(Cabana::Grid::ScatterReduce::Max) { return {}; }
inline kokkos::Replace operation(Cabana::Grid::ScatterReduce::Replace) { return {}; }

/// Of the first of these arrays.
template <class Array, class... Others>
inline constexpr std::size_t kDimensions = Array::num_space_dim;

/// An array's elements. Kernels use the array as those of a program do, which lives until they have run.
template <class Array, class View = typename Array::view_type>
using Borrowed = Kokkos::View<typename View::data_type, typename View::array_layout, typename View::device_type,
                              Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

template <class Exec, class... Arrays>
using HaloOf = kokkos::Halo<Exec, kDimensions<Arrays...>, Borrowed<Arrays>...>;

template <class Array>
const auto& grid_of(const Array& array) {
  return array.layout()->localGrid()->globalGrid();
}
template <class Array, std::size_t D = Array::num_space_dim>
kokkos::Cartesian<D> blocks_of(const Array& array) {
  kokkos::Cartesian<D> made{};
  for (std::size_t k = 0; k < D; ++k) {
    const int dimension = static_cast<int>(k);
    made.ranks[k] = grid_of(array).dimNumBlock(dimension);
    made.periodic[k] = grid_of(array).isPeriodic(dimension);
  }
  return made;
}

inline void check(bool right, const char* why) {
  if (!right) throw Error(Code::bad_argument, -1, -1, 0, 0, why);
}

template <class Array, class Other>
bool have_same_neighbours(const Array& array, const Other& other) {
  int how = MPI_UNEQUAL;
  MPI_Comm_compare(grid_of(array).comm(), grid_of(other).comm(), &how);
  return (how == MPI_IDENT || how == MPI_CONGRUENT) && blocks_of(array) == blocks_of(other);
}

/// Of arrays that are moved together.
template <class Array, class... Others>
MPI_Comm comm_of(const Array& array, const Others&... others) {
  check((have_same_neighbours(array, others) && ...),
        "the arrays of a halo are on one communicator, in blocks with the same neighbours");
  return grid_of(array).comm();
}

/// Which elements of an array are shared in each direction, as Cabana says.
template <std::size_t D>
class SharedRanges {
 public:
  template <class Array>
  SharedRanges(const Array& array, const kokkos::Stencil<D>& stencil, int width) {
    for (kokkos::Offset<D> offset : stencil) {
      for (const bool back : {false, true}) {
        if (back) offset = kokkos::detail::opposite<D>(offset);
        add(*array.layout(), offset, width);
      }
    }
  }
  kokkos::Range of(const kokkos::Offset<D>& offset, kokkos::Side side) const {
    return ranges_[place(offset)][side == kokkos::Side::own ? 0 : 1];
  }

 private:
  static std::size_t place(const kokkos::Offset<D>& offset) {
    std::size_t number = 0;
    for (const int step : offset) number = 3 * number + static_cast<std::size_t>(step + 1);
    return number;
  }
  template <class Layout>
  void add(const Layout& layout, const kokkos::Offset<D>& offset, int width) {
    const auto range = [](const auto& space) {
      kokkos::Range made;
      for (std::size_t k = 0; k <= D; ++k) {
        made.begin[k] = space.min(k);
        made.end[k] = space.max(k);
      }
      return made;
    };
    if (ranges_.size() <= place(offset)) ranges_.resize(place(offset) + 1);
    ranges_[place(offset)] = {range(layout.sharedIndexSpace(Cabana::Grid::Own(), offset, width)),
                              range(layout.sharedIndexSpace(Cabana::Grid::Ghost(), offset, width))};
  }

  std::vector<std::array<kokkos::Range, 2>> ranges_;
};

/// Describes the arrays and the block of a grid's halo. Halos of equal shapes can use the same channels.
struct Shape {
  std::type_index arrays;
  std::vector<std::int64_t> numbers;

  bool operator==(const Shape&) const = default;
};

/// The open halos of one shape, one for each kind of execution space: see `take_halos`.
struct GridHalos {
  Shape shape;
  std::string name;
  std::map<std::pair<std::type_index, Stream::Kind>, std::shared_ptr<void>> halos;
  bool reusable = true;
};

/// The entries of all halos on the same ranks, in the same order on each rank.
using AllGridHalos = std::vector<std::shared_ptr<GridHalos>>;

/// Returns unused halos of this shape if all ranks have them, else a new entry. Collective.
inline std::shared_ptr<GridHalos> take_halos(kokkos::detail::Shared& shared, MPI_Comm handle, Shape shape) {
  constexpr std::ptrdiff_t kMostLeft = 8;
  constexpr unsigned char kLeft = 1, kFits = 2;
  const auto kept = shared.keep<AllGridHalos>([] { return std::make_shared<AllGridHalos>(); });
  AllGridHalos& all = *kept;
  std::vector<unsigned char> says;
  for (const auto& one : all) {
    const bool left = one.use_count() == 1;
    const bool fits = left && one->reusable && one->shape == shape;
    says.push_back(static_cast<unsigned char>((left ? kLeft : 0) | (fits ? kFits : 0)));
  }
  if (!all.empty()) {
    kokkos::detail::check_mpi(
        MPI_Allreduce(MPI_IN_PLACE, says.data(), static_cast<int>(says.size()), MPI_UNSIGNED_CHAR, MPI_BAND, handle));
  }
  const auto found = std::ranges::find_if(says, [](unsigned char said) { return (said & kFits) != 0; });
  if (found != says.end()) {
    const auto at = all.begin() + (found - says.begin());
    std::rotate(at, at + 1, all.end());  // the least recently used is the first to be dropped
    return all.back();
  }
  // Drops the oldest unused entries beyond kMostLeft.
  auto left = std::ranges::count_if(says, [](unsigned char said) { return (said & kLeft) != 0; });
  auto said = says.begin();
  std::erase_if(all, [&](const auto&) { return (*said++ & kLeft) != 0 && left-- >= kMostLeft; });
  all.push_back(
      std::make_shared<GridHalos>(GridHalos{std::move(shape), "cabana " + std::to_string(shared.named++), {}}));
  return all.back();
}

/// Appends the numbers that, with the array's type, determine its ranges and so a halo's channels and kernels.
template <class Array>
void append_shape(std::vector<std::int64_t>& numbers, const Array& array) {
  const auto view = array.view();
  for (std::size_t k = 0; k < view.rank(); ++k) {
    numbers.push_back(static_cast<std::int64_t>(view.extent(k)));
    numbers.push_back(static_cast<std::int64_t>(view.stride(k)));
  }
  numbers.push_back(array.layout()->localGrid()->haloCellWidth());
}
template <class Array, class... Others>
Shape shape_of(const kokkos::Stencil<Array::num_space_dim>& stencil, int width, const Array& array,
               const Others&... others) {
  std::vector<std::int64_t> numbers{width};
  const auto& grid = grid_of(array);
  for (std::size_t k = 0; k < Array::num_space_dim; ++k) {
    const int dimension = static_cast<int>(k);
    numbers.insert(numbers.end(),
                   {grid.dimNumBlock(dimension), grid.dimBlockId(dimension), grid.isPeriodic(dimension) ? 1 : 0});
  }
  for (const auto& offset : stencil) numbers.insert(numbers.end(), offset.begin(), offset.end());
  append_shape(numbers, array);
  (append_shape(numbers, others), ...);
  return {typeid(std::tuple<Array, Others...>), std::move(numbers)};
}

/// A halo of arrays on a grid, on whichever instances it is used.
class GridHalo {
 public:
  /// Collective.
  template <class Pattern, class... Arrays>
  GridHalo(const Pattern& pattern, int width, const Arrays&... arrays) : width_(width) {
    static_assert(((Arrays::num_space_dim == Pattern::num_space_dim) && ...),
                  "the pattern has another number of dimensions than the arrays");
    static_assert(sizeof...(Arrays) <= kokkos::detail::kMostViews, "a halo takes eight arrays at most");
    const MPI_Comm comm = comm_of(arrays...);
    const auto stencil = pattern.getNeighbors();
    for (const auto& offset : stencil)  // which throws for a width beyond the ghosts
      (static_cast<void>(arrays.layout()->sharedIndexSpace(Cabana::Grid::Own(), offset, width)), ...);
    shared_ = kokkos::detail::shared_by(comm);
    halos_ = take_halos(*shared_, comm, shape_of(stencil, width, arrays...));
    grid_ = Grid<kDimensions<Arrays...>>{stencil, blocks_of(arrays...)};
  }

  template <class Exec, class... Arrays>
  void gather(const kokkos::Queue<Exec>& queue, const Arrays&... arrays) const {
    use([&] { on(queue, arrays...).exchange(Borrowed<Arrays>(arrays.view())...); });
  }
  template <class Exec, class Operation, class... Arrays>
  void scatter(const kokkos::Queue<Exec>& queue, const Operation& how, const Arrays&... arrays) const {
    use([&] { on(queue, arrays...).scatter(operation(how), Borrowed<Arrays>(arrays.view())...); });
  }
  /// Returns the halo for such arrays, moved to this queue. The first call opens it.
  template <class Exec, class... Arrays>
  HaloOf<Exec, Arrays...>& on(const kokkos::Queue<Exec>& queue, const Arrays&... arrays) const {
    using Made = HaloOf<Exec, Arrays...>;
    const std::pair<std::type_index, Stream::Kind> kind{typeid(Made), queue.stream().kind()};
    auto found = halos_->halos.find(kind);
    if (found == halos_->halos.end()) found = halos_->halos.emplace(kind, open(queue, arrays...)).first;
    auto& halo = *static_cast<Made*>(found->second.get());
    halo.go_to(queue);
    return halo;
  }

  /// Closes the channels, which no later halo takes over.
  void close() const noexcept {
    halos_->reusable = false;
    halos_->halos.clear();
  }

 private:
  template <std::size_t D>
  struct Grid {
    kokkos::Stencil<D> stencil;
    kokkos::Cartesian<D> blocks;
  };
  template <class Array, class... Others>
  static auto blocks_of(const Array& array, const Others&...) {
    return detail::blocks_of(array);
  }

  template <class F>
  void use(F f) const {
    try {
      f();
    } catch (...) {
      halos_->reusable = false;
      *shared_->failed = true;
      throw;
    }
  }
  template <class Exec, class... Arrays>
  auto open(const kokkos::Queue<Exec>& queue, const Arrays&... arrays) const {
    constexpr std::size_t kD = kDimensions<Arrays...>;
    const auto* const grid = std::any_cast<Grid<kD>>(&grid_);
    check(grid != nullptr && kokkos::detail::find_attribute<kokkos::detail::Shared>(comm_of(arrays...)) == shared_ &&
              grid->blocks == blocks_of(arrays...),
          "a halo moves arrays of the grid that it was made with");
    kokkos::HaloOptions<kD> options{.stencil = grid->stencil,
                                    .name = halos_->name + "." + std::to_string(halos_->halos.size())};
    options.ranges = [all = std::vector{SharedRanges<kD>(arrays, grid->stencil, width_)...}](
                         std::size_t view, const kokkos::Offset<kD>& offset, kokkos::Side side) {
      return all[view].of(offset, side);
    };
    return std::make_shared<HaloOf<Exec, Arrays...>>(shared_->context, queue, grid->blocks, 1, std::move(options),
                                                     Borrowed<Arrays>(arrays.view())...);
  }

  std::shared_ptr<kokkos::detail::Shared> shared_;
  std::shared_ptr<GridHalos> halos_;
  std::any grid_;
  int width_;
};

}  // namespace detail

/// A grid halo in the order of one execution space instance, or Queue. Arrays are given in the order of its creation;
/// they may be others of the same layouts, and live until what was enqueued has run: on a HostStream it keeps them.
/// One thread at a time.
template <class Exec, class MemorySpace, class Space = CommSpace>
class StreamHalo {
  static_assert(std::is_same_v<Space, CommSpace>, "sluice::cabana has one communication space");

 public:
  using memory_space = MemorySpace;

  /// Collective: all ranks of the grid make their halos in the same order. As Cabana::Grid::createHalo, for 1 to 8
  /// arrays.
  template <class Pattern, class... Arrays>
  StreamHalo(const kokkos::Queue<Exec>& queue, const Pattern& pattern, int width, const Arrays&... arrays)
      : queue_(queue), halo_(pattern, width, arrays...) {
    static_assert((std::is_same_v<typename Arrays::memory_space, MemorySpace> && ...),
                  "the arrays of a halo are in one memory space");
    halo(arrays...);
  }
  /// A stream may end after this, and with it what its channels run on: no later halo takes these over.
  ~StreamHalo() {
    if (queue_.stream().kind() != Stream::Kind::program_order) halo_.close();
  }
  StreamHalo(const StreamHalo&) = delete;
  StreamHalo& operator=(const StreamHalo&) = delete;

  /// Enqueues: ghosts get what their owners have at this point of their queues.
  template <class... Arrays>
  void enqueueGather(const Arrays&... arrays) {
    const Keep kept(queue_, arrays...);
    halo_.gather(queue_, arrays...);
  }
  /// Enqueues: what ghosts have is combined into their owners' values, by an operation of Cabana::Grid::ScatterReduce.
  /// The sum is the same every time; Replace takes the value of the pattern's last direction.
  template <class Operation, class... Arrays>
  void enqueueScatter(const Operation& operation, const Arrays&... arrays) {
    const Keep kept(queue_, arrays...);
    halo_.scatter(queue_, operation, arrays...);
  }

  /// Like Cabana::Grid::Halo::gather and scatter: on the instance of each call.
  template <class ExecutionSpace, class... Arrays>
  void gather(const ExecutionSpace& exec, const Arrays&... arrays) {
    halo_.gather(kokkos::Queue<ExecutionSpace>(exec), arrays...);
  }
  template <class ExecutionSpace, class Operation, class... Arrays>
  void scatter(const ExecutionSpace& exec, const Operation& operation, const Arrays&... arrays) {
    halo_.scatter(kokkos::Queue<ExecutionSpace>(exec), operation, arrays...);
  }

  /// Returns the kokkos::Halo for these arrays, to commit, to start and finish apart, or to describe it. The
  /// caller keeps what it moves.
  template <class... Arrays>
  detail::HaloOf<Exec, Arrays...>& halo(const Arrays&... arrays) {
    return halo_.on(queue_, arrays...);
  }

 private:
  /// Keeps the arrays until the host stream has run everything that is enqueued in this object's lifetime.
  template <class... Arrays>
  class Keep {
   public:
    Keep(const kokkos::Queue<Exec>& queue, const Arrays&... arrays) : queue_(queue), views_(arrays.view()...) {}
    ~Keep() {
      if (queue_.stream().kind() != Stream::Kind::host) return;
      try {
        queue_.run([views = views_] {});
      } catch (...) {
        new std::tuple(views_);  // never freed: what is enqueued may still use them
      }
    }
    Keep(const Keep&) = delete;
    Keep& operator=(const Keep&) = delete;

   private:
    const kokkos::Queue<Exec>& queue_;
    std::tuple<typename Arrays::view_type...> views_;
  };

  kokkos::Queue<Exec> queue_;
  detail::GridHalo halo_;
};

/// `exec`: an instance of an execution space, or a kokkos::Queue. @see StreamHalo
template <class Space = CommSpace, class Exec, class Pattern, class Array, class... Others>
auto createStreamHalo(const kokkos::Queue<Exec>& queue, const Pattern& pattern, int width, const Array& array,
                      const Others&... others) {
  return std::make_shared<StreamHalo<Exec, typename Array::memory_space, Space>>(queue, pattern, width, array,
                                                                                 others...);
}
template <class Space = CommSpace, class Exec, class Pattern, class... Arrays>
auto createStreamHalo(const Exec& exec, const Pattern& pattern, int width, const Arrays&... arrays) {
  return createStreamHalo<Space>(kokkos::Queue<Exec>(exec), pattern, width, arrays...);
}

}  // namespace sluice::cabana

/// What Cabana::Grid::createHalo<sluice::cabana::CommSpace>(pattern, width, arrays...) makes. The first gather, and the
/// first scatter, open channels, as `exec` is first known there, and so does one with another execution space: all
/// ranks in the same order; unless a halo of the same shape has left its own. They return when all is enqueued on
/// `exec`. Copies are the same halo. One thread at a time.
template <class MemorySpace>
class Cabana::Grid::Halo<MemorySpace, sluice::cabana::CommSpace> {
 public:
  using memory_space = MemorySpace;

  /// Collective: all ranks of the grid make their halos in the same order.
  /// @throws std::logic_error for a width beyond the ghosts; Error{Code::bad_argument} for arrays of several grids
  template <class Pattern, class... Arrays>
  Halo(const Pattern& pattern, int width, const Arrays&... arrays) : halo_(pattern, width, arrays...) {
    static_assert((std::is_same_v<typename Arrays::memory_space, MemorySpace> && ...),
                  "the arrays of a halo are in one memory space");
  }

  template <class ExecutionSpace, class... Arrays>
  void gather(const ExecutionSpace& exec, const Arrays&... arrays) const {
    halo_.gather(sluice::kokkos::Queue<ExecutionSpace>(exec), arrays...);
  }
  template <class ExecutionSpace, class Operation, class... Arrays>
  void scatter(const ExecutionSpace& exec, const Operation& operation, const Arrays&... arrays) const {
    halo_.scatter(sluice::kokkos::Queue<ExecutionSpace>(exec), operation, arrays...);
  }

  /// @throws Error{Code::bad_argument} for arrays of several communicators
  template <class... Arrays>
  MPI_Comm getComm(const Arrays&... arrays) const {
    return sluice::cabana::detail::comm_of(arrays...);
  }
  /// @throws Error{Code::bad_argument} for arrays with ghosts of several widths
  template <class Array, class... Others>
  auto getLocalGrid(const Array& array, const Others&... others) const {
    const auto grid = array.layout()->localGrid();
    sluice::cabana::detail::check(((grid->haloCellWidth() == others.layout()->localGrid()->haloCellWidth()) && ...),
                                  "the arrays have ghosts of several widths");
    return grid;
  }

 private:
  sluice::cabana::detail::GridHalo halo_;
};
