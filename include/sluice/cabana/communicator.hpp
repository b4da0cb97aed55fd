// SPDX-License-Identifier: Apache-2.0
// What the halos and plans of some ranks share, whichever communicators they are made with.
#pragma once

#include <sluice/context.hpp>
#include <sluice/mpi.hpp>

#include <mpi.h>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

namespace sluice::cabana {

/// The communication space: Cabana's classes take it in place of Cabana::Mpi.
struct CommSpace {};

namespace detail {

inline void check_mpi(int result) {
  if (result != MPI_SUCCESS) throw Error(Code::transport, -1, -1, 0, 0, "MPI failed while a halo was made");
}

/// Of the arrays of a grid's halo, and of its block: halos that are equal in it can use the same channels.
struct Shape {
  std::type_index arrays;
  std::vector<std::int64_t> numbers;

  bool operator==(const Shape&) const = default;
};

/// The halos of one shape, one for each kind of execution space that used it: see `take_halos`.
struct GridHalos {
  Shape shape;
  std::string name;
  std::map<std::pair<std::type_index, Stream::Kind>, std::shared_ptr<void>> halos;
  bool failed = false;
};

/// What all communicators of the same ranks in the same order have in common.
struct Shared {
  Context context;
  int made = 0;                                             // of `grids` so far
  std::vector<std::shared_ptr<GridHalos>> grids;            // in the same order on all ranks
  std::map<std::type_index, std::shared_ptr<void>> movers;  // of particles, by memory space
  std::shared_ptr<bool> failed = std::make_shared<bool>();  // something has: no further communicator shares this
};

/// `made` has what kernels use, and they end with Kokkos.
inline std::shared_ptr<Shared> until_kokkos_ends(std::shared_ptr<Shared> made) {
  Kokkos::push_finalize_hook([all = std::weak_ptr(made)] {
    const auto still = all.lock();
    if (!still) return;
    still->movers.clear();
    still->grids.clear();
  });
  return made;
}

/// The contexts of this process, an attribute of MPI_COMM_SELF, which MPI_Finalize deletes first.
struct Contexts {
  struct One {
    MPI_Group ranks;
    std::weak_ptr<Shared> shared;
  };

  Contexts() = default;
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;
  ~Contexts() {
    for (One& one : all) MPI_Group_free(&one.ranks);
  }

  std::shared_ptr<Shared> of(MPI_Group ranks) const {
    for (const One& one : all) {
      int order = MPI_UNEQUAL;
      check_mpi(MPI_Group_compare(ranks, one.ranks, &order));
      if (order != MPI_IDENT) continue;
      if (auto found = one.shared.lock(); found && !*found->failed) return found;
    }
    return nullptr;
  }
  void add(MPI_Group ranks, const std::shared_ptr<Shared>& shared) {
    std::erase_if(all, [](One& one) { return one.shared.expired() && MPI_Group_free(&one.ranks) == MPI_SUCCESS; });
    all.push_back({ranks, shared});
  }

  std::vector<One> all;
  std::shared_ptr<Shared> last;  // kept where nothing else keeps it: a program makes one grid after another
};

/// An attribute of communicators: a T that duplicates share.
template <class T>
int attribute() {
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    const auto copy = [](MPI_Comm, int, void*, void* from, void* to, int* flag) {
      *static_cast<void**>(to) = new std::shared_ptr<T>(*static_cast<std::shared_ptr<T>*>(from));
      *flag = 1;
      return MPI_SUCCESS;
    };
    const auto forget = [](MPI_Comm, int, void* attribute, void*) {
      delete static_cast<std::shared_ptr<T>*>(attribute);
      return MPI_SUCCESS;
    };
    check_mpi(MPI_Comm_create_keyval(copy, forget, &made, nullptr));
    return made;
  }();
  return key;
}

/// That of this communicator; null before one was set.
template <class T>
std::shared_ptr<T> find_attribute(MPI_Comm handle) {
  void* found = nullptr;
  int is_there = 0;
  check_mpi(MPI_Comm_get_attr(handle, attribute<T>(), &found, &is_there));
  return is_there != 0 ? *static_cast<std::shared_ptr<T>*>(found) : nullptr;
}
template <class T>
void set_attribute(MPI_Comm handle, const std::shared_ptr<T>& value) {
  check_mpi(MPI_Comm_set_attr(handle, attribute<T>(), new std::shared_ptr<T>(value)));
}

/// The first call with a communicator, and its duplicates, is collective. The first one with these ranks opens a
/// context, which is closed with their last communicator and halo, or when other ranks have opened one since.
inline std::shared_ptr<Shared> shared_by(MPI_Comm handle) {
  if (auto found = find_attribute<Shared>(handle)) return found;
  auto contexts = find_attribute<Contexts>(MPI_COMM_SELF);
  if (!contexts) set_attribute(MPI_COMM_SELF, contexts = std::make_shared<Contexts>());
  MPI_Group ranks = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(handle, &ranks));
  auto shared = contexts->of(ranks);
  int everywhere = shared != nullptr ? 1 : 0;  // some rank may have closed its own
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &everywhere, 1, MPI_INT, MPI_MIN, handle));
  if (everywhere == 0) {
    shared = until_kokkos_ends(std::make_shared<Shared>(mpi::context(handle)));
    contexts->add(ranks, shared);
  } else {
    check_mpi(MPI_Group_free(&ranks));
  }
  contexts->last = shared;
  set_attribute(handle, shared);
  return shared;
}

/// For a new halo: what one that is gone has left, if all ranks have that left, of the shape that they want now; else
/// none so far. Collective.
inline std::shared_ptr<GridHalos> take_halos(Shared& shared, MPI_Comm handle, Shape shape) {
  constexpr std::ptrdiff_t kMostLeft = 8;
  constexpr unsigned char kLeft = 1, kFits = 2;
  auto& all = shared.grids;
  std::vector<unsigned char> says;
  for (const auto& one : all) {
    const bool left = one.use_count() == 1;
    const bool fits = left && !one->failed && one->shape == shape;
    says.push_back(static_cast<unsigned char>((left ? kLeft : 0) | (fits ? kFits : 0)));
  }
  if (!all.empty()) {
    check_mpi(
        MPI_Allreduce(MPI_IN_PLACE, says.data(), static_cast<int>(says.size()), MPI_UNSIGNED_CHAR, MPI_BAND, handle));
  }
  const auto found = std::ranges::find_if(says, [](unsigned char said) { return (said & kFits) != 0; });
  if (found != says.end()) {
    const auto at = all.begin() + (found - says.begin());
    std::rotate(at, at + 1, all.end());  // the ones that are used stay
    return all.back();
  }
  // The oldest go where more are left than are worth to keep.
  auto left = std::ranges::count_if(says, [](unsigned char said) { return (said & kLeft) != 0; });
  auto said = says.begin();
  std::erase_if(all, [&](const auto&) { return (*said++ & kLeft) != 0 && left-- >= kMostLeft; });
  all.push_back(
      std::make_shared<GridHalos>(GridHalos{std::move(shape), "cabana " + std::to_string(shared.made++), {}}));
  return all.back();
}

}  // namespace detail
}  // namespace sluice::cabana
