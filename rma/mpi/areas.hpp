// SPDX-License-Identifier: Apache-2.0
// Moves bytes to and from the memory of the ranks of a window.
#pragma once

#include "rma/mpi/control.hpp"
#include "rma/mpi/pause.hpp"

#include <sluice/context.hpp>
#include <sluice/window.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sluice::mpi_rma {

struct Part;

/// Name of the window of Sluice's with the memory of a rank.
std::string memory_name(std::uint64_t number);

/// The memory of all ranks. Offsets count from the beginning of a rank's memory. One thread at a time.
class Areas {
 public:
  Areas(Context& context, Control& control, const std::vector<Part>& parts)
      : context_(context), control_(control), parts_(parts) {}

  /// MPI has mapped the memory of all ranks, at these addresses.
  void map(std::vector<std::byte*> memory) { mapped_ = std::move(memory); }

  /// The memory of a rank that is mapped here.
  struct Mapped {
    std::byte* memory = nullptr;  ///< null: the target reaches it
    std::int64_t bytes = 0;
    std::int64_t unit = 1;
    bool used = false;               ///< since the last drain
    std::uint64_t* turns = nullptr;  ///< of accumulates; null: they are not known, or not mapped
  };
  /// Null: the memory is not mapped, or another rank was accessed before.
  Mapped* mapped_last(int rank) { return rank == last_rank_ && last_->memory != nullptr ? last_ : nullptr; }

  /// False: the rank has not attached all of these bytes, of a dynamic window.
  bool reaches(int rank, std::uint64_t offset, std::size_t bytes);
  /// Puts bytes. They have been copied, or `steady` is true: they stay until the next `drain`.
  void write(int rank, std::uint64_t offset, const std::byte* from, std::size_t bytes, bool steady);
  /// Gets bytes, which are at `to` after the next `drain`.
  void read(int rank, std::uint64_t offset, std::byte* to, std::size_t bytes);
  /// As `read` and `write`, in pinned memory that stays.
  void read_into(int rank, std::uint64_t offset, const Slice& to);
  void write_from(int rank, std::uint64_t offset, const Slice& from);
  /// Keeps memory that an access which has failed may yet use.
  void keep(std::vector<std::byte> memory) { kept_.push_back(std::move(memory)); }
  /// Pinned memory, until the next call.
  Slice scratch(std::size_t bytes);
  /// Adds 1 to a notification counter of a rank, once what was put there before is visible.
  void notify(int rank, std::uint32_t counter);
  /// All accesses to a rank have completed, there and here.
  void drain(int rank);
  void drain_all();
  /// True if all accesses to all ranks have completed, as all of them were to memory that is mapped. False: `drain` or
  /// `drain_all` has to be called.
  bool drained() { return unmapped_ == 0 && looks_.may_wait(); }
  /// True in one of many calls that complete accesses: it polls.
  bool poll_due() noexcept { return looks_.due(); }

  /// The memory of a rank, whose bytes are accessed now; null: it is not mapped here.
  std::byte* mapped(int rank) {
    Area& there = area(rank);
    use(there);
    return there.memory;
  }

  /// The words of a rank that give turns in its memory (see Turns); null: they are not mapped here.
  std::uint64_t* turns(int rank);

  void close();
  /// The ranks may have other counters afterwards.
  void close_counters();

 private:
  /// Bytes that a get has put into the staging memory, and that the program wants elsewhere.
  struct Read {
    Slice from;
    std::byte* to;
  };
  struct Area : Mapped {
    Target target;  // empty: MPI maps the memory
    Region mapping;
    RemoteMailbox mailbox;  // if it is not mapped
    std::vector<Read> reads;
    bool knows_turns = false;
  };
  Area& area(int rank) { return rank == last_rank_ ? *last_ : find_area(rank); }
  Area& find_area(int rank);
  /// Marks an area as accessed, until it is drained.
  void use(Area& area) noexcept {
    if (!area.used && area.memory == nullptr) ++unmapped_;
    area.used = true;
  }
  /// Takes the mark away. False: there was none.
  bool unuse(Area& area) noexcept {
    if (area.used && area.memory == nullptr) --unmapped_;
    return std::exchange(area.used, false);
  }
  void open(Area& area, int rank);
  /// True if the owner has made the access.
  bool made_by_owner(Area& area, int rank, std::uint64_t offset, Mailbox::Kind kind, std::byte* data,
                     std::size_t bytes);
  std::size_t at(int rank, std::uint64_t offset) const;
  void drain(Area& area);
  void let_go() noexcept;
  void close(std::map<int, Area>& areas);
  /// Memory for the bytes, from which a target may put; it is free again after the next `drain_all`.
  Slice staged(const std::byte* from, std::size_t bytes);
  Slice stage(std::size_t bytes);

  Context& context_;
  Control& control_;
  const std::vector<Part>& parts_;
  std::vector<std::vector<std::byte>> kept_;  // before the targets, which use them until they are closed
  std::vector<std::byte*> mapped_;            // by MPI; empty: by targets, or not
  std::map<int, Area> areas_;
  Area* last_ = nullptr;  // that `area` has found last
  int last_rank_ = -1;
  std::map<int, Area> counters_;  // of notifications
  std::size_t unmapped_ = 0;      // areas in use that are not mapped, counters among them
  Looks looks_;
  Memory staging_;
  std::size_t staged_ = 0;
  Memory scratch_;
};

}  // namespace sluice::mpi_rma
