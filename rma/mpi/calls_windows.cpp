// SPDX-License-Identifier: Apache-2.0
// MPI's calls that make, free and describe windows.
#include <sluice/mpi_rma.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "rma/mpi/calls.hpp"
#include "rma/mpi/log.hpp"
#include "rma/mpi/refused.hpp"

namespace sluice::mpi_rma {
namespace {

/// True if the environment leaves all windows to MPI, which it says once.
bool left_to_mpi() {
  static const bool left = [] {
    const bool off = !switched_on();
    if (off) log(Level::info, "MPI serves all windows: SLUICE_MPI_RMA=0");
    return off;
  }();
  return left;
}

/// False for arguments that MPI refuses, and for windows that the settings leave to MPI.
bool ours(MPI_Comm comm, const Creation& what) {
  if (left_to_mpi() || comm == MPI_COMM_NULL || what.bytes < 0 || what.unit <= 0) return false;
  int inter = 0;
  PMPI_Comm_test_inter(comm, &inter);
  return inter == 0;
}

/// The window, or null if MPI has to serve it.
std::shared_ptr<RmaWindow> make(MPI_Comm comm, const Creation& what, MPI_Win backing) {
  auto ranks = Ranks::of(comm);
  const bool of_program = what.flavor == MPI_WIN_FLAVOR_CREATE || what.flavor == MPI_WIN_FLAVOR_DYNAMIC;
  if (ranks->job == nullptr || (of_program && !ranks->reach_private())) return nullptr;
  auto window = std::make_shared<RmaWindow>(std::move(ranks), what, backing);
  if (!window->ready()) {
    window->give_up();
    const int refused = window->refused();
    if (refused == 0) return nullptr;
    throw Refused(refused,
                  std::string("the value of ") + Notifications::kPromise + " of a rank is no number of counters");
  }
  log(Level::info, "a window of MPI's: " + window->describe());
  return window;
}

/// Makes a window. Nothing: MPI has to serve it.
std::optional<int> create(MPI_Comm comm, const Creation& what, void** base, MPI_Win* handle) {
  if (!ours(comm, what)) return std::nullopt;
  try {
    auto window = make(comm, what, MPI_WIN_NULL);
    if (window == nullptr) return std::nullopt;
    *handle = window->handle;
    if (base != nullptr) *base = window->base;
    add_window(*handle, std::move(window));
    return MPI_SUCCESS;
  } catch (...) {
    return report_unmade(comm);
  }
}

/// `call` makes a window at MPI, perhaps with the handle of one that another thread is still freeing.
template <class Call>
int made_by_mpi(const MPI_Win* handle, Call call) {
  const int result = call();
  if (result == MPI_SUCCESS) drop_window(*handle, nullptr);
  return result;
}

/// MPI has made a window with memory that it shares; Sluice serves it, if it can.
int adopt_shared(int result, MPI_Comm comm, Creation what, const void* base, MPI_Win* handle) {
  if (result != MPI_SUCCESS || !ours(comm, what)) return result;
  what.flavor = MPI_WIN_FLAVOR_SHARED;
  what.base = *static_cast<void* const*>(base);
  try {
    if (auto window = make(comm, what, *handle)) add_window(*handle, std::move(window));
    return result;
  } catch (const Refused&) {  // at all ranks
    PMPI_Win_free(handle);
    return report_unmade(comm);
  } catch (...) {
    *handle = MPI_WIN_NULL;  // this rank alone cannot free it
    return report_unmade(comm);
  }
}

Creation of_program(void* base, MPI_Aint bytes, MPI_Aint unit, MPI_Info info) {
  return {MPI_WIN_FLAVOR_CREATE, base, bytes, unit, info};
}

Creation allocated(MPI_Aint bytes, MPI_Aint unit, MPI_Info info) {
  return {MPI_WIN_FLAVOR_ALLOCATE, nullptr, bytes, unit, info};
}

Creation dynamic(MPI_Info info) { return {MPI_WIN_FLAVOR_DYNAMIC, nullptr, 0, 1, info}; }

int free_window(const std::shared_ptr<RmaWindow>& window, MPI_Win* handle) {
  const int result = serve(*window, [](RmaWindow& its, Epochs::Lock&) { its.epochs->check_idle(); });
  if (result != MPI_SUCCESS) return result;
  const int closed = serve(*window, [](RmaWindow& its, Epochs::Lock& lock) { its.close(lock); });
  const MPI_Win freed = *handle;
  const int deleted = PMPI_Win_free(handle);  // calls the program's functions for its attributes, which may use it
  drop_window(freed, window.get());
  return closed != MPI_SUCCESS ? closed : deleted;
}

/// The value of a predefined attribute; nothing: it is another.
std::optional<void*> predefined(RmaWindow& window, int key) {
  switch (key) {
    case MPI_WIN_BASE: return window.base;
    case MPI_WIN_SIZE: return &window.bytes_attribute;
    case MPI_WIN_DISP_UNIT: return &window.unit_attribute;
    case MPI_WIN_CREATE_FLAVOR: return &window.flavor_attribute;
    case MPI_WIN_MODEL: return &window.model_attribute;
    case MPI_WIN_NOTIFICATION_NUM_SB:
    case MPI_WIN_NOTIFICATION_NUM_UB: return &window.notifications_most;
    case MPI_WIN_NOTIFICATION_VALUE_UB: return &window.notification_value_most;
    default: return std::nullopt;
  }
}

/// The value of a predefined attribute as a number, as Fortran has it.
std::optional<MPI_Aint> predefined_number(RmaWindow& window, int key) {
  switch (key) {
    case MPI_WIN_BASE: return reinterpret_cast<MPI_Aint>(window.base);
    case MPI_WIN_SIZE: return window.bytes_attribute;
    case MPI_WIN_DISP_UNIT: return window.unit_attribute;
    case MPI_WIN_CREATE_FLAVOR: return window.flavor_attribute;
    case MPI_WIN_MODEL: return window.model_attribute;
    default: return std::nullopt;
  }
}

/// The results of MPI_Win_shared_query. `Unit`: an int, or an MPI_Aint.
template <class Unit>
struct SharedPart {
  MPI_Aint* size;
  Unit* unit;
  void** base;
};

/// False: MPI has to answer, or to refuse the arguments.
template <class Unit>
bool query_shared(MPI_Win win, int rank, const SharedPart<Unit>& found) {
  RmaWindow* const window = find_window(win);
  // MPI refuses the call for a dynamic window.
  if (window == nullptr || window->made.flavor == MPI_WIN_FLAVOR_SHARED || window->dynamic()) return false;
  const int asked = rank == MPI_PROC_NULL ? window->first_with_memory() : rank;
  if (asked < 0 || asked >= window->size) return false;
  // MPI 4.1, 12.2.3: memory that this rank cannot load from has no bytes.
  const Part& part = window->parts[static_cast<std::size_t>(asked)];
  const bool own = asked == window->rank;
  *found.size = own ? static_cast<MPI_Aint>(part.bytes) : 0;
  *found.unit = static_cast<Unit>(part.unit);
  *found.base = own ? window->base : nullptr;
  return true;
}

/// Only MPICH, whose function it is, calls MPII_Win_get_attr; a program that does so with another MPI gets an error.
int refuse_attribute(MPI_Win win) noexcept {
  log(Level::error, "a program asks MPII_Win_get_attr for an attribute, and this MPI has no such function");
  PMPI_Win_call_errhandler(win, MPI_ERR_INTERN);
  return MPI_ERR_INTERN;
}

}  // namespace
}  // namespace sluice::mpi_rma

using namespace sluice::mpi_rma;

#pragma GCC visibility push(default)
extern "C" {

int MPI_Win_create(void* base, MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, MPI_Win* win) {
  if (const auto made = create(comm, of_program(base, size, unit, info), nullptr, win)) return *made;
  return made_by_mpi(win, [=] { SLUICE_RMA_BEHIND(Win_create, base, size, unit, info, comm, win); });
}

int MPI_Win_allocate(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* win) {
  if (const auto made = create(comm, allocated(size, unit, info), static_cast<void**>(base), win)) return *made;
  return made_by_mpi(win, [=] { SLUICE_RMA_BEHIND(Win_allocate, size, unit, info, comm, base, win); });
}

int MPI_Win_allocate_shared(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* win) {
  const int result =
      made_by_mpi(win, [=] { SLUICE_RMA_BEHIND(Win_allocate_shared, size, unit, info, comm, base, win); });
  return adopt_shared(result, comm, allocated(size, unit, info), base, win);
}

int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win* win) {
  if (const auto made = create(comm, dynamic(info), nullptr, win)) return *made;
  return made_by_mpi(win, [=] { SLUICE_RMA_BEHIND(Win_create_dynamic, info, comm, win); });
}

int MPI_Win_free(MPI_Win* win) {
  if (RmaWindow* const window = find_window(*win)) return free_window(window->shared_from_this(), win);
  SLUICE_RMA_BEHIND(Win_free, win);
}

int MPI_Win_get_attr(MPI_Win win, int key, void* value, int* flag) {
  RmaWindow* const window = find_window(win);
  if (const auto found = window == nullptr ? std::nullopt : predefined(*window, key)) {
    *static_cast<void**>(value) = *found;
    *flag = 1;
    return MPI_SUCCESS;
  }
  SLUICE_RMA_BEHIND(Win_get_attr, win, key, value, flag);
}

// MPICH's Fortran calls this function instead. The keys of Fortran are those of C and 1.
int MPII_Win_get_attr(MPI_Win win, int key, void* value, int* flag, int kind);
int MPII_Win_get_attr(MPI_Win win, int key, void* value, int* flag, int kind) {
  using Function = int(MPI_Win, int, void*, int*, int);
  static auto* const next = find_behind<Function>("MPII_Win_get_attr");
  RmaWindow* const window = find_window(win);
  const auto found = window == nullptr ? std::nullopt : predefined_number(*window, key - 1);
  if (!found) return next == nullptr ? refuse_attribute(win) : next(win, key, value, flag, kind);
  *static_cast<MPI_Aint*>(value) = *found;
  *flag = 1;
  return MPI_SUCCESS;
}

int MPI_Win_get_info(MPI_Win win, MPI_Info* info) {
  const RmaWindow* const window = find_window(win);
  if (window == nullptr) SLUICE_RMA_BEHIND(Win_get_info, win, info);
  const int result = PMPI_Win_get_info(win, info);
  if (result != MPI_SUCCESS) return result;
  return PMPI_Info_set(*info, Notifications::kPromise, std::to_string(window->notifications.promised()).c_str());
}

int MPI_Win_get_group(MPI_Win win, MPI_Group* group) {
  if (const RmaWindow* const window = find_window(win)) return PMPI_Comm_group(window->comm, group);
  SLUICE_RMA_BEHIND(Win_get_group, win, group);
}

int MPI_Win_shared_query(MPI_Win win, int rank, MPI_Aint* size, int* unit, void* base) {
  if (query_shared<int>(win, rank, {size, unit, static_cast<void**>(base)})) return MPI_SUCCESS;
  SLUICE_RMA_BEHIND(Win_shared_query, win, rank, size, unit, base);
}

#if MPI_VERSION >= 4
int MPI_Win_create_c(void* base, MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, MPI_Win* win) {
  if (const auto made = create(comm, of_program(base, size, unit, info), nullptr, win)) return *made;
  return made_by_mpi(win, [=] { SLUICE_RMA_BEHIND(Win_create_c, base, size, unit, info, comm, win); });
}

int MPI_Win_allocate_c(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* win) {
  if (const auto made = create(comm, allocated(size, unit, info), static_cast<void**>(base), win)) return *made;
  return made_by_mpi(win, [=] { SLUICE_RMA_BEHIND(Win_allocate_c, size, unit, info, comm, base, win); });
}

int MPI_Win_allocate_shared_c(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* win) {
  const int result =
      made_by_mpi(win, [=] { SLUICE_RMA_BEHIND(Win_allocate_shared_c, size, unit, info, comm, base, win); });
  return adopt_shared(result, comm, allocated(size, unit, info), base, win);
}

int MPI_Win_shared_query_c(MPI_Win win, int rank, MPI_Aint* size, MPI_Aint* unit, void* base) {
  if (query_shared<MPI_Aint>(win, rank, {size, unit, static_cast<void**>(base)})) return MPI_SUCCESS;
  SLUICE_RMA_BEHIND(Win_shared_query_c, win, rank, size, unit, base);
}
#endif

}  // extern "C"
#pragma GCC visibility pop
