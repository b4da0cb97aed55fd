// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/context.hpp>
#include <sluice/mpi.hpp>

#include <mpi.h>

#include <map>
#include <memory>
#include <string>
#include <typeindex>

namespace sluice::cabana {

/// The communication space: Cabana's classes take it in place of Cabana::Mpi.
struct CommSpace {};

namespace detail {

/// What all halos on a communicator have in common.
struct Communicator {
  Context context;
  int halos = 0;                                            // of grids so far: see next_name
  std::map<std::type_index, std::shared_ptr<void>> movers;  // of particles, by memory space

  /// Halos are made in the same order everywhere, and so have the same names.
  std::string next_name() { return "cabana " + std::to_string(halos++); }
};

using SharedCommunicator = std::shared_ptr<Communicator>;

/// The attribute of communicators that is theirs, which duplicates share.
inline int attribute() {
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    const auto copy = [](MPI_Comm, int, void*, void* from, void* to, int* flag) {
      *static_cast<void**>(to) = new SharedCommunicator(*static_cast<SharedCommunicator*>(from));
      *flag = 1;
      return MPI_SUCCESS;
    };
    const auto forget = [](MPI_Comm, int, void* attribute, void*) {
      delete static_cast<SharedCommunicator*>(attribute);
      return MPI_SUCCESS;
    };
    MPI_Comm_create_keyval(copy, forget, &made, nullptr);
    return made;
  }();
  return key;
}

/// That of this communicator, or of the one that it is a duplicate of; null before `communicator` made it.
inline SharedCommunicator find_communicator(MPI_Comm handle) {
  void* found = nullptr;
  int is_there = 0;
  MPI_Comm_get_attr(handle, attribute(), &found, &is_there);
  return is_there != 0 ? *static_cast<SharedCommunicator*>(found) : nullptr;
}

/// The first call opens a context, collectively; it is closed with the last communicator and the last halo.
inline SharedCommunicator communicator(MPI_Comm handle) {
  if (auto found = find_communicator(handle)) return found;
  auto made = std::make_shared<Communicator>(mpi::context(handle));
  MPI_Comm_set_attr(handle, attribute(), new SharedCommunicator(made));
  return made;
}

}  // namespace detail
}  // namespace sluice::cabana
