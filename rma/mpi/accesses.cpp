// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/accesses.hpp"

#include "rma/mpi/calls.hpp"
#include "rma/mpi/changes.hpp"
#include "rma/mpi/types.hpp"

namespace sluice::mpi_rma {
namespace {

bool valid(const Here& here) { return here.count >= 0 && here.type != MPI_DATATYPE_NULL; }

/// False for arguments that MPI refuses: the call then goes to MPI, which calls the error handler.
bool valid(const RmaWindow& window, const There& there) {
  const bool rank = there.rank == MPI_PROC_NULL || (there.rank >= 0 && there.rank < window.size);
  return rank && there.count >= 0 && there.type != MPI_DATATYPE_NULL && there.displacement >= 0;
}

bool predefined(MPI_Op op) {
  for (const MPI_Op known : {MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD, MPI_LAND, MPI_BAND, MPI_LOR, MPI_BOR, MPI_LXOR,
                             MPI_BXOR, MPI_MINLOC, MPI_MAXLOC, MPI_REPLACE, MPI_NO_OP})
    if (op == known) return true;
  return false;
}

/// With a notification, the target is locked and has the counter.
void check_permitted(RmaWindow& window, int rank, const std::optional<int>& notification) {
  if (!notification) return window.epochs->check_access(rank);
  window.epochs->check_locked(rank);
  Notifications::check(window, rank, *notification);
}

/// Runs `work` for an access to a rank, unless that is MPI_PROC_NULL, and completes it here if there is a request.
template <class Work>
int access(RmaWindow& served, int rank, const Call& call, Work work) {
  const int result = serve(served, [&](RmaWindow& window, Epochs::Lock& lock) {
    if (rank == MPI_PROC_NULL) return;
    check_permitted(window, rank, call.notification);
    work(window, lock);
    if (call.notification) window.areas->notify(rank, static_cast<std::uint32_t>(*call.notification));
    if (call.request == nullptr) return;
    window.areas->drain(rank);
    poll_if_due(window, lock);
  });
  return result == MPI_SUCCESS && call.request != nullptr ? finished_request(call.request) : result;
}

/// Result of a call on a window that MPI serves.
std::optional<int> left_to_mpi(const Call& call) {
  return call.notification ? std::optional(refuse_unserved(call.win)) : std::nullopt;
}

}  // namespace

std::optional<int> put(const Call& call, const Here& from, const There& to) {
  RmaWindow* const found = find_window(call.win);
  if (found == nullptr) return left_to_mpi(call);
  if (!valid(from) || !valid(*found, to)) return std::nullopt;
  learn_size(from.type);
  return access(*found, to.rank, call, [&](RmaWindow& window, Epochs::Lock&) { put(window, from, to); });
}

std::optional<int> get(const Call& call, const Here& to, const There& from) {
  RmaWindow* const found = find_window(call.win);
  if (found == nullptr) return left_to_mpi(call);
  if (!valid(to) || !valid(*found, from)) return std::nullopt;
  learn_size(to.type);
  return access(*found, from.rank, call, [&](RmaWindow& window, Epochs::Lock&) { get(window, to, from); });
}

std::optional<int> change(const Call& call, const Here& operands, const Here* result, const There& to, MPI_Op op) {
  RmaWindow* const found = find_window(call.win);
  if (found == nullptr) return left_to_mpi(call);
  // MPI 4.1, 12.3.4: MPI_NO_OP is for calls with a result.
  const bool fits =
      result == nullptr ? valid(operands) && op != MPI_NO_OP : valid(*result) && (valid(operands) || op == MPI_NO_OP);
  if (!fits || !predefined(op) || !valid(*found, to)) return std::nullopt;
  learn_change(op, to.type);
  return access(*found, to.rank, call, [&](RmaWindow& window, Epochs::Lock& lock) {
    accumulate(window, lock, operands, result == nullptr ? Here{} : *result, to, op);
  });
}

std::optional<int> compare_and_swap(const Call& call, const Swap& buffers, const There& to) {
  RmaWindow* const found = find_window(call.win);
  if (found == nullptr || !valid(*found, to)) return std::nullopt;
  learn_change(MPI_BAND, to.type);
  return access(*found, to.rank, call, [&](RmaWindow& window, Epochs::Lock& lock) {
    compare_and_swap(window, lock, buffers.desired, buffers.expected, buffers.result, to);
  });
}

}  // namespace sluice::mpi_rma
