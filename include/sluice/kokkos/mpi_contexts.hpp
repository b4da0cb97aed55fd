// SPDX-License-Identifier: Apache-2.0
// Contexts for adaptors of libraries whose programs pass communicators of MPI.
#pragma once

#include <sluice/context.hpp>
#include <sluice/mpi.hpp>

#include <mpi.h>
#include <Kokkos_Core.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <typeindex>
#include <vector>

namespace sluice::kokkos::detail {

inline void check_mpi(int result) {
  if (result != MPI_SUCCESS) throw Error(Code::transport, -1, -1, 0, 0, "a call of MPI failed");
}

/// The context of all communicators with the same ranks in the same order, and what adaptors keep with it.
struct Shared {
  static constexpr bool kForDuplicates = true;

  Context context;
  std::int64_t number = 0;  // among those of this process; the same on all of its ranks
  int named = 0;            // numbers given out for names, alike on all ranks
  std::map<std::type_index, std::shared_ptr<void>> kept = {};    // objects of adaptors, until Kokkos is finalised
  std::shared_ptr<bool> failed = std::make_shared<bool>(false);  // if true, later communicators open their own

  /// Returns the object of this type; the first call makes it.
  template <class T>
  std::shared_ptr<T> keep(auto&... arguments) {
    auto& one = kept[typeid(T)];
    if (!one) one = std::make_shared<T>(arguments...);
    return std::static_pointer_cast<T>(one);
  }
};

/// The contexts of this process, an attribute of MPI_COMM_SELF, which MPI_Finalize deletes first.
struct Contexts {
  static constexpr bool kForDuplicates = false;
  struct One {
    std::shared_ptr<MPI_Group> ranks;
    std::weak_ptr<Shared> shared;
  };

  /// Returns the newest context of these ranks without a failure, or null.
  std::shared_ptr<Shared> of(MPI_Group ranks) const {
    for (auto one = all.rbegin(); one != all.rend(); ++one) {
      int order = MPI_UNEQUAL;
      check_mpi(MPI_Group_compare(ranks, *one->ranks, &order));
      if (order != MPI_IDENT) continue;
      if (auto found = one->shared.lock(); found && !*found->failed) return found;
    }
    return nullptr;
  }

  std::vector<One> all;
  std::int64_t numbers = 0;      // the last one given out
  std::shared_ptr<Shared> last;  // stays open between one grid of a program and the next
};

/// Returns the key of an attribute of communicators: a T, which duplicates of a communicator share if
/// T::kForDuplicates.
template <class T>
int attribute() {
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    const auto copy = [](MPI_Comm, int, void*, void* from, void* to, int* flag) {
      *flag = T::kForDuplicates ? 1 : 0;
      if (T::kForDuplicates) *static_cast<void**>(to) = new std::shared_ptr<T>(*static_cast<std::shared_ptr<T>*>(from));
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

/// Returns the communicator's T, or null if none is set.
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

/// Returns the ranks of a communicator. The last copy frees them.
inline std::shared_ptr<MPI_Group> group_of(MPI_Comm handle) {
  const std::shared_ptr<MPI_Group> group(new MPI_Group(MPI_GROUP_NULL), [](MPI_Group* one) {
    if (*one != MPI_GROUP_NULL) MPI_Group_free(one);
    delete one;
  });
  check_mpi(MPI_Comm_group(handle, group.get()));
  return group;
}

/// Returns the context of these ranks. The first call with a communicator, or with one that it is a duplicate of, is
/// collective. A context is closed with the last communicator and halo of its ranks; the newest one stays until one of
/// other ranks replaces it.
inline std::shared_ptr<Shared> shared_by(MPI_Comm handle) {
  if (auto found = find_attribute<Shared>(handle)) return found;
  auto contexts = find_attribute<Contexts>(MPI_COMM_SELF);
  if (!contexts) set_attribute(MPI_COMM_SELF, contexts = std::make_shared<Contexts>());
  const std::shared_ptr<MPI_Group> ranks = group_of(handle);
  auto shared = contexts->of(*ranks);
  // All ranks use the same context, or all open a new one: some rank may have closed its own, or seen it fail.
  const std::int64_t mine = shared != nullptr ? shared->number : 0;
  std::array<std::int64_t, 3> least{mine, -mine, -contexts->numbers};
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, least.data(), static_cast<int>(least.size()), MPI_INT64_T, MPI_MIN, handle));
  if (least[0] == 0 || least[0] != -least[1]) {
    shared = std::make_shared<Shared>(Shared{.context = mpi::context(handle), .number = 1 - least[2]});
    // Objects of adaptors hold memory of Kokkos.
    Kokkos::push_finalize_hook([made = std::weak_ptr(shared)] {
      if (const auto still = made.lock()) still->kept.clear();
    });
    contexts->numbers = shared->number;
    std::erase_if(contexts->all, [](const auto& one) { return one.shared.expired(); });
    contexts->all.push_back({ranks, shared});
  }
  contexts->last = shared;
  set_attribute(handle, shared);
  return shared;
}

}  // namespace sluice::kokkos::detail
