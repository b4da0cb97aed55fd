// SPDX-License-Identifier: Apache-2.0
#include "device/memory.hpp"

#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <system_error>
#include <vector>

namespace sluice::device {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kSmall = 64 * 1024;  // up to this size an allocation shares a segment with others
constexpr std::size_t kSharedBytes = 1024 * 1024;

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

void populate_pages(std::byte* data, std::size_t bytes) {
  // Faults every page in now and reports a lack of memory as an error, where a later store would be killed by SIGBUS.
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return;
  if (errno != EINVAL) fail("populating " + std::to_string(bytes) + " bytes of shared memory");
  for (std::size_t at = 0; at < bytes; at += kPage) static_cast<volatile std::byte*>(data)[at] = std::byte{0};
}

std::shared_ptr<Segment> new_segment(std::size_t bytes, bool populate) {
  struct sysinfo machine {};
  // The kernel would promise more than it has, and end the process later.
  if (sysinfo(&machine) == 0 && bytes > machine.totalram * machine.mem_unit) throw std::bad_alloc();
  static std::atomic<std::uint64_t> next_id{1};
  auto segment = std::make_shared<Segment>();
  segment->id = next_id.fetch_add(1);
  segment->fd = base::Fd(memfd_create("sluice", MFD_CLOEXEC));
  if (!segment->fd) fail("memfd_create");
  if (ftruncate(segment->fd.get(), static_cast<off_t>(bytes)) != 0)
    fail("reserving " + std::to_string(bytes) + " bytes");
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, segment->fd.get(), 0);
  if (data == MAP_FAILED) fail("mapping " + std::to_string(bytes) + " bytes");
  segment->data = static_cast<std::byte*>(data);
  segment->bytes = bytes;
  if (populate) populate_pages(segment->data, bytes);
  return segment;
}

/// Many small allocations in few segments: first fit, neighbours merged.
class Heap {
 public:
  std::byte* take(std::size_t bytes, std::size_t alignment, std::shared_ptr<Segment>& segment) {
    const std::lock_guard lock(mutex_);
    for (auto& pool : pools_) {
      if (std::byte* data = take_from(pool, bytes, alignment)) {
        segment = pool.segment;
        return data;
      }
    }
    auto fresh = new_segment(kSharedBytes, true);
    fresh->shared = true;
    pools_.push_back({fresh, {{0, kSharedBytes}}});
    segment = fresh;
    return take_from(pools_.back(), bytes, alignment);
  }

  void give_back(const Segment& segment, std::size_t offset, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (auto& pool : pools_) {
      if (pool.segment.get() == &segment) merge_in(pool.free, offset, bytes);
    }
  }

 private:
  using FreeList = std::map<std::size_t, std::size_t>;  // offset -> bytes
  struct Pool {
    std::shared_ptr<Segment> segment;
    FreeList free;
  };

  static std::byte* take_from(Pool& pool, std::size_t bytes, std::size_t alignment) {
    for (auto it = pool.free.begin(); it != pool.free.end(); ++it) {
      const auto [offset, available] = *it;
      const std::size_t start = round_up(offset, alignment);
      if (start + bytes > offset + available) continue;
      pool.free.erase(it);
      if (start > offset) pool.free[offset] = start - offset;
      if (start + bytes < offset + available) pool.free[start + bytes] = offset + available - start - bytes;
      return pool.segment->data + start;
    }
    return nullptr;
  }

  static void merge_in(FreeList& free, std::size_t offset, std::size_t bytes) {
    auto next = free.upper_bound(offset);
    if (next != free.end() && next->first == offset + bytes) {
      bytes += next->second;
      next = free.erase(next);
    }
    if (next != free.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second += bytes;
        return;
      }
    }
    free[offset] = bytes;
  }

  std::mutex mutex_;
  std::vector<Pool> pools_;
};

Heap& heap() {
  static auto* const heap = new Heap;  // never destroyed: memory may be freed by static destructors
  return *heap;
}

}  // namespace

Segment::~Segment() {
  if (data != nullptr) munmap(data, bytes);
}

Allocation allocate(std::size_t bytes, bool populate) {
  Allocation allocation;
  const std::size_t alignment = bytes >= kPage ? kPage : kLine;
  if (bytes <= kSmall) {
    const std::size_t rounded = round_up(bytes, alignment);
    allocation.extent_.data = heap().take(rounded, alignment, allocation.segment_);
    std::memset(allocation.extent_.data, 0, rounded);
  } else {
    allocation.segment_ = new_segment(round_up(bytes, kPage), populate);
    allocation.extent_.data = allocation.segment_->data;
  }
  allocation.extent_.bytes = bytes;
  allocation.extent_.segment = allocation.segment_.get();
  return allocation;
}

Allocation::~Allocation() {
  if (segment_ == nullptr || !segment_->shared) return;
  const std::size_t alignment = extent_.bytes >= kPage ? kPage : kLine;
  heap().give_back(*segment_, extent_.offset(), round_up(extent_.bytes, alignment));
}

Mapping::Mapping(const base::Fd& fd, std::size_t bytes) : bytes_(bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (data == MAP_FAILED) fail("mapping " + std::to_string(bytes) + " bytes of a peer");
  data_ = static_cast<std::byte*>(data);
}

Mapping::~Mapping() { munmap(data_, bytes_); }

}  // namespace sluice::device
