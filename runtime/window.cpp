// SPDX-License-Identifier: Apache-2.0
#include "runtime/window.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "peers/bootstrap.hpp"
#include "runtime/handles.hpp"
#include "runtime/kept.hpp"
#include "runtime/registry.hpp"

namespace sluice::runtime {
namespace {

/// No name of a window, in any scope, gives this one (see `inside` in context.cpp).
constexpr std::string_view kByHandle = "@handle:";
constexpr std::string_view kByOffset = "@offset:";

std::string as_bytes(std::uint64_t number) {
  std::string text(sizeof number, '\0');
  std::memcpy(text.data(), &number, sizeof number);
  return text;
}

/// Memory that a peer's key opens.
class OfferLanding final : public backends::Landing {
 public:
  OfferLanding(Engine& engine, const backends::Offer& offer)
      : Landing(offer.how), kept_(offer.kept), awaited_by_(offer.counted_in_turns ? &engine : nullptr) {
    if (awaited_by_ != nullptr) awaited_by_->expect();
  }
  ~OfferLanding() override {
    if (awaited_by_ != nullptr) awaited_by_->expect_no_more();
  }
  OfferLanding(const OfferLanding&) = delete;
  OfferLanding& operator=(const OfferLanding&) = delete;

 private:
  std::shared_ptr<const void> kept_;
  Engine* const awaited_by_;  // whose turns raise the counters; null: others do
};

}  // namespace

std::string scope_of(const WindowId& id) {
  std::string scope(kByHandle);
  return scope.append(reinterpret_cast<const char*>(id.data()), id.size());
}

bool is_scope_of_handle(std::string_view scope) { return scope.starts_with(kByHandle); }

std::string scope_at(std::string_view scope_of_handle, std::uint64_t offset) {
  return std::string(kByOffset) + as_bytes(offset) + std::string(scope_of_handle);
}

bool is_scope_of_place(std::string_view scope) noexcept { return scope.starts_with(kByOffset); }

std::optional<PlaceInWindow> place_of(std::string_view scope) {
  PlaceInWindow place;
  if (!is_scope_of_place(scope) || scope.size() < kByOffset.size() + sizeof place.offset) return std::nullopt;
  scope.remove_prefix(kByOffset.size());
  std::memcpy(&place.offset, scope.data(), sizeof place.offset);
  place.scope = scope.substr(sizeof place.offset);
  return place;
}

std::string why_no_window(const Slice& memory) {
  if (memory.bytes() == 0) return "a window of 0 bytes";
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % sizeof(std::uint64_t) != 0)
    return "a window that does not begin at a multiple of 8 bytes";
  return {};
}

backends::Key WindowEnd::open_landing(backends::Link& link, std::vector<backends::Signal>) {
  backends::Offer offer = link.offer(extent_of(opening.memory), counters_.extent());
  landing_ = std::make_unique<OfferLanding>(services().engine, offer);
  return std::move(offer.key);
}

std::string text_of(const WindowFacts& facts) {
  const char agent = facts.of_gpu ? 'g' : facts.by_agent ? 'a' : facts.in_turns ? 't' : 'p';
  std::string text = agent + std::to_string(facts.counters) + ' ' + std::to_string(facts.at) + ' ';
  if (facts.of_gpu) text.append(reinterpret_cast<const char*>(facts.gpu.data()), facts.gpu.size());
  return text + facts.scope;
}

WindowFacts facts_of(std::string_view text) {
  const std::size_t first = text.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : text.find(' ', first + 1);
  if (second == std::string_view::npos) return {};
  WindowFacts facts;
  facts.by_agent = text.front() == 'a';
  facts.of_gpu = text.front() == 'g';
  facts.in_turns = text.front() == 't';
  const std::size_t scope = second + 1 + (facts.of_gpu ? sizeof facts.gpu : 0);
  if (scope > text.size()) return {};
  if (facts.of_gpu) std::memcpy(facts.gpu.data(), text.data() + second + 1, sizeof facts.gpu);
  facts.scope = text.substr(scope);
  std::from_chars(text.data() + 1, text.data() + first, facts.counters);
  std::from_chars(text.data() + first + 1, text.data() + second, facts.at);
  return facts;
}

namespace {

/// Identifier of the GPU that has the memory; zeros for host memory, or if the driver does not name it.
device::GpuId gpu_of(const Slice& memory) {
  const device::Extent extent = extent_of(memory);
  if (extent.driver == nullptr) return {};
  try {
    const auto found = extent.driver->find(extent.data);
    if (found) return extent.driver->id_of(found->device);
  } catch (const device::GpuError& reason) {
    base::log(base::LogLevel::warn, reason.what());
  }
  return {};
}

}  // namespace

WindowCore::WindowCore(std::shared_ptr<const Services> services, WindowOpening what)
    : opening(std::move(what)), id(new_secret()), scope_of_handle(scope_of(id)), services_(std::move(services)),
      gpu_(gpu_of(opening.memory)), counter_words_(opening.counters + (opening.atomics == AtomicsOf::targets ? 1 : 0)),
      used_counters_(std::make_unique<std::atomic<CounterEnd*>[]>(opening.counters)) {
  if (!all_map(opening.memory)) need_agent();
  notice_end = base::make_here<NoticeEnd>(services_, opening_alone(0, Role::notices));
}

Error WindowCore::error(Code code, const std::string& what) const {
  return {code, opening.rank, -1, 0, 0, "window '" + opening.name + "': " + what};
}

bool WindowCore::all_map(const Slice& memory) const noexcept {
  using Maps = backends::Transport::Maps;
  return services_->maps == Maps::process || (services_->maps == Maps::host && extent_of(memory).segment != nullptr);
}

WindowFacts WindowCore::facts(const Piece* piece) const {
  const Slice& memory = piece == nullptr ? opening.memory : piece->memory;
  WindowFacts facts;
  const AtomicsBy by = atomics_in(memory);
  facts.of_gpu = by == AtomicsBy::gpus;
  facts.by_agent = by == AtomicsBy::owner;
  facts.in_turns = by == AtomicsBy::turns;
  facts.counters = opening.counters;
  facts.at = piece == nullptr ? 0 : piece->at;
  facts.scope = piece == nullptr ? scope_of_handle : piece->scope;
  facts.gpu = piece == nullptr ? gpu_ : piece->gpu;
  return facts;
}

/// Without the registry's mutex, which it takes. The registry reads `agent_` with it.
void WindowCore::need_agent() {
  if (agent_ != nullptr) return;
  auto made = std::make_unique<Agent>(services_, counter_words_.all().first(opening.counters));
  const std::lock_guard lock(services_->registry.mutex());
  agent_ = std::move(made);
}

Opening WindowCore::opening_for(const ChannelKey& key, const Piece* piece) const {
  const auto& ranks = opening.ranks;
  const auto found = std::find(ranks.begin(), ranks.end(), key.world_peer);
  Rank peer = ranks.empty() ? key.world_peer : -1;  // of another context, by a handle
  if (found != ranks.end()) peer = static_cast<Rank>(found - ranks.begin());
  return {key,
          opening.rank,
          peer,
          piece == nullptr ? opening.memory : piece->memory,
          ChannelOptions{},
          opening.name,
          text_of(facts(piece)),
          -1,
          true};
}

Opening WindowCore::opening_alone(std::uint32_t number, Role role) const {
  Opening what = opening_for({services_->rank, opening.scope, number, role});
  what.peer = -1;
  what.memory = {};
  what.quiet = false;
  return what;
}

ChannelEnd& WindowCore::admit(const ChannelKey& key, const std::shared_ptr<const Piece>& piece) {
  auto end = base::make_here<WindowEnd>(services_, opening_for(key, piece.get()), counter_words_, turns(), piece);
  WindowEnd& made = *end;
  ends[made.id] = std::move(end);
  return made;
}

void WindowCore::join_agent(const ChannelKey& key) {
  if (agent_ == nullptr) return;
  const auto is = [&](const auto& one) { return one.second->scope == key.scope; };
  const auto piece = std::ranges::find_if(pieces, is);
  const device::Extent memory = extent_of(piece == pieces.end() ? opening.memory : piece->second->memory);
  agent_->join(key, opening_for(key), {memory.data, memory.driver == nullptr ? memory.bytes : 0});
}

std::shared_ptr<const Piece> WindowCore::piece_at(std::uint64_t offset) const {
  auto found = pieces.upper_bound(offset);
  if (found == pieces.begin()) return nullptr;
  const auto& [at, piece] = *--found;
  return piece->leaves || offset - at >= piece->memory.bytes() ? nullptr : piece;
}

/// With the registry's mutex.
std::uint64_t WindowCore::place_for(std::optional<std::uint64_t> at, std::uint64_t bytes) const {
  constexpr std::uint64_t kApart = 64;
  const std::uint64_t own = opening.memory.bytes();
  std::uint64_t after = own;  // the last byte
  if (!pieces.empty()) after = pieces.rbegin()->first + pieces.rbegin()->second->memory.bytes();
  const std::uint64_t begin = at ? *at : (after + kApart - 1) / kApart * kApart;
  if (begin % sizeof(std::uint64_t) != 0) throw error(Code::bad_argument, "an offset that is not a multiple of 8");
  if (begin + bytes < begin || (!at && begin < after))
    throw error(Code::bad_argument, "there is no room behind its last byte");
  const auto next = pieces.lower_bound(begin);
  const bool overlaps_next = next != pieces.end() && next->first < begin + bytes;
  const bool overlaps_last =
      next != pieces.begin() && std::prev(next)->first + std::prev(next)->second->memory.bytes() > begin;
  if (begin < own || overlaps_next || overlaps_last) {
    throw error(Code::bad_argument,
                std::to_string(bytes) + " bytes at offset " + std::to_string(begin) + " overlap others of the window");
  }
  return begin;
}

std::uint64_t WindowCore::attach(std::optional<std::uint64_t> at, Slice memory) {
  memory = detail::SliceAccess::own(std::move(memory));
  if (const std::string why = why_no_window(memory); !why.empty()) throw error(Code::bad_argument, why);
  if (!all_map(memory)) need_agent();
  const device::GpuId gpu = gpu_of(memory);  // no call of a driver with the mutex
  const std::lock_guard lock(services_->registry.mutex());
  if (closing) throw error(Code::misuse, "the window is closed here");
  const std::uint64_t begin = place_for(at, memory.bytes());
  auto piece =
      std::make_shared<Piece>(Piece{begin, std::move(memory), scope_of_handle + as_bytes(++attached_), false, gpu});
  services_->registry.add_piece(*this, *piece);
  pieces[begin] = std::move(piece);
  return begin;
}

void WindowCore::detach(std::uint64_t at, std::optional<Timeout> timeout) {
  const Timeout stated = timeout.value_or(services_->limits.connect);
  base::Limit limit(stated);
  std::shared_ptr<Piece> piece;
  {
    const std::lock_guard lock(services_->registry.mutex());
    const auto found = pieces.find(at);
    if (found == pieces.end()) throw error(Code::bad_argument, "nothing was attached at offset " + std::to_string(at));
    piece = found->second;
  }
  if (services_->registry.detach(*this, *piece, limit)) {
    if (agent_ != nullptr) services_->engine.between_answers([] {});  // it may answer a target whose rank is lost
    return;
  }
  throw error(Code::timeout, "not detached after " + base::duration_text(stated) + ": peers still use the bytes");
}

CounterEnd& WindowCore::counter(std::uint32_t number) {
  if (number >= opening.counters) {
    throw error(Code::bad_argument,
                "there is no counter " + std::to_string(number) + " among " + std::to_string(opening.counters));
  }
  std::atomic<CounterEnd*>& used = used_counters_[number];
  if (CounterEnd* const end = used.load(std::memory_order_acquire)) return *end;
  if (closing) throw error(Code::misuse, "the window is closed here");
  auto end =
      base::make_here<CounterEnd>(services_, opening_alone(number, Role::counter), counter_words_.signal(number));
  CounterEnd& first = services_->registry.open_alone(*this, end);
  used.store(&first, std::memory_order_release);
  return first;
}

NoticeEnd& WindowCore::notices() {
  if (closed_) throw error(Code::misuse, "the window is closed here");
  return *notice_end;
}

ChannelEnd& WindowCore::admit_notices(const ChannelKey& key) { return notice_end->admit(opening_for(key), key); }

void WindowCore::lose_target(const Opening& of, Code code, const std::string& what) {
  if (closing) return;  // what the owner has closed waits for no peer
  const auto cause = services_->failures.cause_of(code, what, of);
  if (!count_lost) count_lost = Loss{code, what, cause};
  notice_end->lose(of.peer, code, what);
  for (auto& [number, counter] : counters) {
    if (!counter->closing.ours) counter->lose(code, what, cause);
  }
}

void WindowCore::close(std::optional<Timeout> timeout) {
  reclaim();
  const Timeout stated = timeout.value_or(services_->limits.connect);
  base::Limit limit(stated);
  if (close_within(limit)) return;
  throw error(Code::timeout, "not closed after " + base::duration_text(stated) + ": " + what_holds_up());
}

bool WindowCore::close_within(base::Limit& limit) {
  if (closed_) return true;
  // First, while peers still count: waits that are enqueued complete.
  for (auto& [number, counter] : counters) {
    if (!counter->close_within(limit)) return false;
  }
  if (!notice_end->close_within(limit)) return false;
  // Before the targets, whose streams may wait for room for a notice.
  if (!notice_end->close_lines(limit)) return false;
  if (!services_->registry.close(*this, limit)) return false;
  if (agent_ != nullptr) agent_->stop();
  if (!notice_end->close_lines(limit)) return false;
  return closed_ = true;
}

std::string WindowCore::what_holds_up() const {
  for (const auto& [number, counter] : counters) {
    if (!counter->closed()) return "a wait for counter " + std::to_string(number) + " is enqueued";
  }
  const std::lock_guard lock(services_->registry.mutex());
  if (ends.empty()) return "the notices of its targets";
  std::string text;
  for (const auto& [number, end] : ends) text += (text.empty() ? "" : ", ") + std::to_string(end->opening.peer);
  return "its memory is still in use by ranks " + text;
}

std::string WindowCore::describe() const {
  const std::lock_guard lock(services_->registry.mutex());
  std::string text = "window '" + opening.name + "', " + std::to_string(opening.memory.bytes()) + " bytes, ";
  if (closing) return text + "closed";
  if (opening.counters != 0) text += std::to_string(opening.counters) + " counters, ";
  if (!pieces.empty()) text += std::to_string(pieces.size()) + " pieces attached, ";
  text += std::to_string(ends.size()) + (ends.size() == 1 ? " target" : " targets");
  switch (atomics()) {
    case AtomicsBy::turns: return text + "; atomics: by processors of one rank at a time, as the owner has chosen";
    case AtomicsBy::gpus: return text + "; atomics: " + backends::kByKernels;
    case AtomicsBy::owner: return text + "; atomics: by a thread of the owner, since not every rank maps the memory";
    case AtomicsBy::processors: break;
  }
  return text + "; atomics: by processors, since every rank maps the memory";
}

AtomicsBy WindowCore::atomics_in(const Slice& memory) const noexcept {
  if (extent_of(memory).driver != nullptr) return AtomicsBy::gpus;
  if (!all_map(memory)) return AtomicsBy::owner;
  return opening.atomics == AtomicsOf::targets ? AtomicsBy::turns : AtomicsBy::processors;
}

AtomicsBy WindowCore::atomics() const noexcept { return atomics_in(opening.memory); }

/// The lock, which is behind the counters; null: there is none.
base::Word* WindowCore::turns() const noexcept {
  return opening.atomics == AtomicsOf::targets ? &counter_words_.all()[opening.counters].word : nullptr;
}

namespace {

/// The content of a WindowHandle.
struct Handle {
  std::array<char, 8> magic{'S', 'l', 'u', 'i', 'c', 'e', 'W', '1'};
  std::uint64_t job = 0;
  WindowId id{};
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::int32_t rank = 0;  // of the job
  std::uint32_t unused = 0;
  std::uint64_t sum = 0;  // of all before it
};
static_assert(sizeof(Handle) == sizeof(WindowHandle));

std::uint64_t sum_of(const Handle& handle) {
  return base::hash({reinterpret_cast<const char*>(&handle), offsetof(Handle, sum)});
}

}  // namespace

WindowHandle WindowCore::handle(std::size_t offset, std::size_t bytes) const {
  const std::size_t all = opening.memory.bytes();
  if (offset > all || bytes > all - offset) {
    throw error(Code::bad_argument, std::to_string(bytes) + " bytes from offset " + std::to_string(offset) +
                                        " do not lie inside its " + std::to_string(all));
  }
  Handle handle;
  handle.job = opening.job;
  handle.id = id;
  handle.offset = offset;
  handle.bytes = bytes;
  handle.rank = services_->rank;
  handle.sum = sum_of(handle);
  WindowHandle plain;
  std::memcpy(plain.data(), &handle, sizeof handle);
  return plain;
}

std::variant<BlockOfWindow, std::string> read_handle(std::span<const std::byte> plain, std::uint64_t job) {
  Handle handle;
  if (plain.size() != sizeof handle)
    return "a handle of a window has " + std::to_string(sizeof handle) + " bytes, not " + std::to_string(plain.size());
  std::memcpy(&handle, plain.data(), sizeof handle);
  if (handle.magic != Handle().magic) return "not a handle of a window, or one of another version of Sluice";
  if (handle.sum != sum_of(handle)) return "a handle of a window that was damaged on its way";
  if (handle.job != job) return "a handle of a window of another job";
  return BlockOfWindow{handle.rank, scope_of(handle.id), {handle.offset, handle.bytes}};
}

}  // namespace sluice::runtime

namespace sluice {

using detail::usable_here;

Window& Window::operator=(Window&& other) noexcept {
  if (this != &other) runtime::abandon(std::exchange(core_, std::move(other.core_)));
  return *this;
}
Window::~Window() { runtime::abandon(core_); }

void Window::close(std::optional<Timeout> timeout) { usable_here(core_).close(timeout); }
std::size_t Window::bytes() const noexcept { return core_ == nullptr ? 0 : core_->opening.memory.bytes(); }
AtomicsBy Window::atomics() const { return usable_here(core_).atomics(); }
WindowHandle Window::handle() const { return usable_here(core_).handle(0, bytes()); }
WindowHandle Window::handle(std::size_t offset, std::size_t bytes) const {
  return usable_here(core_).handle(offset, bytes);
}
std::size_t Window::attach(Slice memory) { return usable_here(core_).attach(std::nullopt, std::move(memory)); }
void Window::attach(std::size_t at, Slice memory) { usable_here(core_).attach(at, std::move(memory)); }
void Window::detach(std::size_t at, std::optional<Timeout> timeout) { usable_here(core_).detach(at, timeout); }
std::string Window::describe() const { return usable_here(core_).describe(); }

void Window::wait(Stream stream, std::uint32_t counter, std::uint64_t count) {
  runtime::CounterEnd& end = usable_here(core_).counter(counter);
  if (!end.bound_to(stream)) end.bind_slowly(stream);
  end.wait(stream, count);
}
bool Window::wait_for(std::uint32_t counter, std::uint64_t count, Timeout timeout) {
  return usable_here(core_).counter(counter).wait_for(count, timeout);
}
std::optional<Notice> Window::match(Rank source, Tag tag, Timeout timeout) {
  base::Limit limit(timeout);
  const std::vector<Notice> matched = usable_here(core_).notices().match(source, tag, 1, limit);
  return matched.empty() ? std::nullopt : std::optional(matched.front());
}
std::size_t Window::match(Rank source, Tag tag, std::size_t count, Timeout timeout) {
  base::Limit limit(timeout);
  return usable_here(core_).notices().match(source, tag, count, limit).size();
}
std::uint64_t Window::count(std::uint32_t counter) { return usable_here(core_).counter(counter).count(); }
std::uint64_t Window::fetch_and_zero(std::uint32_t counter) { return usable_here(core_).counter(counter).take(); }

}  // namespace sluice
