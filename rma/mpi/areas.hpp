// SPDX-License-Identifier: Apache-2.0
// Moves bytes to and from the memory of the ranks of a window.
#pragma once

#include "rma/mpi/control.hpp"

#include <sluice/context.hpp>
#include <sluice/window.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace sluice::mpi_rma {

struct Part;

/// The memory of all ranks. Offsets count from the beginning of a rank's memory. One thread at a time.
class Areas {
 public:
  Areas(Context& context, const std::vector<Part>& parts) : context_(context), parts_(parts) {}

  /// This process has mapped the memory of all ranks, at these addresses.
  void map(std::vector<std::byte*> memory) { mapped_ = std::move(memory); }

  /// Puts bytes. They have been copied, or `steady` is true: they stay until the next `drain`.
  void write(int rank, std::uint64_t offset, const std::byte* from, std::size_t bytes, bool steady);
  /// Gets bytes, which are at `to` after the next `drain`.
  void read(int rank, std::uint64_t offset, std::byte* to, std::size_t bytes);
  /// As `read` and `write`, in pinned memory that stays.
  void read_into(int rank, std::uint64_t offset, const Slice& to);
  void write_from(int rank, std::uint64_t offset, const Slice& from);
  /// Pinned memory, until the next call.
  Slice scratch(std::size_t bytes);
  /// Adds 1 to a notification counter of a rank, once what was put there before is visible.
  void notify(int rank, std::uint32_t counter);
  /// All accesses to a rank have completed, there and here.
  void drain(int rank);
  void drain_all();

  /// The target of a rank, for atomics at `at(rank, offset)`.
  Target& target(int rank);
  std::size_t at(int rank, std::uint64_t offset) const;
  /// Memory for the bytes, from which a target may put; it is free again after the next `drain_all`.
  Slice staged(const std::byte* from, std::size_t bytes);

  void close();
  /// The ranks may have other counters afterwards.
  void close_counters();

 private:
  /// Bytes that a get has put into the staging memory, and that the program wants elsewhere.
  struct Read {
    Slice from;
    std::byte* to;
  };
  struct Area {
    Target target;
    bool used = false;  // since the last drain
    std::vector<Read> reads;
  };
  Area& area(int rank);
  static void drain(Area& area);
  static void drain(std::map<int, Area>& areas, int rank);
  Slice stage(std::size_t bytes);

  Context& context_;
  const std::vector<Part>& parts_;
  std::vector<std::byte*> mapped_;  // empty: it is reached by targets
  std::map<int, Area> areas_;
  std::map<int, Area> counters_;  // of notifications
  Memory staging_;
  std::size_t staged_ = 0;
  Memory scratch_;
};

}  // namespace sluice::mpi_rma
