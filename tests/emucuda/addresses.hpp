// SPDX-License-Identifier: Apache-2.0
// Address space: every range of memory that devices know, and the window of addresses from which device memory gets
// its own. No page of the window can be read or written by the CPU, as with a GPU; the emulator has its alias.
// Addresses are not used again until the window has been gone through, so a stale pointer meets nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tests/emucuda/block.hpp"
#include "tests/emucuda/cuda_api.hpp"

namespace emucuda {

class Context;

enum class Kind { device, ipc, mapped, pool, host, registered };

struct Range {
  Range() = default;
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  ~Range();

  Kind kind{};
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
  char* alias = nullptr;  // where the emulator reads and writes it
  /// Kind::registered only: its pages at an address of the emulator's; null: they are at the program's alone.
  void* pinned = nullptr;
  std::size_t pinned_bytes = 0;
  int device = 0;
  Context* context = nullptr;
  std::shared_ptr<Block> block;          // none for host memory
  CUmemoryPool pool_handle = nullptr;    // of Kind::pool
  bool imported = false;                 // of another process's pool
  unsigned flags = 0;                    // as they were given
  std::atomic<std::uint64_t> access{0};  // a bit for each device that was let in
  std::atomic<bool> live{true};          // false: freed, or its allocation has not been reached by its stream
  std::atomic<bool> freeing{false};      // a free of it is queued
  std::atomic<bool> sync_memops{false};
  std::size_t opened = 1;  // times that cuIpcOpenMemHandle has given it
  std::uint64_t id = 0;    // never used twice

  bool on_host() const { return kind == Kind::host || kind == Kind::registered; }
  bool granted(int which) const { return (access.load() >> which & 1) != 0; }
  bool usable() const { return live && (!imported || block->came_alive()); }
};

using RangePtr = std::shared_ptr<Range>;

/// A run of bytes as the emulator sees it. It keeps the range, so it stays memory even if the program frees it.
struct Piece {
  RangePtr range;
  char* at;
  std::size_t bytes;
};
using Pieces = std::vector<Piece>;

class Addresses {
 public:
  /// Takes the window. Once, by cuInit.
  bool open();

  bool in_window(std::uintptr_t address) const { return address - window_ < kWindow; }
  /// Fresh addresses for device memory; 0 if there are none left.
  std::uintptr_t reserve(std::size_t bytes, std::size_t alignment);
  /// The first that are free, which others may have had before.
  std::uintptr_t reserve_again(std::size_t bytes, std::size_t alignment);
  void unreserve(std::uintptr_t base);
  /// The size of the reservation that begins there; 0 if there is none.
  std::size_t reserved(std::uintptr_t base) const;
  /// True if all of it lies in one reservation.
  bool inside_reservation(std::uintptr_t base, std::size_t bytes) const;

  void add(const RangePtr& range);
  void remove(const Range& range);
  /// The range that an address is in, or null.
  RangePtr at(std::uintptr_t address) const;
  /// True if any range has a byte in there.
  bool overlaps(std::uintptr_t base, std::size_t bytes) const;
  std::vector<RangePtr> all() const;
  /// All of it, in order. None if a part is not memory; only mapped memory may span ranges.
  std::optional<Pieces> pieces(std::uintptr_t base, std::size_t bytes) const;

 private:
  static constexpr std::size_t kWindow = std::size_t{1} << 38;

  RangePtr find(std::uintptr_t address) const;
  std::uintptr_t reserve_from(std::uintptr_t from, std::size_t bytes, std::size_t alignment);
  bool taken(std::uintptr_t base, std::size_t bytes) const;

  mutable std::mutex mutex_;
  std::uintptr_t window_ = 0;
  std::uintptr_t next_ = 0;
  std::uint64_t last_id_ = 0;
  std::map<std::uintptr_t, std::size_t> reservations_;
  std::map<std::uintptr_t, RangePtr> ranges_;
};

}  // namespace emucuda
