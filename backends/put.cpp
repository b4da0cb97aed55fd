// SPDX-License-Identifier: Apache-2.0
#include "backends/put.hpp"

#include <exception>
#include <utility>

namespace sluice::backends {

namespace {

/// @throws device::GpuError
device::Allocation allocate_ours(std::size_t bytes, bool populate) {
  try {
    return device::allocate(bytes, populate);
  } catch (const std::exception& reason) {
    throw device::GpuError(reason.what());
  }
}

}  // namespace

void StreamCopy::reach_from(device::Driver& driver, device::Reached& reached) {
  reached_ = true;
  const auto is_stale = [&](const device::Extent& memory) {
    try {
      const device::Reached pages = device::reach(driver, memory);
      reached.insert(reached.end(), pages.begin(), pages.end());
      return false;
    } catch (const device::StalePages&) {
      return true;
    }
  };
  from_stale_ = is_stale(from_);
  to_stale_ = is_stale(to_);
  if (!from_stale_ && !to_stale_) {
    kernels_reach_ = kernels_reach_ || (driver.kernels_reach(from_.data) && driver.kernels_reach(to_.data));
    if (kernels_reach_ && driver.has_kernels(driver.current_device())) kernel_max_ = device::kernel_put_max;
  } else if (gpus_ != nullptr) {
    ours_ = allocate_ours(slot_bytes_, false);
    device::reach(driver, ours_.extent());
  }
}

void StreamCopy::by_host(device::GpuCall& call, std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (gpus_ == nullptr) return call.copy_by_host(to, from, bytes);
  std::byte* const ours = ours_.extent().data;  // the stream does one copy of this channel after the other
  if (from_stale_) {
    call.copy_by_host(ours, from, bytes);
    call.copy(to, ours, bytes);
  } else {
    call.copy(ours, from, bytes);
    call.copy_by_host(to, ours, bytes);
  }
}

std::string StreamCopy::describe() const {
  if (from_stale_ || to_stale_) {
    return ", by a host function of the stream: the GPU's driver still has the pages that were at these addresses "
           "before";
  }
  const std::string by_kernel = ", parts up to " + std::to_string(kernel_max_) + " bytes by a kernel";
  if (!reached_ || gpus_ != nullptr) return kernel_max_ == 0 ? "" : by_kernel;
  const std::string by_host = " by a host function of the stream";
  return kernel_max_ == 0 ? "," + by_host : by_kernel + ", larger ones" + by_host;
}

/// The driver is given the peer's mapped memory. No thread there is woken when a GPU's stream raises the signal.
void StreamPut::reach_from(device::Driver& driver) {
  for (const auto& mapping : mapped_) mapping->reach_from(driver);
  const device::Reached words = device::reach(driver, signal_.memory);
  reached_.insert(reached_.end(), words.begin(), words.end());
  signal_.parking->silence();
  copy_.reach_from(driver, reached_);
}

std::optional<ByKernel> MappedPut::by_kernel(device::Driver* driver) {
  if (!copy_.by_kernels(driver)) return std::nullopt;
  signal_.parking->silence();
  return ByKernel{target_, signal_.word};
}

std::string MappedPut::describe() const {
  const bool past_cache = crossing_ != nullptr && crossing_->past_cache_lately();
  return how_ + copy_.describe() + (past_cache ? ", past the cache" : "");
}

void MappedPut::fetch_next(device::Lane lane, std::uint64_t epoch, Range part) {
  if (lane.gpu != nullptr || !copy_.on_host() || !watch_.next_has_credit(epoch)) return;
  std::byte* const to = target_.at(epoch) + part.offset;
  if (part.bytes < base::CrossingCopy::kLeast)
    return base::fetch_to_write.load(std::memory_order_relaxed)(to, part.bytes);
  crossing_->fetch_ahead(to, part.bytes);
}

/// Slots that are neighbours at both ends are one copy. A GPU's are not: their copies may go through a single slot.
void MappedPut::move_all(device::Lane lane, std::uint64_t first, std::uint64_t last) {
  const std::size_t bytes = source_.slot_bytes;
  for (std::uint64_t epoch = first; bytes != 0 && epoch <= last;) {
    const auto slots = [&](const Slots& of) { return static_cast<std::uint64_t>(of.depth) - of.index(epoch); };
    const std::uint64_t run = lane.gpu != nullptr ? 1 : std::min({last - epoch + 1, slots(source_), slots(target_)});
    if (!copy(lane, target_.at(epoch), source_.at(epoch), run * bytes)) return;
    epoch += run;
  }
  if constexpr (base::races::kOn) {
    if (bytes != 0 && lane.gpu == nullptr) base::races::put_wrote(signal_.word);
  }
  raise_signal(lane, signal_, last);
}

void Doorbell::ring_often(device::Lane lane, std::uint64_t times) {
  const std::uint64_t count = rings.load(std::memory_order_relaxed) + times;
  rings.store(count, std::memory_order_relaxed);
  BellEntry* const entry = entry_;  // once the word has risen, the put may be over, and its bell gone
  if (lane.gpu != nullptr) {
    lane.gpu->write(word, count);
  } else {
    word.value.store(count, std::memory_order_release);
  }
  if (entry != nullptr) entry->listener.heard(*entry);
}

std::optional<ByKernel> RungPut::by_kernel(device::Driver*) {
  return ByKernel{.target = {},
                  .raised = &bell_->word,
                  .ahead = threshold(0),
                  .rings = true,
                  .armed = true,
                  .counter = bell_->counter_for_kernels()};
}

/// A GPU's stream rings in its time, whatever is armed by then: late does no harm, the bell keeps the rings.
void RungPut::enqueue(device::Lane lane, std::uint64_t epoch, Range part) {
  if (armed_by_engine_) {
    keep_part(epoch, part);
    may_be_rung_.store(epoch, std::memory_order_release);
  } else if (!arm(epoch, part)) {
    return;
  }
  bell_->ring(lane);
}

void RungPut::enqueue_all(device::Lane lane, std::uint64_t first, std::uint64_t last) {
  std::uint64_t next = first;
  if (armed_by_engine_) {
    for (; next <= last; ++next) keep_part(next, whole_);
    may_be_rung_.store(last, std::memory_order_release);
  } else {
    while (next <= last && arm(next, whole_)) ++next;
  }
  if (next > first) bell_->ring_often(lane, next - first);
}

/// Nothing is outstanding.
void RungPut::reach_from(device::Driver& driver) {
  constexpr std::size_t kFarAhead = 4096;  // epochs that a host may have enqueued and that have not left
  bell_->reach_from(driver);
  keep_parts_of(kFarAhead);
  armed_by_engine_ = true;
}

std::uint64_t RungPut::most_enqueued() const noexcept {
  if (!armed_by_engine_) return most_armed();
  return parts_.empty() ? kUnlimited : parts_.size();
}

void RungPut::let_kernels_ring(const kernel::Count& epochs) {
  if (!std::exchange(armed_by_engine_, true)) ahead_ = kernel::load_acquire(epochs.begun);
  may_be_rung_.store(kUnlimited);
  bell_->let_kernels_ring();
  epochs_ = &epochs;
}

/// Early does no harm either: a kernel rings when it has the credit, and the source is read after that.
AfterTurn RungPut::arm_ahead() {
  const std::uint64_t last = may_be_rung_.load(std::memory_order_acquire);
  const auto part = [&](std::uint64_t epoch) { return epochs_ != nullptr ? whole_ : part_of(epoch); };
  const std::uint64_t before = ahead_;
  while (ahead_ < last && announce(ahead_ + 1, part(ahead_ + 1))) ++ahead_;
  if (ahead_ >= last || watch_.done.value.load(std::memory_order_acquire) >= last) return AfterTurn::nothing;
  return ahead_ > before ? AfterTurn::work : AfterTurn::words;
}

/// Its end has failed, and is not rung for any more.
void RungPut::forget_refused_rings() noexcept {
  const std::uint64_t rung = bell_->rung();
  bell_->rings.store(rung);
  may_be_rung_.store(epoch_of(rung));
}

std::uint64_t RungPut::given_up() const noexcept {
  const std::uint64_t refused = epochs_ == nullptr ? 0 : kernel::load_acquire(epochs_->refused);
  return armed_by_engine_ && watch_.shut() ? std::max(refused, epoch_of(bell_->rung())) : refused;
}

EnginePut::EnginePut(device::Watch& watch, int depth, std::size_t slot_bytes, std::size_t rails)
    : RungPut(Fired::by_engine, watch, std::make_shared<Doorbell>(), slot_bytes, this), Posting(watch, depth, rails) {
  keep_parts_of(static_cast<std::size_t>(depth));
}

/// Nothing is outstanding.
std::optional<ByKernel> EnginePut::by_kernel(device::Driver* driver) {
  auto what = RungPut::by_kernel(driver);
  what->armed = false;
  if (parts_.empty()) return what;
  static_assert(sizeof(Range) == 2 * sizeof(std::uint64_t));
  if (driver != nullptr && parts_of_kernels_.extent().data == nullptr) {
    // Pages of ours: of the program's, a copy that has some given to the driver, and others not, would be refused.
    device::Allocation ours = allocate_ours(parts_.size_bytes(), true);
    parts_reached_ = device::reach(*driver, ours.extent());
    parts_ = {reinterpret_cast<Range*>(ours.extent().data), parts_.size()};
    parts_of_kernels_ = std::move(ours);
  }
  what->parts = reinterpret_cast<std::uint64_t*>(parts_.data());
  what->kept = parts_.size();
  return what;
}

/// One kind for all backends, since the engine looks at the bell.
const void* EnginePut::bell_kind() const noexcept {
  static const char kind = 0;
  return &kind;
}

}  // namespace sluice::backends
