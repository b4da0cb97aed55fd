// SPDX-License-Identifier: Apache-2.0
#include "device/host_stream.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <string>

#include "base/threads.hpp"
#include "base/waits.hpp"
#include "device/host_event.hpp"

namespace sluice {
namespace {

[[noreturn]] void fail(Code code, const std::string& what) { throw Error(code, -1, -1, 0, 0, "host stream: " + what); }

/// "stream 'interior'", or "host stream 2": the second of its process without a name.
std::string named(std::string_view name) {
  static std::atomic<int> made{0};
  return name.empty() ? "host stream " + std::to_string(++made) : "stream '" + std::string(name) + "'";
}

std::size_t checked_capacity(std::size_t capacity, std::size_t bytes_per_item) {
  if (capacity == 0) fail(Code::bad_argument, "a queue of no items");
  if (capacity > std::numeric_limits<std::size_t>::max() / 4 / bytes_per_item)
    fail(Code::out_of_resources, "a queue of " + std::to_string(capacity) + " items");
  return std::bit_ceil(capacity);
}

HostStream::Impl& usable(HostStream::Impl* impl) {
  if (impl == nullptr) fail(Code::misuse, "it was moved from");
  if (!impl->here()) fail(Code::misuse, base::kForked);
  return *impl;
}

}  // namespace

thread_local HostStream::Impl* HostStream::Impl::current = nullptr;

HostStream::Impl::Impl(Options options)
    : timeout_(options.timeout), stops_(options.stop_after_failure), name_(named(options.name)),
      without_text_(std::make_shared<device::Failure>(
          Error(Code::aborted, -1, -1, 0, 0, name_ + ": a callable has thrown when no memory was left"))) {
  const std::size_t capacity = checked_capacity(options.capacity, sizeof(Cell));
  mask_ = capacity - 1;
  // Fresh pages are zero, which is a valid empty ring, and are mapped at first touch, so that a large queue costs
  // nothing.
  void* memory =
      mmap(nullptr, ring_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail(Code::out_of_resources, "a queue of " + std::to_string(capacity) + " items");
  cells_ = static_cast<Cell*>(memory);
  base::prepare_fences();
  if (base::trace::on())
    track_ =
        base::trace::new_track(base::trace::rank(), options.name.empty() ? "host stream" : std::string(options.name));
  try {
    start_thread(options.cpu);
  } catch (...) {
    munmap(cells_, ring_bytes());
    throw;
  }
}

HostStream::Impl::~Impl() {
  ending_.store(true, std::memory_order_release);
  {
    const std::lock_guard lock(mutex_);
    if (parked_at_ != nullptr) parked_at_->wake();
  }
  wake_up();
  pthread_join(thread_, nullptr);
  tell_of_stop();
  munmap(cells_, ring_bytes());
}

// ---- The stream's own thread.

void HostStream::Impl::start_thread(int cpu) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (cpu != -1) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(static_cast<unsigned>(cpu), &set);
    pthread_attr_setaffinity_np(&attributes, sizeof set, &set);
  }
  constexpr auto body = [](void* self) -> void* {
    current = static_cast<Impl*>(self);
    current->serve();
    return nullptr;
  };
  const base::SignalsBlocked blocked;
  const int error = pthread_create(&thread_, &attributes, body, this);
  pthread_attr_destroy(&attributes);
  if (error == EINVAL) fail(Code::bad_argument, "there is no core " + std::to_string(cpu) + " for it");
  if (error != 0) fail(Code::out_of_resources, base::no_thread("it", error).what());
  pthread_setname_np(thread_, "sluice-stream");
}

void HostStream::Impl::serve() {
  for (;;) {
    const bool last = ending();
    if (take_over()) {
      while (run_next(Whose::users) && here()) {
      }
      hand_back();
    }
    if (!here()) return;  // a callable has forked, and this is the child
    if (last && !has_work()) return;
    wait_for_work();
  }
}

void HostStream::Impl::wait_for_work() {
  caught_up_.store(0, std::memory_order_relaxed);
  const auto ready = [this] { return has_work() || ending(); };
  const bool busy = device::yield_until([&] { return ready() || not_needed(); });
  if (!busy) sleep(State::asleep, base::Clock::time_point::max(), ready);
  doze();
}

// While hosts run all work themselves, step after step, this thread would only disturb them: each enqueue would wake
// it, to find nothing left. So it naps while the hosts go on, and checks the queue after a whole nap in which no host
// ran work: work that no host runs is at most two naps late, once.
void HostStream::Impl::doze() {
  constexpr base::Clock::duration kShortestNap = std::chrono::microseconds(100);
  constexpr base::Clock::duration kLongestNap = std::chrono::microseconds(800);
  for (auto nap = kShortestNap; not_needed(); nap = std::min(2 * nap, kLongestNap)) {
    caught_up_.store(0, std::memory_order_relaxed);
    if (sleep(State::dozing, base::Clock::now() + nap, [this] { return ending(); })) return;
  }
}

template <class Ready>
bool HostStream::Impl::sleep(State how, base::Clock::time_point until, Ready ready) {
  const base::races::NoOrder being_woken;
  std::unique_lock lock(mutex_);
  // Either producers, after their light fence, see this state, or `ready` sees their work.
  state_.store(how, std::memory_order_relaxed);
  if (how == State::asleep) {
    base::heavy_fence();
    // A host that has the stream looks for work after it has handed it back. If the fence above reaches that host just
    // before, the host may miss what a producer enqueued just before the fence reached the producer.
    base::heavy_fence();
  }
  const bool called =
      calls_.wait_until(lock, until, [&] { return state_.load(std::memory_order_relaxed) == State::awake || ready(); });
  state_.store(State::awake, std::memory_order_relaxed);
  return called;
}

void HostStream::Impl::wake_up() {
  {
    const std::lock_guard lock(mutex_);
    state_.store(State::awake, std::memory_order_relaxed);
  }
  calls_.notify_one();
}

bool HostStream::Impl::has_work() const noexcept {
  if (taken_.load(std::memory_order_acquire)) return false;
  const auto head = head_.load(std::memory_order_relaxed);
  return is_full(head) || late_before_.load(std::memory_order_relaxed) <= head;
}

// ---- Producers.

std::uint64_t HostStream::Impl::append(Work& work, Whose whose) {
  if (inside()) return append_inside(work, whose);
  const auto position = tail_.fetch_add(1, std::memory_order_relaxed);
  if (!is_free(position)) wait_for_room(position);
  fill(position, work, whose);
  call(whose == Whose::users ? State::dozing : State::asleep);
  return position;
}

// Waits until a batch of items has run: a wait for each item would cost a change of threads for each.
void HostStream::Impl::wait_for_room(std::uint64_t position) noexcept {
  const std::uint64_t head = (position - mask_ + batch() - 1) / batch() * batch();
  const auto has_room = [&] { return head_.load(std::memory_order_acquire) >= head; };
  const auto began = base::Clock::now();
  if (base::wait_until(room_, has_room, began + base::kNotedAfter)) return;
  base::WaitNote note(began, name_.c_str());
  base::WaitRecord record;
  record.rank = base::rank_of_thread();
  record.lack = base::Lack::room;
  record.epoch = mask_ + 1;
  record.verb = "enqueues";
  note.write(record);
  base::wait_until(room_, has_room);
}

// Does not block, which would be for ever: no other thread makes room.
std::uint64_t HostStream::Impl::append_inside(Work& work, Whose whose) {
  if (const auto claimed = append_if_free(work, whose)) return *claimed;
  const auto position = tail_.load(std::memory_order_relaxed);
  late_.push_back({position, whose, {}, std::move(work)});
  late_.back().item.enqueued();
  late_before_.store(late_.front().before, std::memory_order_relaxed);
  return position;
}

std::optional<std::uint64_t> HostStream::Impl::append_if_free(Work& work, Whose whose) noexcept {
  for (;;) {
    auto position = tail_.load(std::memory_order_relaxed);
    if (!is_free(position)) {
      if (position == tail_.load(std::memory_order_relaxed)) return std::nullopt;
    } else if (tail_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) {
      fill(position, work, whose);
      return position;
    }
  }
}

void HostStream::Impl::fill(std::uint64_t position, Work& work, Whose whose) noexcept {
  Cell& to = cell(position);
  to.whose = whose;
  to.item.enqueued();
  ::new (to.work) Work(std::move(work));
  filled(to).store(position + 1, std::memory_order_release);
}

/// The items of all earlier positions of its cell have run. `position` is claimed, or the next one.
bool HostStream::Impl::is_free(std::uint64_t position) noexcept {
  if (position - known_head_.load(std::memory_order_acquire) <= mask_) return true;
  const auto head = head_.load(std::memory_order_acquire);
  known_head_.store(head, std::memory_order_release);
  return position - head <= mask_;
}

bool HostStream::Impl::is_full(std::uint64_t position) const noexcept {
  return filled(cell(position)).load(std::memory_order_acquire) == position + 1;
}

// ---- Running, by the one thread that has taken the stream.

bool HostStream::Impl::run_next(Whose most) noexcept {
  const auto head = head_.load(std::memory_order_relaxed);
  if (late_before_.load(std::memory_order_relaxed) <= head) return run_late(most);
  if (!is_full(head)) return false;
  Cell& next = cell(head);
  if (next.whose > most) return false;
  {
    const base::races::Item::Running here(next.item);
    run(work(next), next.whose);
  }
  work(next).~Work();
  if (held_back_.give != nullptr && held_behind_ != head) [[unlikely]]
    give_held_back();
  head_.store(head + 1, std::memory_order_release);
  if ((head + 1) % batch() == 0) room_.wake();
  return true;
}

/// Skips the positions of the cells behind. With ThreadSanitizer cells are reused as late as possible: their reuse
/// orders threads, which hides races.
void HostStream::Impl::rewind() noexcept {
  auto head = head_.load(std::memory_order_relaxed);
  const std::uint64_t next = (head | mask_) + 1;
  if (base::races::kOn || tail_.load(std::memory_order_relaxed) != head) return;
  if (!tail_.compare_exchange_strong(head, next, std::memory_order_relaxed)) return;
  head_.store(next, std::memory_order_release);
  room_.wake();
}

void HostStream::Impl::give_held_back() noexcept {
  const Credit credit = std::exchange(held_back_, {});
  credit.give(this, credit.end, credit.epoch);
}

bool HostStream::Impl::run_late(Whose most) noexcept {
  Late& next = late_.front();
  if (next.whose > most) return false;
  {
    const base::races::Item::Running here(next.item);
    run(next.work, next.whose);
  }
  late_.pop_front();
  late_before_.store(late_.empty() ? kNever : late_.front().before, std::memory_order_relaxed);
  return true;
}

/// The library's own work runs on a stopped stream too: it fails its channel, and counts skipped operations.
void HostStream::Impl::run(Work& work, Whose whose) noexcept {
  if (whose == Whose::users && stop_.failure != nullptr) return;
  if (track_ == base::trace::kNone) [[likely]]
    return perform(work);
  const base::trace::OnTrack here(track_);
  if (whose != Whose::users) return perform(work);
  const base::trace::Span slice("callable");
  perform(work);
}

void HostStream::Impl::parked_at(base::Parking* parking) noexcept {
  const std::lock_guard lock(mutex_);
  parked_at_ = parking;
}

// ---- The public handle.

HostStream::HostStream() : HostStream(Options{}) {}
HostStream::HostStream(Options options) : impl_(std::make_unique<Impl>(options)) {}
HostStream::~HostStream() {
  if (impl_ != nullptr && !impl_->here()) static_cast<void>(impl_.release());
}
HostStream::HostStream(HostStream&&) noexcept = default;
HostStream& HostStream::operator=(HostStream&& other) noexcept {
  HostStream(std::move(other)).impl_.swap(impl_);
  return *this;
}

void HostStream::push(Work work) {
  const base::races::Called here;
  usable(impl_.get()).push(std::move(work));
}

void HostStream::synchronize(Timeout timeout) { usable(impl_.get()).synchronize(timeout); }

HostEvent HostStream::record() {
  HostEvent event(std::make_shared<HostEvent::Impl>());
  usable(impl_.get()).raise_at(event.impl_);
  return event;
}

void HostStream::wait(HostEvent event) {
  Impl& stream = usable(impl_.get());
  if (event.impl_ != nullptr) stream.wait_for(std::move(event.impl_));
}

bool HostStream::failed() const noexcept { return impl_ != nullptr && impl_->here() && impl_->failed(); }

}  // namespace sluice
