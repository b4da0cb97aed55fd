// SPDX-License-Identifier: Apache-2.0
// Contexts for what is made with communicators of MPI, again and again: adaptors of libraries on Kokkos.
#pragma once

#include <sluice/context.hpp>
#include <sluice/mpi.hpp>

#include <mpi.h>
#include <Kokkos_Core.hpp>

#include <map>
#include <memory>
#include <typeindex>
#include <vector>

namespace sluice::kokkos::detail {

inline void check_mpi(int result) {
  if (result != MPI_SUCCESS) throw Error(Code::transport, -1, -1, 0, 0, "a call of MPI failed");
}

/// What all communicators of the same ranks in the same order have in common.
struct Shared {
  Context context;
  int named = 0;                                          // what was given a number for its name, on all ranks
  std::map<std::type_index, std::shared_ptr<void>> kept;  // of adaptors, one of a type, as long as Kokkos is there
  std::shared_ptr<bool> failed = std::make_shared<bool>(false);  // something has: no further communicator shares this

  /// The one of this type; the first time what `make` returns.
  template <class T, class Make>
  std::shared_ptr<T> keep(Make make) {
    auto& one = kept[typeid(T)];
    if (!one) one = make();
    return std::static_pointer_cast<T>(one);
  }
};

/// It keeps what kernels use, and they end with Kokkos.
inline std::shared_ptr<Shared> until_kokkos_ends(std::shared_ptr<Shared> made) {
  Kokkos::push_finalize_hook([all = std::weak_ptr(made)] {
    if (const auto still = all.lock()) still->kept.clear();
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

/// Whether a duplicate of a communicator shares its T.
template <class T>
inline constexpr bool kForDuplicates = true;
template <>
inline constexpr bool kForDuplicates<Contexts> = false;

/// An attribute of communicators: a T.
template <class T>
int attribute() {
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    const auto copy = [](MPI_Comm, int, void*, void* from, void* to, int* flag) {
      *flag = kForDuplicates<T> ? 1 : 0;
      if (kForDuplicates<T>) *static_cast<void**>(to) = new std::shared_ptr<T>(*static_cast<std::shared_ptr<T>*>(from));
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

}  // namespace sluice::kokkos::detail
