// SPDX-License-Identifier: Apache-2.0
#include "runtime/checks.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <new>
#include <vector>

#include "base/fork.hpp"
#include "base/frees.hpp"
#include "base/log.hpp"
#include "runtime/channel.hpp"

namespace sluice::runtime {
namespace {

/// The open ends of this process. Guarded by `mutex`, of which `KnownEnds` is the lock.
struct EndTable {
  std::mutex mutex;
  std::vector<Watched*> ends;
};
base::OnePerProcess<EndTable> g_ends;

/// Locks the table. Blocks that its holder frees belong to the library itself.
class KnownEnds {
 public:
  KnownEnds() : lock_(g_ends->mutex) {}
  std::vector<Watched*>& all() noexcept { return g_ends->ends; }
  static bool held_here() noexcept { return held; }

 private:
  static thread_local bool held;
  struct Held {
    Held() noexcept { held = true; }
    ~Held() { held = false; }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
  };
  const Held held_;  // before the lock
  const HiddenLock lock_;
};
thread_local bool KnownEnds::held = false;

bool overlaps_known(const std::byte* begin, const std::byte* end) {
  KnownEnds ends;
  return std::ranges::any_of(ends.all(), [&](const Watched* one) { return one->overlaps(begin, end); });
}

void note_free(const std::byte* begin, const std::byte* end, const void* from) noexcept {
  if (KnownEnds::held_here() || !overlaps_known(begin, end)) return;
  const base::Place place(from);  // outside of the lock: it takes one of the loader's, in which modules free memory
  KnownEnds ends;
  for (Watched* const one : ends.all()) {
    if (one->overlaps(begin, end)) one->freed(place);
  }
}

// A marked address of a slot: the top bit, 15 bits of its epoch, and the address, which has 48 bits at most.
constexpr unsigned kSlotAddressBits = 48;
constexpr std::uint64_t kSlotEpochs = 1U << 15U;
constexpr std::uintptr_t kSlotMark = std::uintptr_t{1} << 63U;
constexpr std::uintptr_t kSlotAddress = (std::uintptr_t{1} << kSlotAddressBits) - 1;

std::shared_ptr<ChannelEnd> receiver_of(const std::byte* slot) {
  KnownEnds ends;
  for (Watched* const one : ends.all()) {
    if (!one->info().sends() && one->holds(slot)) return one->owner().lock();
  }
  return nullptr;
}

}  // namespace

std::string text_of(const Call& call) {
  constexpr std::array kNames{"acquire",   "close", "commit",   "credited", "drain",
                              "on_device", "put",   "release",  "start",    "test",
                              "test_some", "wait",  "wait_any", "wait_for", "wait_some"};
  return std::string(kNames.at(static_cast<std::size_t>(call.verb))) + " at " + base::place_text(call.place);
}

std::optional<Call> OneUser::enter(const Call& call) {
  constexpr auto kMoment = std::chrono::microseconds(200);
  const auto self = std::this_thread::get_id();
  bool stays = false;
  {
    const HiddenLock lock(mutex_);
    if (depth_ > 0 && user_ != self) return call_;
    stays = last_ != self || std::has_single_bit(++calls_);
    user_ = last_ = self;
    if (depth_++ == 0) call_ = call;
  }
  if (stays) std::this_thread::sleep_for(kMoment);
  return std::nullopt;
}

void OneUser::leave() noexcept {
  const HiddenLock lock(mutex_);
  --depth_;
}

Call OneUser::current() const {
  const HiddenLock lock(mutex_);
  return call_;
}

std::string RunOrder::TooEarly::text() const {
  const auto text = [](const Enqueued& one) {
    return text_of(one.call) + " (epoch " + std::to_string(one.epoch) + ", on " + one.stream + ")";
  };
  return text(verb) + " runs before " + text(needed) + " has, which was enqueued earlier: order the two streams";
}

std::uint64_t RunOrder::enqueue(Enqueued verb) {
  const HiddenLock lock(mutex_);
  under_way_.push_back({{std::move(verb)}, ++last_, false, {}});
  return last_;
}

void RunOrder::withdraw(std::uint64_t number) noexcept {
  const HiddenLock lock(mutex_);
  under_way_.remove_if([&](const UnderWay& one) { return one.number == number; });
  ended_.notify_all();
}

const RunOrder::UnderWay* RunOrder::needed_by(const UnderWay& verb) const noexcept {
  if (verb.call.verb == Verb::acquire) return nullptr;
  const Verb begins = verb.call.verb == Verb::release ? Verb::wait : Verb::acquire;
  const UnderWay* needed = nullptr;
  for (const UnderWay& one : under_way_) {
    if (one.number == verb.number) break;
    if (one.epoch > verb.epoch || (one.call.verb != verb.call.verb && one.call.verb != begins)) continue;
    if (!one.begun) return &one;
    needed = &one;
  }
  return needed;
}

std::optional<RunOrder::TooEarly> RunOrder::begin(std::uint64_t number) {
  constexpr auto kEnding = std::chrono::seconds(10);  // what a loaded machine may take between a word and its end
  HiddenLock lock(mutex_);
  UnderWay& verb = *std::ranges::find(under_way_, number, &UnderWay::number);
  const auto until = base::Clock::now() + kEnding;
  for (bool in_time = true;;) {
    const UnderWay* const needed = needed_by(verb);
    if (needed == nullptr) break;
    if (!needed->begun || !in_time) {
      const Enqueued& early = verb;
      const Enqueued& first = *needed;
      return TooEarly{early, first};
    }
    in_time = lock.wait(ended_, until);
  }
  verb.begun = true;
  return std::nullopt;
}

bool RunOrder::defer(std::uint64_t number, std::function<void(device::Lane)> work) {
  const std::lock_guard lock(mutex_);  // ThreadSanitizer sees it: another thread runs the work
  UnderWay& verb = *std::ranges::find(under_way_, number, &UnderWay::number);
  verb.begun = needed_by(verb) == nullptr;
  if (verb.begun) return false;
  verb.late = std::move(work);
  return true;
}

void RunOrder::end(std::uint64_t number, device::Lane lane) {
  for (;;) {
    std::function<void(device::Lane)> next;
    {
      const HiddenLock lock(mutex_);
      under_way_.erase(std::ranges::find(under_way_, number, &UnderWay::number));
      ended_.notify_all();
      const auto late =
          std::ranges::find_if(under_way_, [&](const UnderWay& one) { return one.late && needed_by(one) == nullptr; });
      if (late == under_way_.end()) return;
      number = late->number;
      late->begun = true;
      next = std::move(late->late);
      late->late = nullptr;
    }
    { const std::lock_guard ordered_behind_its_thread(mutex_); }
    next(lane);
  }
}

Watched::Watched(const EndInfo& info, const base::Place& opened)
    : info_(info), opened_(opened), begin_(info.slots.memory.data), bytes_(info.slots.memory.bytes) {}

Watched::~Watched() { end(); }

void Watched::begin(std::weak_ptr<ChannelEnd> owner) {
  base::watch_frees(note_free);
  owner_ = std::move(owner);
  std::string other;
  base::Place other_opened;
  {
    KnownEnds ends;
    for (const Watched* const one : ends.all()) {
      if (info_.sends() || one->info_.sends() || !one->overlaps(begin_, begin_ + bytes_)) continue;
      if (info_.opening.options.shared_memory && one->info_.opening.options.shared_memory) continue;
      other = one->info_.direction();
      other_opened = one->opened_;
    }
    if (other.empty()) return ends.all().push_back(this);
  }
  info_.misuse(0, "target slots of a receiver opened at " + base::place_text(opened_) + " overlap those of the one " +
                      other + ", opened at " + base::place_text(other_opened));
}

void Watched::end() noexcept {
  KnownEnds ends;
  std::erase(ends.all(), this);
}

void Watched::freed(const base::Place& place) noexcept {
  if (is_freed_) return;
  freed_at_ = place;
  is_freed_.store(true, std::memory_order_release);
}

std::string Watched::look() const {
  if (is_freed_.load(std::memory_order_acquire))
    return "memory of its slots was freed at " + base::place_text(freed_at_);
  if (info_.slots.memory.driver != nullptr) return {};
  if (base::known_as_freed(begin_, bytes_)) return "memory of its slots was freed";
  return base::is_mapped(begin_, bytes_) ? std::string() : "memory of its slots was unmapped";
}

void Releases::add(std::uint64_t last, const Call& call) {
  const HiddenLock lock(mutex_);
  while (released_ < last) latest_.emplace_back(++released_, call);
  while (latest_.size() > kKept) latest_.pop_front();
}

std::optional<Call> Releases::of(std::uint64_t epoch) const {
  const HiddenLock lock(mutex_);
  if (epoch > released_) return std::nullopt;
  const auto found = std::ranges::find(latest_, epoch, &std::pair<std::uint64_t, Call>::first);
  return found == latest_.end() ? Call{Verb::release, {}} : found->second;
}

Slice checked_slot(Slice slot, std::uint64_t epoch) { return detail::SliceAccess::mark(std::move(slot), epoch); }

void ChannelEnd::begin_checks(const void* from) {
  checks_ = std::make_unique<Checks>(*this, base::Place(from));
  checks_->watched.begin(weak_from_this());
}

ChannelEnd::Use::Use(ChannelEnd& end, Stream stream, Verb verb, const void* from) : Use(end, verb, from) {
  end.bind_slowly(stream);
  runs_later_ = stream.kind() == Stream::Kind::host;
}

void ChannelEnd::begin_use(Verb verb, const void* from) {
  const Call call{verb, base::Place(from)};
  if (const auto other = checks_->user.enter(call)) {
    misuse(epoch(), "one channel is used by two threads at once: " + text_of(call) + ", while another thread is in " +
                        text_of(*other));
  }
  checks_->first_epoch = epoch() + 1;
  if (verb == Verb::close || !memory_is_gone(&call)) return;
  checks_->user.leave();
  check();
}

void ChannelEnd::end_use(Verb verb, bool runs_later) noexcept {
  if (verb == Verb::release && !runs_later) checks_->releases.add(releases_.last(), checks_->user.current());
  checks_->user.leave();
}

/// For a call of several epochs, the checks take the last one that needs others, and the first one that is needed.
std::uint64_t ChannelEnd::epoch_of(Verb verb) const noexcept {
  if (verb == Verb::release) return releases_.last();
  return verb == Verb::put ? epoch() : checks_->first_epoch.load();
}

void ChannelEnd::misused(std::uint64_t epoch, const std::string& what) noexcept {
  if (failed()) return;
  auto cause = services_->failures.cause_of(Code::misuse, what, opening);
  record(std::make_shared<device::Failure>(error(Code::misuse, epoch, what), std::move(cause)), what, true);
}

void ChannelEnd::begin_to_run(device::Lane lane, const Call& call, std::uint64_t epoch) noexcept {
  if (call.verb == Verb::release) checks_->releases.add(epoch, call);
  const std::string why = failed() ? std::string() : checks_->watched.look();
  if (why.empty()) return;
  misused(epoch, why + " before it ran: " + text_of(call) + ", epoch " + std::to_string(epoch));
  report_failure(lane);
}

void ChannelEnd::runs_too_early(device::Lane lane, const RunOrder::TooEarly& what) noexcept {
  misused(what.verb.epoch, what.text());
  report_failure(lane);
}

bool ChannelEnd::memory_is_gone(const Call* found_by) noexcept {
  if (failed() || closed_here()) return false;
  const std::string why = checks_->watched.look();
  if (why.empty()) return false;
  const std::string channel = "the channel, opened at " + base::place_text(checks_->watched.opened());
  misused(epoch(), why + (found_by == nullptr ? " before " + channel + ", was closed"
                                              : " while " + channel + ", is open; found by " + text_of(*found_by)));
  return true;
}

/// A slice that the program has kept may be of the slot that it has now.
void ChannelEnd::slot_used(std::uint64_t marked, const void* from) noexcept {
  const std::uint64_t last = epoch();
  const std::uint64_t back = (last - marked) % kSlotEpochs;
  if (failed() || back >= last) return;
  const std::uint64_t used = last - back;
  const auto release = checks_->releases.of(used);
  if (!release) return;
  const std::uint64_t waited = counts().completed;
  const std::uint64_t latest = waited < used ? used : waited - (waited - used) % depth();
  if (latest > used && !checks_->releases.of(latest)) return;
  misused(used, "data() of the slot of epoch " + std::to_string(used) + " at " + base::place_text(base::Place(from)) +
                    ", after its " + text_of(*release));
}

}  // namespace sluice::runtime

namespace sluice::detail {

Slice SliceAccess::mark(Slice slot, std::uint64_t epoch) noexcept {
  slot.data_ = marked_data(slot.data_, epoch);
  return slot;
}

std::byte* marked_data(std::byte* data, std::uint64_t epoch) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if ((address & ~runtime::kSlotAddress) != 0) return data;
  const std::uintptr_t marked =
      runtime::kSlotMark | ((epoch % runtime::kSlotEpochs) << runtime::kSlotAddressBits) | address;
  return reinterpret_cast<std::byte*>(marked);
}

std::byte* data_of_marked(const std::byte* marked) noexcept {
  const auto bits = reinterpret_cast<std::uintptr_t>(marked);
  auto* const slot = reinterpret_cast<std::byte*>(bits & runtime::kSlotAddress);
  try {
    if (const auto end = runtime::receiver_of(slot))
      end->slot_used((bits >> runtime::kSlotAddressBits) % runtime::kSlotEpochs, __builtin_return_address(0));
  } catch (const std::bad_alloc&) {
    base::log(base::LogLevel::warn, "SLUICE_CHECK: there is no memory to look at a slot");
  }
  return slot;
}

}  // namespace sluice::detail
