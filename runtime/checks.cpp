// SPDX-License-Identifier: Apache-2.0
#include "runtime/checks.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <string_view>
#include <vector>

#include "base/fork.hpp"
#include "base/frees.hpp"
#include "runtime/channel.hpp"

namespace sluice::runtime {
namespace {

/// The open ends of this process. Guarded by `mutex`, of which `KnownEnds` is the lock.
struct EndTable {
  std::mutex mutex;
  std::vector<Watched*> ends;
};
base::OnePerProcess<EndTable> g_ends;

/// The lock of the table. What its holder frees is of the library itself.
class KnownEnds {
 public:
  KnownEnds() : lock_(g_ends->mutex) { held = true; }
  KnownEnds(const KnownEnds&) = delete;
  KnownEnds& operator=(const KnownEnds&) = delete;
  ~KnownEnds() { held = false; }
  std::vector<Watched*>& all() noexcept { return g_ends->ends; }
  static bool held_here() noexcept { return held; }

 private:
  static thread_local bool held;
  const std::lock_guard<std::mutex> lock_;
};
thread_local bool KnownEnds::held = false;

void note_free(const std::byte* begin, const std::byte* end, base::Place place) noexcept {
  if (KnownEnds::held_here()) return;
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

std::string text_of(const Call& call) { return std::string(call.verb) + " at " + base::place_text(call.place); }

std::optional<Call> OneUser::enter(const Call& call) {
  constexpr auto kMoment = std::chrono::microseconds(200);
  const auto self = std::this_thread::get_id();
  bool stays = false;
  {
    const std::lock_guard lock(mutex_);
    if (depth_ > 0 && user_ != self) return call_;
    stays = last_ != self || std::has_single_bit(++calls_);
    user_ = last_ = self;
    if (depth_++ == 0) call_ = call;
  }
  if (stays) std::this_thread::sleep_for(kMoment);
  return std::nullopt;
}

void OneUser::leave() noexcept {
  const std::lock_guard lock(mutex_);
  --depth_;
}

Call OneUser::current() const {
  const std::lock_guard lock(mutex_);
  return call_;
}

std::uint64_t RunOrder::enqueue(const Call& call, std::uint64_t epoch, const HostStream::Impl* stream) {
  const std::lock_guard lock(mutex_);
  under_way_.push_back({++last_, call, epoch, stream, {}});
  return last_;
}

bool RunOrder::is_next(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  return under_way_.front().number == number;
}

std::string RunOrder::why_not(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto text = [](const Verb& verb) {
    return text_of(verb.call) + " (epoch " + std::to_string(verb.epoch) + ", on " + verb.stream->name() + ")";
  };
  const Verb& oldest = under_way_.front();
  return text(*std::ranges::find(under_way_, number, &Verb::number)) + " runs before " + text(oldest) +
         " has, which was enqueued earlier: order the two streams";
}

bool RunOrder::defer(std::uint64_t number, std::function<void(device::Lane)> work) {
  const std::lock_guard lock(mutex_);
  if (under_way_.front().number == number) return false;
  std::ranges::find(under_way_, number, &Verb::number)->late = std::move(work);
  return true;
}

void RunOrder::end(std::uint64_t number, device::Lane lane) {
  for (;;) {
    std::function<void(device::Lane)> next;
    {
      const std::lock_guard lock(mutex_);
      under_way_.erase(std::ranges::find(under_way_, number, &Verb::number));
      if (under_way_.empty() || !under_way_.front().late) return;
      number = under_way_.front().number;
      next = std::move(under_way_.front().late);
    }
    next(lane);
  }
}

Watched::Watched(const EndInfo& info, base::Place opened)
    : info_(info), opened_(opened), begin_(info.slots.memory.data), bytes_(info.slots.memory.bytes) {}

Watched::~Watched() { end(); }

void Watched::begin(std::weak_ptr<ChannelEnd> owner) {
  base::watch_frees(note_free);
  owner_ = std::move(owner);
  std::string other;
  base::Place other_opened = nullptr;
  {
    KnownEnds ends;
    for (const Watched* const one : ends.all()) {
      if (info_.sends() || one->info_.sends() || !one->overlaps(begin_, begin_ + bytes_)) continue;
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

void Watched::freed(base::Place place) noexcept {
  if (!is_freed_.exchange(true)) freed_at_.store(place, std::memory_order_release);
}

std::string Watched::look() const {
  if (is_freed_) return "memory of its slots was freed at " + base::place_text(freed_at_.load());
  if (info_.slots.memory.driver != nullptr) return {};
  if (base::known_as_freed(begin_, bytes_)) return "memory of its slots was freed";
  return base::is_mapped(begin_, bytes_) ? std::string() : "memory of its slots was unmapped";
}

void Releases::add(std::uint64_t last, const Call& call) {
  const std::lock_guard lock(mutex_);
  while (released_ < last) latest_.emplace_back(++released_, call);
  while (latest_.size() > kKept) latest_.pop_front();
}

std::optional<Call> Releases::of(std::uint64_t epoch) const {
  const std::lock_guard lock(mutex_);
  if (epoch > released_) return std::nullopt;
  const auto found = std::ranges::find(latest_, epoch, &std::pair<std::uint64_t, Call>::first);
  return found == latest_.end() ? Call{"release", nullptr} : found->second;
}

Slice checked_slot(Slice slot, std::uint64_t epoch) { return detail::SliceAccess::mark(std::move(slot), epoch); }

void ChannelEnd::begin_checks(base::Place opened) {
  checks_ = std::make_shared<Checks>(*this, opened);
  checks_->watched.begin(weak_from_this());
}

ChannelEnd::Use::Use(ChannelEnd& end, Stream stream, const Call& call) : Use(end, call) {
  end.bind_slowly(stream);
  runs_later_ = stream.kind() == Stream::Kind::host;
}

void ChannelEnd::begin_use(const Call& call) {
  if (const auto other = checks_->user.enter(call)) {
    misuse(epoch(), "one channel is used by two threads at once: " + text_of(call) + ", while another thread is in " +
                        text_of(*other));
  }
  const std::string why = failed() || call.verb == Use::kClose ? std::string() : checks_->watched.look();
  if (why.empty()) return;
  checks_->user.leave();
  fail(Code::misuse, why + " while the channel, opened at " + base::place_text(checks_->watched.opened()) +
                         ", is open; found by " + text_of(call));
  check();
}

void ChannelEnd::end_use(const Call& call, bool runs_later) noexcept {
  if (call.verb == Use::kRelease && !runs_later) checks_->releases.add(releases_.last(), call);
  checks_->user.leave();
}

std::uint64_t ChannelEnd::epoch_of(const Call& call) const noexcept {
  if (call.verb == Use::kRelease) return releases_.last();
  return call.verb == Use::kAcquire ? epoch() + 1 : epoch();
}

void ChannelEnd::begin_to_run(device::Lane lane, const Call& call, std::uint64_t epoch) noexcept {
  if (call.verb == Use::kRelease) checks_->releases.add(epoch, call);
  const std::string why = failed() ? std::string() : checks_->watched.look();
  if (why.empty()) return;
  fail(Code::misuse, why + " before it ran: " + text_of(call) + ", epoch " + std::to_string(epoch));
  report_failure(lane);
}

void ChannelEnd::runs_too_early(device::Lane lane, const std::string& why) noexcept {
  fail(Code::misuse, why);
  report_failure(lane);
}

void ChannelEnd::look_at_memory() noexcept {
  if (failed()) return;
  if (const std::string why = checks_->watched.look(); !why.empty())
    fail(Code::misuse,
         why + " before the channel, opened at " + base::place_text(checks_->watched.opened()) + ", was closed");
}

void ChannelEnd::slot_used(std::uint64_t marked, base::Place place) noexcept {
  const std::uint64_t last = epoch();
  const std::uint64_t back = (last - marked) % kSlotEpochs;
  if (failed() || back >= last) return;
  if (const auto release = checks_->releases.of(last - back)) {
    fail(Code::misuse, "data() of the slot of epoch " + std::to_string(last - back) + " at " + base::place_text(place) +
                           ", after its " + text_of(*release));
  }
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
  const base::Place place = __builtin_return_address(0);
  if (const auto end = runtime::receiver_of(slot))
    end->slot_used((bits >> runtime::kSlotAddressBits) % runtime::kSlotEpochs, place);
  return slot;
}

}  // namespace sluice::detail
