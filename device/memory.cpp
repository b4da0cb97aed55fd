// SPDX-License-Identifier: Apache-2.0
#include "device/memory.hpp"

#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include "base/fd.hpp"
#include "base/fork.hpp"
#include "base/memory_limit.hpp"
#include "device/retire.hpp"

namespace sluice::device {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kSmall = 64 * 1024;  // up to this size an allocation shares a segment with others
constexpr std::size_t kSharedBytes = 1024 * 1024;
constexpr std::size_t kGpuLine = 256;
constexpr std::size_t kGpuSmall = 512 * 1024;
constexpr std::size_t kGpuSharedBytes = 4 * 1024 * 1024;  // a driver gives 2 MiB at least

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

/// Before the kernel ends this process for it.
void check_memory(std::size_t bytes) {
  const std::string why = base::why_no_memory(bytes);
  if (!why.empty()) throw std::runtime_error(why);  // of a cgroup
}

base::Fd new_file(std::size_t bytes) {
  const std::string why = base::why_no_file(bytes);
  if (!why.empty()) throw std::runtime_error(why);  // of files
  base::Fd fd = base::open_with_room([] { return memfd_create("sluice", MFD_CLOEXEC); });
  if (!fd) base::throw_not_opened("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) fail("reserving " + std::to_string(bytes) + " bytes");
  return fd;
}

void populate_piece(std::byte* data, std::size_t bytes) {
  // Faults every page in now and reports a lack of memory as an error, where a later store would be killed by SIGBUS.
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return;
  if (errno != EINVAL) fail("populating " + std::to_string(bytes) + " bytes of shared memory");
  for (std::size_t at = 0; at < bytes; at += kPage) static_cast<volatile std::byte*>(data)[at] = std::byte{0};
}

/// Others may take of the same limit meanwhile.
void populate_pages(std::byte* data, std::size_t bytes) {
  constexpr std::size_t kPiece = 32 << 20;
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    if (at > 0) check_memory(bytes - at);
    populate_piece(data + at, std::min(kPiece, bytes - at));
  }
}

/// Not before its pages were taken back from GPUs.
void unmap_reached(std::byte* data, std::size_t bytes, Reached& reached) {
  if (reached.empty()) {
    munmap(data, bytes);
    return;
  }
  reached.clear();
  retire([data, bytes] { munmap(data, bytes); });
}

/// All segments, by id.
struct Segments {
  std::mutex mutex;
  std::uint64_t last_id = 0;
  std::map<std::uint64_t, std::weak_ptr<Segment>> all;
};

base::OnePerProcess<Segments> g_segments;

std::shared_ptr<Segment> registered(std::shared_ptr<Segment> segment) {
  const std::lock_guard lock(g_segments->mutex);
  segment->id = ++g_segments->last_id;
  g_segments->all[segment->id] = segment;
  return segment;
}

std::shared_ptr<Segment> new_segment(std::size_t bytes, bool populate) {
  struct sysinfo machine {};
  // The kernel would promise more than it has, and end the process later.
  if (sysinfo(&machine) == 0 && bytes > machine.totalram * machine.mem_unit) throw std::bad_alloc();
  auto segment = std::make_shared<Segment>();
  check_memory(bytes);
  segment->share.fd = new_file(bytes);
  void* const data = map_fresh(bytes, MAP_SHARED | MAP_NORESERVE, segment->share.fd.get());
  if (data == MAP_FAILED) fail("mapping " + std::to_string(bytes) + " bytes");
  segment->data = static_cast<std::byte*>(data);
  segment->bytes = bytes;
  if (populate) populate_pages(segment->data, bytes);
  return registered(std::move(segment));
}

/// A GPU's memory that peers can map, if its driver says so.
std::shared_ptr<Segment> describe(Driver& driver, const GpuMemory& memory) {
  auto share = driver.share(memory);
  if (!share) return nullptr;
  auto segment = std::make_shared<Segment>();
  segment->share = std::move(*share);
  segment->data = memory.data;
  segment->bytes = memory.bytes;
  segment->driver = &driver;
  return registered(std::move(segment));
}

std::shared_ptr<Segment> new_segment_on(Driver& driver, int device, std::size_t bytes) {
  const GpuMemory memory = driver.allocate(device, bytes);
  auto segment = describe(driver, memory);
  if (segment == nullptr) {
    retire([&driver, memory] { driver.free(memory); });
    throw GpuError("the driver gives other processes no access to memory of this GPU");
  }
  segment->gpu = memory;
  return segment;
}

/// Many small allocations in few segments: first fit, neighbours merged.
class Heap {
 public:
  using Source = std::function<std::shared_ptr<Segment>(std::size_t)>;
  Heap(Source source, std::size_t segment_bytes) : source_(std::move(source)), segment_bytes_(segment_bytes) {}

  std::byte* take(std::size_t bytes, std::size_t alignment, std::shared_ptr<Segment>& segment) {
    const std::lock_guard lock(mutex_);
    for (auto& pool : pools_) {
      if (std::byte* data = take_from(pool, bytes, alignment)) {
        segment = pool.segment;
        return data;
      }
    }
    auto fresh = source_(segment_bytes_);
    fresh->shared = true;
    pools_.push_back({fresh, {{0, segment_bytes_}}});
    segment = std::move(fresh);
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
  Source source_;
  std::size_t segment_bytes_;
  std::vector<Pool> pools_;
};

/// A child of fork shares the segments of its parent, and would be given the same bytes of them.
struct Heaps {
  Heap host{[](std::size_t bytes) { return new_segment(bytes, true); }, kSharedBytes};
  std::mutex mutex;
  std::map<std::pair<Driver*, int>, std::unique_ptr<Heap>> of_gpus;
};
base::OnePerProcess<Heaps> g_heaps;

Heap& heap(Driver& driver, int device) {
  const std::lock_guard lock(g_heaps->mutex);
  auto& heap = g_heaps->of_gpus[{&driver, device}];
  if (heap == nullptr) {
    const auto source = [&driver, device](std::size_t bytes) { return new_segment_on(driver, device, bytes); };
    heap = std::make_unique<Heap>(source, kGpuSharedBytes);
  }
  return *heap;
}

/// Memory of the user's that was described, by what the driver calls it. By its address too: HIP's id is perhaps that
/// of the block from which a pool has cut it.
struct Described {
  std::mutex mutex;
  std::map<std::tuple<Driver*, std::uint64_t, std::byte*>, std::weak_ptr<Segment>> all;
};
base::OnePerProcess<Described> g_described;

base::OnePerProcess<std::mutex> g_reaching;

}  // namespace

Segment::~Segment() {
  {
    const std::lock_guard lock(g_segments->mutex);
    g_segments->all.erase(id);
  }
  if (driver == nullptr && data != nullptr) {
    unmap_reached(data, bytes, reached);
  } else if (gpu.data != nullptr) {
    retire([driver = driver, gpu = gpu] { driver->free(gpu); });
  }
}

std::shared_ptr<const Segment> find_segment(std::uint64_t id) {
  const std::lock_guard lock(g_segments->mutex);
  const auto segment = g_segments->all.find(id);
  return segment == g_segments->all.end() ? nullptr : segment->second.lock();
}

Reached reach(Driver& driver, const Extent& memory) {
  if (memory.driver != nullptr || memory.bytes == 0) return {};
  if (memory.segment == nullptr) return reach(driver, memory.data, memory.bytes);
  const std::lock_guard lock(*g_reaching);
  const Segment& segment = *memory.segment;
  if (segment.reached.empty()) segment.reached = reach(driver, segment.data, segment.bytes);
  return {};
}

Allocation allocate(std::size_t bytes, bool populate) {
  Allocation allocation;
  const std::size_t alignment = bytes >= kPage ? kPage : kLine;
  if (bytes <= kSmall) {
    const std::size_t rounded = round_up(bytes, alignment);
    allocation.extent_.data = g_heaps->host.take(rounded, alignment, allocation.segment_);
    std::memset(allocation.extent_.data, 0, rounded);
    allocation.give_back_ = [rounded](const Extent& extent) {
      g_heaps->host.give_back(*extent.segment, extent.offset(), rounded);
    };
  } else {
    allocation.segment_ = new_segment(round_up(bytes, kPage), populate);
    allocation.extent_.data = allocation.segment_->data;
  }
  allocation.extent_.bytes = bytes;
  allocation.extent_.segment = allocation.segment_.get();
  return allocation;
}

Allocation allocate_on(Driver& driver, int device, std::size_t bytes) {
  Allocation allocation;
  const std::size_t rounded = round_up(bytes, kGpuLine);
  if (bytes <= kGpuSmall) {
    Heap& from = heap(driver, device);
    allocation.extent_.data = from.take(rounded, kGpuLine, allocation.segment_);
    allocation.give_back_ = [&from](const Extent& extent) {
      from.give_back(*extent.segment, extent.offset(), round_up(extent.bytes, kGpuLine));
    };
  } else {
    allocation.segment_ = new_segment_on(driver, device, rounded);
    allocation.extent_.data = allocation.segment_->data;
  }
  allocation.extent_.bytes = bytes;
  allocation.extent_.segment = allocation.segment_.get();
  allocation.extent_.driver = &driver;
  driver.zero({device, allocation.extent_.data, rounded});
  return allocation;
}

Allocation adopt(void* data, std::size_t bytes) {
  Allocation allocation;
  allocation.extent_ = {static_cast<std::byte*>(data), bytes, nullptr, nullptr};
  for (Driver* driver : drivers_in_use()) {
    const auto memory = driver->find(data);
    if (!memory) continue;
    allocation.extent_.driver = driver;
    // Several allocations that look like one, side by side, cannot be mapped as one.
    if (allocation.extent_.data + bytes > memory->data + memory->bytes) break;
    if (memory->id == 0) {
      allocation.segment_ = describe(*driver, *memory);
      allocation.extent_.segment = allocation.segment_.get();
      break;
    }
    const std::lock_guard lock(g_described->mutex);
    auto& one = g_described->all[{driver, memory->id, memory->data}];
    allocation.segment_ = one.lock();
    if (allocation.segment_ == nullptr) one = allocation.segment_ = describe(*driver, *memory);
    allocation.extent_.segment = allocation.segment_.get();
    break;
  }
  return allocation;
}

Allocation::~Allocation() {
  if (give_back_) give_back_(extent_);
}

Mapping::Mapping(const GpuExport& share, std::size_t bytes, Driver* driver) : bytes_(bytes), driver_(driver) {
  if (driver != nullptr) {
    gpu_ = driver->map(share, bytes);
    data_ = gpu_.data;
    return;
  }
  void* const data = map_fresh(bytes, MAP_SHARED | MAP_NORESERVE, share.fd.get());
  if (data == MAP_FAILED) fail("mapping " + std::to_string(bytes) + " bytes of a peer");
  data_ = static_cast<std::byte*>(data);
}

Mapping::Mapping(std::shared_ptr<const Segment> own)
    : data_(own->data), bytes_(own->bytes), driver_(own->driver), own_(std::move(own)) {}

void Mapping::reach_from(Driver& driver) {
  const std::lock_guard lock(mutex_);
  if (driver_ == nullptr && reached_.empty()) reached_ = reach(driver, data_, bytes_);
}

Mapping::~Mapping() {
  if (own_ != nullptr) return;
  // Its owner may free it next, which must be later than here.
  if (gpu_.got == GpuMemory::Got::pooled) {
    driver_->unmap(gpu_);
  } else if (driver_ != nullptr) {
    retire([driver = driver_, gpu = gpu_] { driver->unmap(gpu); });
  } else {
    unmap_reached(data_, bytes_, reached_);
  }
}

}  // namespace sluice::device
