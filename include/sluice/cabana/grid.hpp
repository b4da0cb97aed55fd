// SPDX-License-Identifier: Apache-2.0
// Cabana's halos on grids: Cabana::Grid::Halo with CommSpace in place of Cabana::Mpi, and StreamHalo.
#pragma once

#include <sluice/cabana/comm_space.hpp>
#include <sluice/kokkos/halo.hpp>
#include <sluice/kokkos/mpi_contexts.hpp>

#include <Cabana_Grid.hpp>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <any>
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

/// The number of dimensions of the first of these arrays.
template <class Array, class... Others>
inline constexpr std::size_t kDimensions = Array::num_space_dim;

/// An array's elements. The program keeps the array until kernels that use it have run.
template <class Array, class View = typename Array::view_type>
using Borrowed = Kokkos::View<typename View::data_type, typename View::array_layout, typename View::device_type,
                              Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

template <class Exec, class... Arrays>
using HaloOf = kokkos::Halo<Exec, kDimensions<Arrays...>, Borrowed<Arrays>...>;

const auto& grid_of(const auto& array) { return array.layout()->localGrid()->globalGrid(); }
/// The blocks of the first of these arrays.
template <class Array, class... Others>
auto blocks_of(const Array& array, const Others&...) {
  kokkos::Cartesian<Array::num_space_dim> made{};
  for (int k = 0; k < static_cast<int>(Array::num_space_dim); ++k) {
    made.ranks[k] = grid_of(array).dimNumBlock(k);
    made.periodic[k] = grid_of(array).isPeriodic(k);
  }
  return made;
}

inline void check(bool right, const char* why) {
  if (!right) throw Error(Code::bad_argument, -1, -1, 0, 0, why);
}

bool have_same_neighbours(const auto& array, const auto& other) {
  int how = MPI_UNEQUAL;
  MPI_Comm_compare(grid_of(array).comm(), grid_of(other).comm(), &how);
  return (how == MPI_IDENT || how == MPI_CONGRUENT) && blocks_of(array) == blocks_of(other);
}

/// Returns the communicator of arrays that are moved together.
MPI_Comm comm_of(const auto& array, const auto&... others) {
  check((have_same_neighbours(array, others) && ...),
        "the arrays of a halo are on one communicator, in blocks with the same neighbours");
  return grid_of(array).comm();
}

template <std::size_t D>
using SharedRanges = std::map<std::pair<kokkos::Offset<D>, kokkos::Side>, kokkos::Range>;

/// Returns the elements of an array that are shared in each direction, as Cabana defines them.
template <std::size_t D>
SharedRanges<D> shared_ranges(const auto& array, const kokkos::Block<D>& block) {
  SharedRanges<D> ranges;
  const auto add = [&](const auto& space, const kokkos::Offset<D>& offset, kokkos::Side side) {
    kokkos::Range& range = ranges[{offset, side}];
    for (std::size_t k = 0; k <= D; ++k) {
      range.begin[k] = space.min(k);
      range.end[k] = space.max(k);
    }
  };
  const auto width = static_cast<int>(block.width);
  for (const kokkos::Offset<D>& one : block.stencil) {
    for (const kokkos::Offset<D>& offset : {one, kokkos::detail::opposite<D>(one)}) {
      add(array.layout()->sharedIndexSpace(Cabana::Grid::Own(), offset, width), offset, kokkos::Side::own);
      add(array.layout()->sharedIndexSpace(Cabana::Grid::Ghost(), offset, width), offset, kokkos::Side::ghosts);
    }
  }
  return ranges;
}

/// Describes the arrays and the block of a grid's halo. Halos of equal shapes can use the same channels.
using Shape = std::pair<std::type_index, std::vector<std::int64_t>>;

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
  const auto kept = shared.keep<AllGridHalos>();
  AllGridHalos& all = *kept;
  std::vector<unsigned char> says;
  for (const auto& one : all) {
    const bool left = one.use_count() == 1;
    const bool fits = left && one->reusable && one->shape == shape;
    says.push_back(static_cast<unsigned char>((left ? kLeft : 0) | (fits ? kFits : 0)));
  }
  if (!all.empty())
    kokkos::detail::check_mpi(
        MPI_Allreduce(MPI_IN_PLACE, says.data(), static_cast<int>(says.size()), MPI_UNSIGNED_CHAR, MPI_BAND, handle));
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

/// Returns the arrays' types, and the numbers that with them determine a halo's ranges, channels and kernels.
template <class Array, class... Others>
Shape shape_of(const kokkos::Stencil<Array::num_space_dim>& stencil, int width, const Array& array,
               const Others&... others) {
  std::vector<std::int64_t> numbers{width};
  const auto& grid = grid_of(array);
  for (int k = 0; k < static_cast<int>(Array::num_space_dim); ++k)
    numbers.insert(numbers.end(), {grid.dimNumBlock(k), grid.dimBlockId(k), grid.isPeriodic(k) ? 1 : 0});
  for (const auto& offset : stencil) numbers.insert(numbers.end(), offset.begin(), offset.end());
  const auto append = [&](const auto& one) {
    const auto view = one.view();
    for (std::size_t k = 0; k < view.rank(); ++k) {
      numbers.push_back(static_cast<std::int64_t>(view.extent(k)));
      numbers.push_back(static_cast<std::int64_t>(view.stride(k)));
    }
    numbers.push_back(one.layout()->localGrid()->haloCellWidth());
  };
  append(array);
  (append(others), ...);
  return {typeid(std::tuple<Array, Others...>), std::move(numbers)};
}

/// A halo of 1 to 8 arrays on a grid, as Cabana::Grid::createHalo<sluice::cabana::CommSpace>(pattern, width, arrays...)
/// makes it. `exec` is an execution space instance or a Queue, which may differ from call to
/// call. The first gather, and the first scatter, with an instance of one execution space open channels, unless an
/// earlier halo of the same shape has left its own: so all ranks make these calls in the same order. Copies are the
/// same halo. One thread at a time.
///
/// Arrays are given in the order of the creation. They may be others of the same layouts, and live until what was
/// enqueued has run.
template <class MemorySpace>
class GridHalo {
 public:
  using memory_space = MemorySpace;

  /// Opens no channel. Collective: all ranks of the grid make their halos in the same order.
  /// @throws std::logic_error for a width beyond the ghosts; Error{Code::bad_argument} for arrays of several grids
  template <class Pattern, class... Arrays>
  GridHalo(const Pattern& pattern, int width, const Arrays&... arrays) {
    static_assert((std::is_same_v<typename Arrays::memory_space, MemorySpace> && ...),
                  "the arrays of a halo are in one memory space");
    static_assert(((Arrays::num_space_dim == Pattern::num_space_dim) && ...),
                  "the pattern has another number of dimensions than the arrays");
    static_assert(sizeof...(Arrays) <= kokkos::detail::kMostViews, "a halo takes eight arrays at most");
    const MPI_Comm comm = comm_of(arrays...);
    const auto stencil = pattern.getNeighbors();
    for (const auto& offset : stencil)  // throws for a width beyond the ghosts
      (static_cast<void>(arrays.layout()->sharedIndexSpace(Cabana::Grid::Own(), offset, width)), ...);
    shared_ = kokkos::detail::shared_by(comm);
    halos_ = take_halos(*shared_, comm, shape_of(stencil, width, arrays...));
    block_ = kokkos::Block<kDimensions<Arrays...>>{shared_->context.rank(), blocks_of(arrays...), width, stencil};
  }

  /// Enqueues on `exec`: ghosts get what their owners have at this point of the owners' queues.
  /// @throws as kokkos::Halo::exchange, and the first call as its constructor; Error{Code::bad_argument} for arrays of
  ///   another grid
  template <class Where, class... Arrays>
  void gather(const Where& exec, const Arrays&... arrays) const {
    use([&] { on(kokkos::Queue(exec), arrays...).exchange(Borrowed<Arrays>(arrays.view())...); });
  }
  /// Enqueues on `exec`: the values of ghosts are combined into those of their owners, by an operation of
  /// Cabana::Grid::ScatterReduce. A Sum is the same every time; Replace takes the value of the pattern's last
  /// direction.
  /// @throws as `gather`
  template <class Where, class Operation, class... Arrays>
  void scatter(const Where& exec, const Operation& how, const Arrays&... arrays) const {
    use([&] { on(kokkos::Queue(exec), arrays...).scatter(operation(how), Borrowed<Arrays>(arrays.view())...); });
  }

  /// @throws Error{Code::bad_argument} for arrays of several communicators
  MPI_Comm getComm(const auto&... arrays) const { return comm_of(arrays...); }
  /// @throws Error{Code::bad_argument} for arrays with ghosts of several widths
  auto getLocalGrid(const auto& array, const auto&... others) const {
    const auto grid = array.layout()->localGrid();
    check(((grid->haloCellWidth() == others.layout()->localGrid()->haloCellWidth()) && ...),
          "the arrays have ghosts of several widths");
    return grid;
  }

 protected:
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
  void use(auto f) const {
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
    const auto* const block = std::any_cast<kokkos::Block<kD>>(&block_);
    check(block != nullptr && kokkos::detail::find_attribute<kokkos::detail::Shared>(comm_of(arrays...)) == shared_ &&
              block->grid == blocks_of(arrays...),
          "a halo moves arrays of the grid that it was made with");
    kokkos::HaloOptions<kD> options{.stencil = block->stencil,
                                    .name = halos_->name + "." + std::to_string(halos_->halos.size())};
    options.ranges = [all = std::vector{shared_ranges(arrays, *block)...}](
                         std::size_t view, const kokkos::Offset<kD>& offset, kokkos::Side side) {
      return all[view].at({offset, side});
    };
    return std::make_shared<HaloOf<Exec, Arrays...>>(shared_->context, queue, block->grid, 1, std::move(options),
                                                     Borrowed<Arrays>(arrays.view())...);
  }

  std::shared_ptr<kokkos::detail::Shared> shared_;
  std::shared_ptr<GridHalos> halos_;
  std::any block_;
};

}  // namespace detail

/// A grid halo in the order of one execution space instance, or Queue. It has the functions of detail::GridHalo, too.
/// On a HostStream it keeps the arrays until what was enqueued has run. Neither copied nor moved. One thread at a time.
template <class Exec, class MemorySpace, class Space = CommSpace>
class StreamHalo : public detail::GridHalo<MemorySpace>, sluice::detail::NonCopyable {
  static_assert(std::is_same_v<Space, CommSpace>, "sluice::cabana has one communication space");

 public:
  /// Opens the channels of `enqueueGather`. Collective: all ranks of the grid make their halos in the same order.
  /// @throws as the constructors of detail::GridHalo and kokkos::Halo
  template <class Pattern, class... Arrays>
  StreamHalo(const kokkos::Queue<Exec>& queue, const Pattern& pattern, int width, const Arrays&... arrays)
      : detail::GridHalo<MemorySpace>(pattern, width, arrays...), queue_(queue) {
    halo(arrays...);
  }
  /// The program may destroy a stream next, and with it what its channels run on: no later halo takes these over.
  ~StreamHalo() {
    if (!queue_.in_program_order()) this->close();
  }

  /// Enqueues a gather, or a scatter, on the queue of this halo. @throws as `gather`
  template <class... Arrays>
  void enqueueGather(const Arrays&... arrays) {
    const Keep<Arrays...> kept{queue_, {arrays.view()...}};
    this->gather(queue_, arrays...);
  }
  template <class... Arrays>
  void enqueueScatter(const auto& operation, const Arrays&... arrays) {
    const Keep<Arrays...> kept{queue_, {arrays.view()...}};
    this->scatter(queue_, operation, arrays...);
  }

  /// Returns the kokkos::Halo for these arrays, to commit, to start and finish apart, or to describe it. The caller
  /// keeps the arrays that it moves.
  auto& halo(const auto&... arrays) { return this->on(queue_, arrays...); }

 private:
  /// Keeps the arrays until the host stream has run everything that is enqueued in this object's lifetime.
  template <class... Arrays>
  struct Keep {
    ~Keep() {
      if (!queue.on_host_stream()) return;
      try {
        queue.run([views = views] {});
      } catch (...) {
        new std::tuple(views);  // never freed: what is enqueued may still use them
      }
    }

    const kokkos::Queue<Exec>& queue;
    std::tuple<typename Arrays::view_type...> views;
  };

  kokkos::Queue<Exec> queue_;
};

/// Makes a StreamHalo. `exec`: an instance of an execution space, or a kokkos::Queue.
template <class Space = CommSpace, class Where, class Pattern, class Array, class... Others>
auto createStreamHalo(const Where& exec, const Pattern& pattern, int width, const Array& array,
                      const Others&... others) {
  const kokkos::Queue queue(exec);
  using Exec = typename decltype(queue)::execution_space;
  return std::make_shared<StreamHalo<Exec, typename Array::memory_space, Space>>(queue, pattern, width, array,
                                                                                 others...);
}

}  // namespace sluice::cabana

/// @see sluice::cabana::detail::GridHalo
template <class MemorySpace>
class Cabana::Grid::Halo<MemorySpace, sluice::cabana::CommSpace>
    : public sluice::cabana::detail::GridHalo<MemorySpace> {
  using Halo::GridHalo::GridHalo;
};
