// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/context.hpp>
#include <sluice/mpi.hpp>

#include <mpi.h>

#include <memory>
#include <string>

namespace sluice::cabana {

/// The communication space: Cabana's classes take it in place of Cabana::Mpi.
struct CommSpace {};

namespace detail {

/// What all halos on a communicator have in common.
struct Communicator {
  Context context;
  int halos = 0;  // so far: they are made in the same order everywhere, and so have the same names

  std::string next_name() { return "cabana " + std::to_string(halos++); }
};

/// That of this communicator, or of the one that it is a duplicate of. The first call opens a context, collectively; it
/// is closed with the last communicator and the last halo.
inline std::shared_ptr<Communicator> communicator(MPI_Comm handle) {
  using Shared = std::shared_ptr<Communicator>;
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    const auto copy = [](MPI_Comm, int, void*, void* from, void* to, int* flag) {
      *static_cast<void**>(to) = new Shared(*static_cast<Shared*>(from));
      *flag = 1;
      return MPI_SUCCESS;
    };
    const auto forget = [](MPI_Comm, int, void* attribute, void*) {
      delete static_cast<Shared*>(attribute);
      return MPI_SUCCESS;
    };
    MPI_Comm_create_keyval(copy, forget, &made, nullptr);
    return made;
  }();
  void* found = nullptr;
  int is_there = 0;
  MPI_Comm_get_attr(handle, key, &found, &is_there);
  if (is_there != 0) return *static_cast<Shared*>(found);
  auto made = std::make_shared<Communicator>(mpi::context(handle));
  MPI_Comm_set_attr(handle, key, new Shared(made));
  return made;
}

}  // namespace detail
}  // namespace sluice::cabana
