// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/cabana/communicator.hpp>
#include <sluice/kokkos/halo.hpp>

#include <Cabana_Grid.hpp>
#include <Kokkos_Core.hpp>

#include <any>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
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

template <class Exec, class... Arrays>
using HaloOf = kokkos::Halo<Exec, kDimensions<Arrays...>, typename Arrays::view_type...>;

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

/// Which elements of the array are shared in a direction, as Cabana says.
template <std::size_t D, class Array>
auto shared_by(const Array& array, int width) {
  return [layout = array.layout(), width](const kokkos::Offset<D>& offset, kokkos::Side side) {
    const auto space = side == kokkos::Side::own ? layout->sharedIndexSpace(Cabana::Grid::Own(), offset, width)
                                                 : layout->sharedIndexSpace(Cabana::Grid::Ghost(), offset, width);
    kokkos::Range range;
    for (std::size_t k = 0; k <= D; ++k) {
      range.begin[k] = space.min(k);
      range.end[k] = space.max(k);
    }
    return range;
  };
}

template <class Exec, std::size_t D, class Array, class... Others>
HaloOf<Exec, Array, Others...> open_halo(Context& context, const std::string& name, const kokkos::Queue<Exec>& queue,
                                         const kokkos::Stencil<D>& stencil, int width, const Array& array,
                                         const Others&... others) {
  using Shared = std::function<kokkos::Range(const kokkos::Offset<D>&, kokkos::Side)>;
  kokkos::HaloOptions<D> options{.stencil = stencil, .name = name};
  options.ranges = [all = std::vector<Shared>{shared_by<D>(array, width), shared_by<D>(others, width)...}](
                       std::size_t view, const kokkos::Offset<D>& offset, kokkos::Side side) {
    return all[view](offset, side);
  };
  return {context, queue, blocks_of(array), 1, std::move(options), array.view(), others.view()...};
}

}  // namespace detail

/// A grid halo in the order of one execution space instance, or Queue. Arrays are given in the order of its creation;
/// they may be others of the same layouts. It keeps the Views of those it was made with, and of those that it moved
/// last. One thread at a time.
template <class Exec, class... Arrays>
class StreamHalo {
 public:
  /// Collective: all ranks of the grid make their halos in the same order. As Cabana::Grid::createHalo, for 1 to 8
  /// arrays.
  template <class Pattern>
  StreamHalo(const kokkos::Queue<Exec>& queue, const Pattern& pattern, int width, const Arrays&... arrays)
      : StreamHalo(*detail::communicator(detail::comm_of(arrays...)), queue, pattern, width, arrays...) {}

  /// Enqueues: ghosts get what their owners have at this point of their queues.
  void enqueueGather(const Arrays&... arrays) { halo_.exchange(arrays.view()...); }
  /// Enqueues: what ghosts have is combined into their owners' values, by an operation of Cabana::Grid::ScatterReduce.
  /// The sum is the same every time; Replace takes the value of the pattern's last direction.
  template <class Operation>
  void enqueueScatter(const Operation& operation, const Arrays&... arrays) {
    halo_.scatter(detail::operation(operation), arrays.view()...);
  }

  /// What does it: to commit, to start and finish apart, to describe.
  detail::HaloOf<Exec, Arrays...>& halo() noexcept { return halo_; }

 private:
  template <class Pattern>
  StreamHalo(detail::Communicator& shared, const kokkos::Queue<Exec>& queue, const Pattern& pattern, int width,
             const Arrays&... arrays)
      : halo_(detail::open_halo(shared.context, shared.next_name(), queue, pattern.getNeighbors(), width, arrays...)) {}

  detail::HaloOf<Exec, Arrays...> halo_;
};

/// `exec`: an instance of an execution space, or a kokkos::Queue. @see StreamHalo
template <class Space = CommSpace, class Exec, class Pattern, class... Arrays>
auto createStreamHalo(const kokkos::Queue<Exec>& queue, const Pattern& pattern, int width, const Arrays&... arrays) {
  static_assert(std::is_same_v<Space, CommSpace>, "sluice::cabana has one communication space");
  return std::make_shared<StreamHalo<Exec, Arrays...>>(queue, pattern, width, arrays...);
}
template <class Space = CommSpace, class Exec, class Pattern, class... Arrays>
auto createStreamHalo(const Exec& exec, const Pattern& pattern, int width, const Arrays&... arrays) {
  return createStreamHalo<Space>(kokkos::Queue<Exec>(exec), pattern, width, arrays...);
}

}  // namespace sluice::cabana

/// What Cabana::Grid::createHalo<sluice::cabana::CommSpace>(pattern, width, arrays...) makes. The first gather, and the
/// first scatter, open channels, as `exec` is first known there, and so does one with another execution space: all
/// ranks in the same order. They return when all is enqueued on `exec`. Keeps Views of arrays, as StreamHalo does.
/// Copies are the same halo.
template <class MemorySpace>
class Cabana::Grid::Halo<MemorySpace, sluice::cabana::CommSpace> {
 public:
  using memory_space = MemorySpace;

  /// Collective: all ranks of the grid make their halos in the same order.
  /// @throws std::logic_error for a width beyond the ghosts; Error{Code::bad_argument} for arrays of several grids
  template <class Pattern, class... Arrays>
  Halo(const Pattern& pattern, int width, const Arrays&... arrays)
      : shared_(sluice::cabana::detail::communicator(sluice::cabana::detail::comm_of(arrays...))),
        name_(shared_->next_name()), stencil_(pattern.getNeighbors()), width_(width) {
    static_assert(((Arrays::num_space_dim == Pattern::num_space_dim) && ...),
                  "the pattern has another number of dimensions than the arrays");
    static_assert((std::is_same_v<typename Arrays::memory_space, MemorySpace> && ...),
                  "the arrays of a halo are in one memory space");
    static_assert(sizeof...(Arrays) <= sluice::kokkos::detail::kMostViews, "a halo takes eight arrays at most");
    for (const auto& offset : pattern.getNeighbors())
      (static_cast<void>(arrays.layout()->sharedIndexSpace(Own(), offset, width)), ...);
  }

  template <class ExecutionSpace, class... Arrays>
  void gather(const ExecutionSpace& exec, const Arrays&... arrays) const {
    on(exec, arrays...).exchange(arrays.view()...);
  }
  template <class ExecutionSpace, class Operation, class... Arrays>
  void scatter(const ExecutionSpace& exec, const Operation& operation, const Arrays&... arrays) const {
    on(exec, arrays...).scatter(sluice::cabana::detail::operation(operation), arrays.view()...);
  }

 private:
  using Halos = std::map<std::type_index, std::shared_ptr<void>>;

  /// The halo of this kind of execution space, which then goes on there. Another kind opens another one.
  template <class ExecutionSpace, class... Arrays>
  auto& on(const ExecutionSpace& exec, const Arrays&... arrays) const {
    using Made = sluice::cabana::detail::HaloOf<ExecutionSpace, Arrays...>;
    auto found = halos_->find(typeid(Made));
    if (found == halos_->end()) found = halos_->emplace(typeid(Made), open(exec, arrays...)).first;
    auto& halo = *static_cast<Made*>(found->second.get());
    halo.go_to(exec);
    return halo;
  }
  template <class ExecutionSpace, class... Arrays>
  auto open(const ExecutionSpace& exec, const Arrays&... arrays) const {
    namespace detail = sluice::cabana::detail;
    const auto* const stencil = std::any_cast<sluice::kokkos::Stencil<detail::kDimensions<Arrays...>>>(&stencil_);
    detail::check(stencil != nullptr && detail::find_communicator(detail::comm_of(arrays...)) == shared_,
                  "a halo moves arrays of the grid that it was made with");
    return std::make_shared<detail::HaloOf<ExecutionSpace, Arrays...>>(
        detail::open_halo(shared_->context, name_ + "." + std::to_string(halos_->size()),
                          sluice::kokkos::Queue<ExecutionSpace>(exec), *stencil, width_, arrays...));
  }

  sluice::cabana::detail::SharedCommunicator shared_;
  std::string name_;
  std::any stencil_;
  int width_;
  std::shared_ptr<Halos> halos_ = std::make_shared<Halos>();
};
