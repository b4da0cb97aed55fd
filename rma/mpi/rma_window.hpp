// SPDX-License-Identifier: Apache-2.0
// A window of MPI that Sluice serves.
#pragma once

#include "rma/mpi/areas.hpp"
#include "rma/mpi/attached.hpp"
#include "rma/mpi/call_mutex.hpp"
#include "rma/mpi/epochs.hpp"
#include "rma/mpi/job.hpp"
#include "rma/mpi/notifications.hpp"

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sluice::mpi_rma {

/// How a window came to be: the arguments of the call.
struct Creation {
  int flavor = MPI_WIN_FLAVOR_CREATE;
  void* base = nullptr;  ///< null for MPI_Win_allocate
  MPI_Aint bytes = 0;
  MPI_Aint unit = 1;
  MPI_Info info = MPI_INFO_NULL;
};

/// Facts of a rank's part of a window, which every rank has.
struct Part {
  std::int64_t bytes = 0;  ///< of a dynamic window: those that an address may have
  std::int64_t unit = 1;
  std::uint64_t number = 0;  ///< of the window of Sluice's with its memory; 0: it has none
  std::uint64_t shift = 0;   ///< bytes of that window before the memory
  std::uint64_t base = 0;    ///< address of memory of the program, which the owner may access for others; 0: of no such
  Place place = kNoPlace;    ///< its words
  Rank rank = 0;             ///< in the context
  bool ready = false;        ///< the rank could make its part
  Counters counters;         ///< of notifications
  bool is_dynamic() const noexcept { return bytes == std::numeric_limits<std::int64_t>::max(); }
};

/// Serves one rank's end of a window. The calls lock `mutex`, and leave it free while they wait for a peer.
class RmaWindow : public std::enable_shared_from_this<RmaWindow> {
 public:
  /// Collective over the ranks, which have a job. `backing`: MPI's window with the memory of MPI_Win_allocate_shared;
  /// else MPI_WIN_NULL.
  RmaWindow(std::shared_ptr<Ranks> among, const Creation& what, MPI_Win backing);
  RmaWindow(const RmaWindow&) = delete;
  RmaWindow& operator=(const RmaWindow&) = delete;
  ~RmaWindow() = default;

  /// False at all ranks if one could not make its part, or has refused: then the only call is `give_up`, and MPI has to
  /// serve the window unless it is refused.
  bool ready() const;
  /// The class of the error for which no rank can make the window; 0: there is none.
  int refused() const;
  /// Collective: ends all use of the memory, also after errors, of which it throws the first.
  void close(Epochs::Lock& lock);
  /// Collective: ends a window that is not ready.
  void give_up();
  /// Closes what this rank has opened at others, in a program that ends and has not freed the window.
  void abandon();
  /// The part that `abandon` leaves. @throws Error{Code::timeout}: peers still use the memory.
  void close_memory(std::optional<Timeout> timeout);
  /// The lowest rank that has memory in the window; if there is none, 0.
  int first_with_memory() const;
  /// For people.
  std::string describe() const;
  /// The ranks of a group, in the window. With the lock. @throws Refused if one is not in the window
  std::vector<int> ranks_of(MPI_Group group);

  // The next calls are for a dynamic window, without the lock. See Attached.
  static constexpr std::size_t kOwnBytes = 8;  ///< of the window of Sluice's before anything is attached
  bool dynamic() const { return made.flavor == MPI_WIN_FLAVOR_DYNAMIC; }
  void attach(std::byte* from, std::size_t bytes);
  void detach(const std::byte* from);

  const std::shared_ptr<Ranks> ranks;
  const std::shared_ptr<Job> job;
  const MPI_Comm comm;  ///< for our own messages
  MPI_Win handle;       ///< MPI's window for groups, names, attributes and error handlers
  const Creation made;
  std::byte* base = nullptr;
  const int rank;
  const int size;
  std::vector<Part> parts;
  CallMutex mutex;
  std::unique_ptr<Areas> areas;
  std::unique_ptr<Epochs> epochs;
  Notifications notifications;
  /// Word of a rank with its new counters, in `Notifications::set`.
  static constexpr std::size_t kCountersWord = Epochs::kPartWords - 1;

  // The values of predefined attributes, to which MPI_Win_get_attr returns pointers.
  MPI_Aint bytes_attribute;
  int unit_attribute;
  int flavor_attribute;
  int model_attribute = MPI_WIN_UNIFIED;
  int notifications_most;
  MPI_Count notification_value_most = (MPI_Count{1} << 62) - 1;

 private:
  void free_members();
  void give_back_words();
  void offer(Part& mine);
  void offer_dynamic(Part& mine);
  void exchange(const Part& mine);
  std::vector<std::byte*> mapped() const;

  Memory memory_;  // of MPI_Win_allocate, and that which a dynamic window begins with
  Region region_;
  Window window_;
  Attached attached_;
  std::string why_;
  // For `ranks_of`.
  MPI_Group members_ = MPI_GROUP_NULL;
  std::vector<int> numbers_;  // 0, 1, 2 ...
};

}  // namespace sluice::mpi_rma
