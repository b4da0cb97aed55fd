// SPDX-License-Identifier: Apache-2.0
#include "device/memory.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "base/fd.hpp"
#include "base/fork.hpp"
#include "base/memory_limit.hpp"
#include "base/words.hpp"
#include "device/heap/heap.hpp"
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

/// Throws before the kernel would end this process for its use of memory.
void check_memory(std::size_t bytes) {
  const std::string why = base::why_no_memory(bytes);
  if (!why.empty()) throw std::runtime_error(why);  // of a cgroup
}

base::Fd new_file(std::size_t bytes) {
  const std::string why = base::why_no_file(bytes);
  if (!why.empty()) throw std::runtime_error(why);  // of files
  base::Fd fd = base::open_with_room([] { return memfd_create("sluice", MFD_CLOEXEC); });
  if (!fd) base::throw_not_opened("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    base::throw_errno("reserving " + std::to_string(bytes) + " bytes");
  return fd;
}

void populate_piece(std::byte* data, std::size_t bytes) {
  // Faults every page in now and reports a lack of memory as an error, where a later store would be killed by SIGBUS.
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return;
  if (errno != EINVAL) base::throw_errno("populating " + std::to_string(bytes) + " bytes of shared memory");
  for (std::size_t at = 0; at < bytes; at += kPage) static_cast<volatile std::byte*>(data)[at] = std::byte{0};
}

/// Checks the limit before each piece: other processes may use up the same limit meanwhile.
void populate_pages(std::byte* data, std::size_t bytes) {
  constexpr std::size_t kPiece = 32 << 20;
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    if (at > 0) check_memory(bytes - at);
    populate_piece(data + at, std::min(kPiece, bytes - at));
  }
}

/// Unmaps memory, but not before the drivers have released its pages.
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

/// Segments of libsluice_heap, by their data. They live as long as the process.
struct HeapSegments {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<Segment>> by_chunk;
};

base::OnePerProcess<HeapSegments> g_heap_segments;

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
  if (data == MAP_FAILED) base::throw_errno("mapping " + std::to_string(bytes) + " bytes");
  segment->data = static_cast<std::byte*>(data);
  segment->bytes = bytes;
  if (populate) populate_pages(segment->data, bytes);
  return registered(std::move(segment));
}

/// Makes a segment of a GPU's memory; null if its driver lets no peer map it.
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
  /// Divides what another heap gives, `bytes` at a time, and never gives it back. Of each piece, which is aligned to
  /// its size, the first line is left free.
  Heap(Heap& of, std::size_t bytes) : outer_(&of), segment_bytes_(bytes) {}

  /// Returns memory whose size is rounded up to the alignment.
  Allocation take(std::size_t bytes, std::size_t alignment) {
    const std::size_t rounded = round_up(bytes, alignment);
    const auto [pool, offset] = find_room(rounded, alignment);
    const auto give_back = [this, pool = pool, offset = offset, rounded](const void*) {
      if (!origin_.here()) return;
      const std::lock_guard lock(mutex_);
      merge_in(pool->free, offset, rounded);
    };
    const Segment& segment = *pool->segment;
    return {{segment.data + offset, bytes, &segment, segment.driver}, std::shared_ptr<const void>(nullptr, give_back)};
  }

 private:
  using FreeList = std::map<std::size_t, std::size_t>;  // offset -> bytes
  struct Pool {
    std::shared_ptr<const Segment> segment;
    FreeList free;
    Allocation piece = {};  // of the outer heap
  };

  Pool new_pool() {
    if (outer_ == nullptr) {
      auto segment = source_(segment_bytes_);
      segment->shared = true;
      return {std::move(segment), {{0, segment_bytes_}}};
    }
    Allocation piece = outer_->take(segment_bytes_, segment_bytes_);
    const Extent extent = piece.extent();
    new (extent.data) base::Parking;  // common to all that is taken of it
    return {find_segment(extent.segment->id), {{extent.offset() + kLine, segment_bytes_ - kLine}}, std::move(piece)};
  }

  std::pair<Pool*, std::size_t> find_room(std::size_t bytes, std::size_t alignment) {
    const std::lock_guard lock(mutex_);
    for (Pool& pool : pools_) {
      if (const auto offset = take_from(pool.free, bytes, alignment)) return {&pool, *offset};
    }
    Pool& fresh = pools_.emplace_back(new_pool());
    return {&fresh, take_from(fresh.free, bytes, alignment).value()};
  }

  static std::optional<std::size_t> take_from(FreeList& free, std::size_t bytes, std::size_t alignment) {
    for (auto it = free.begin(); it != free.end(); ++it) {
      const auto [offset, available] = *it;
      const std::size_t start = round_up(offset, alignment);
      if (start + bytes > offset + available) continue;
      free.erase(it);
      if (start > offset) free[offset] = start - offset;
      if (start + bytes < offset + available) free[start + bytes] = offset + available - start - bytes;
      return start;
    }
    return std::nullopt;
  }

  static void merge_in(FreeList& free, std::size_t offset, std::size_t bytes) {
    const auto join = [&free](auto left, auto right) {
      if (right == free.end() || left->first + left->second != right->first) return;
      left->second += right->second;
      free.erase(right);
    };
    const auto piece = free.emplace(offset, bytes).first;
    join(piece, std::next(piece));
    if (piece != free.begin()) join(std::prev(piece), piece);
  }

  const base::Origin origin_;
  std::mutex mutex_;
  Source source_;
  Heap* outer_ = nullptr;
  std::size_t segment_bytes_;
  std::list<Pool> pools_;
};

/// A child of fork shares the segments of its parent, and would be given the same bytes of them.
struct Heaps {
  Heap host{[](std::size_t bytes) { return new_segment(bytes, true); }, kSharedBytes};
  Heap words{host, kWordsBytes};
  std::mutex mutex;
  std::map<std::pair<Driver*, int>, Heap> of_gpus;
};
base::OnePerProcess<Heaps> g_heaps;

Heap& heap(Driver& driver, int device) {
  const std::lock_guard lock(g_heaps->mutex);
  const auto source = [&driver, device](std::size_t bytes) { return new_segment_on(driver, device, bytes); };
  return g_heaps->of_gpus.try_emplace({&driver, device}, source, kGpuSharedBytes).first->second;
}

/// Segments for memory of the user, by the driver's id, and by address too: HIP's id may be that of the block from
/// which a pool has cut the memory.
using Described = std::map<std::tuple<Driver*, std::uint64_t, std::byte*>, std::weak_ptr<Segment>>;
base::OnePerProcess<base::Guarded<Described>> g_described;

std::shared_ptr<Segment> described(Driver& driver, const GpuMemory& memory) {
  if (memory.id == 0) return describe(driver, memory);
  const std::lock_guard lock(g_described->mutex);
  auto& known = g_described->value[{&driver, memory.id, memory.data}];
  auto segment = known.lock();
  if (segment == nullptr) known = segment = describe(driver, memory);
  return segment;
}

base::OnePerProcess<std::mutex> g_reaching;

Allocation whole(std::shared_ptr<Segment> segment, std::size_t bytes) {
  const Extent extent{segment->data, bytes, segment.get(), segment->driver};
  return {extent, std::move(segment)};
}

}  // namespace

Segment::~Segment() {
  {
    const std::lock_guard lock(g_segments->mutex);
    g_segments->all.erase(id);
  }
  if (driver == nullptr && data != nullptr && !sparse) {  // a sparse segment is the heap's memory
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
  if (memory.segment == nullptr || memory.segment->sparse) return reach(driver, memory.data, memory.bytes);
  const std::lock_guard lock(*g_reaching);
  const Segment& segment = *memory.segment;
  if (segment.reached.empty()) segment.reached = reach(driver, segment.data, segment.bytes);
  return {};
}

Allocation allocate(std::size_t bytes, bool populate) {
  if (bytes > kSmall) return whole(new_segment(round_up(bytes, kPage), populate), bytes);
  const std::size_t alignment = bytes >= kPage ? kPage : kLine;
  Allocation piece = g_heaps->host.take(bytes, alignment);
  std::memset(piece.extent().data, 0, round_up(bytes, alignment));
  return piece;
}

Allocation allocate_words(std::size_t bytes) {
  static_assert(sizeof(base::Parking) == kLine);
  Allocation piece = g_heaps->words.take(bytes, kLine);
  std::memset(piece.extent().data, 0, bytes);
  return piece;
}

Allocation allocate_on(Driver& driver, int device, std::size_t bytes) {
  const std::size_t rounded = round_up(bytes, kGpuLine);
  Allocation memory = bytes <= kGpuSmall ? heap(driver, device).take(bytes, kGpuLine)
                                         : whole(new_segment_on(driver, device, rounded), bytes);
  driver.zero({device, memory.extent().data, rounded});
  return memory;
}

namespace {

/// The segment of libsluice_heap with this memory; null: that library does not have it.
std::shared_ptr<const Segment> segment_of_heap(void* data, std::size_t bytes) {
  static const auto find = reinterpret_cast<decltype(&sluice_heap_find)>(::dlsym(RTLD_DEFAULT, "sluice_heap_find"));
  if (find == nullptr) return nullptr;
  const sluice_heap_chunk chunk = find(data, bytes);
  if (chunk.data == nullptr) return nullptr;
  const std::lock_guard lock(g_heap_segments->mutex);
  std::shared_ptr<Segment>& segment = g_heap_segments->by_chunk[chunk.data];
  if (segment == nullptr) {
    base::Fd fd(::fcntl(chunk.fd, F_DUPFD_CLOEXEC, chunk.fd));  // as far from the program's
    if (!fd) fd = base::Fd(::fcntl(chunk.fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!fd) return nullptr;
    auto made = std::make_shared<Segment>();
    made->share.fd = std::move(fd);
    made->data = static_cast<std::byte*>(chunk.data);
    made->bytes = chunk.bytes;
    made->shared = true;
    made->sparse = true;
    segment = registered(std::move(made));
  }
  return segment;
}

}  // namespace

Allocation adopt(void* data, std::size_t bytes) {
  Extent extent{static_cast<std::byte*>(data), bytes};
  for (Driver* driver : drivers_in_use()) {
    const auto memory = driver->find(data);
    if (!memory) continue;
    extent.driver = driver;
    // Several allocations that look like one, side by side, cannot be mapped as one.
    if (extent.data + bytes > memory->data + memory->bytes) break;
    const std::shared_ptr<Segment> segment = described(*driver, *memory);
    extent.segment = segment.get();
    return {extent, segment};
  }
  if (extent.driver != nullptr) return {extent, nullptr};
  const std::shared_ptr<const Segment> segment = segment_of_heap(data, bytes);
  extent.segment = segment.get();
  return {extent, segment};
}

Mapping::Mapping(const GpuExport& share, std::size_t bytes, Driver* driver) : bytes_(bytes), driver_(driver) {
  if (driver != nullptr) {
    gpu_ = driver->map(share, bytes);
    data_ = gpu_.data;
    return;
  }
  void* const data = map_fresh(bytes, MAP_SHARED | MAP_NORESERVE, share.fd.get());
  if (data == MAP_FAILED) base::throw_errno("mapping " + std::to_string(bytes) + " bytes of a peer");
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
  // The owner may free the memory next, which must not happen before this unmapping.
  if (gpu_.got == GpuMemory::Got::pooled) {
    driver_->unmap(gpu_);
  } else if (driver_ != nullptr) {
    retire([driver = driver_, gpu = gpu_] { driver->unmap(gpu); });
  } else {
    unmap_reached(data_, bytes_, reached_);
  }
}

}  // namespace sluice::device
