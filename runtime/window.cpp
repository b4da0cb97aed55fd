// SPDX-License-Identifier: Apache-2.0
#include "runtime/window.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/text.hpp"
#include "peers/bootstrap.hpp"
#include "runtime/handles.hpp"
#include "runtime/kept.hpp"
#include "runtime/registry.hpp"

namespace sluice::runtime {
namespace {

/// No name of a window, in any scope, gives this one (see `inside` in context.cpp).
constexpr std::string_view kByHandle = "@handle:";

/// Memory that a peer's key opens.
class OfferLanding final : public backends::Landing {
 public:
  OfferLanding(std::string how, std::shared_ptr<const void> kept) : Landing(std::move(how)), kept_(std::move(kept)) {}

 private:
  std::shared_ptr<const void> kept_;
};

}  // namespace

std::string scope_of(const WindowId& id) {
  std::string scope(kByHandle);
  return scope.append(reinterpret_cast<const char*>(id.data()), id.size());
}

bool is_scope_of_handle(std::string_view scope) { return scope.starts_with(kByHandle); }

backends::Key WindowEnd::open_landing(backends::Link& link, std::vector<backends::Signal>) {
  backends::Offer offer = link.offer(extent_of(opening.memory), counters_);
  landing_ = std::make_unique<OfferLanding>(offer.how, std::move(offer.kept));
  return std::move(offer.key);
}

std::string text_of(const WindowFacts& facts) {
  return (facts.by_agent ? 'a' : 'p') + std::to_string(facts.counters) + ' ' + facts.scope;
}

WindowFacts facts_of(std::string_view text) {
  const std::size_t end = text.find(' ');
  if (end == std::string_view::npos) return {};
  WindowFacts facts{text.front() == 'a', 0, std::string(text.substr(end + 1))};
  std::from_chars(text.data() + 1, text.data() + end, facts.counters);
  return facts;
}

WindowCore::WindowCore(std::shared_ptr<const Services> services, WindowOpening what)
    : opening(std::move(what)), id(new_secret()), scope_of_handle(scope_of(id)), services_(std::move(services)),
      counter_words_(opening.counters) {
  const device::Extent memory = extent_of(opening.memory);
  using Maps = backends::Transport::Maps;
  if (services_->maps != Maps::process && (services_->maps != Maps::host || memory.segment == nullptr))
    agent_ = std::make_unique<Agent>(services_, std::span(memory.data, memory.bytes), counter_words_.all());
  notice_end = base::make_here<NoticeEnd>(services_, opening_alone(0, Role::notices));
}

Error WindowCore::error(Code code, const std::string& what) const {
  return {code, opening.rank, -1, 0, 0, "window '" + opening.name + "': " + what};
}

Opening WindowCore::opening_for(const ChannelKey& key) const {
  const auto& ranks = opening.ranks;
  const auto found = std::find(ranks.begin(), ranks.end(), key.world_peer);
  Rank peer = ranks.empty() ? key.world_peer : -1;  // of another context, by a handle
  if (found != ranks.end()) peer = static_cast<Rank>(found - ranks.begin());
  return {key,
          opening.rank,
          peer,
          opening.memory,
          ChannelOptions{},
          opening.name,
          text_of({agent_ != nullptr, opening.counters, scope_of_handle}),
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

ChannelEnd& WindowCore::admit(const ChannelKey& key) {
  auto end = base::make_here<WindowEnd>(services_, opening_for(key), counter_words_.extent());
  WindowEnd& made = *end;
  ends[made.id] = std::move(end);
  return made;
}

void WindowCore::join_agent(const ChannelKey& key) {
  if (agent_ != nullptr) agent_->join(key, opening_for(key));
}

CounterEnd& WindowCore::counter(std::uint32_t number) {
  if (number >= opening.counters) {
    throw error(Code::bad_argument,
                "there is no counter " + std::to_string(number) + " among " + std::to_string(opening.counters));
  }
  if (const auto found = counters.find(number); found != counters.end()) return *found->second;
  if (closing) throw error(Code::misuse, "the window is closed here");
  auto end =
      base::make_here<CounterEnd>(services_, opening_alone(number, Role::counter), counter_words_.signal(number));
  services_->registry.open_alone(*this, end);
  return *end;
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
  return text + std::to_string(ends.size()) + (ends.size() == 1 ? " target" : " targets") + "; atomics: by " +
         (agent_ == nullptr ? "processors, since every rank maps the memory"
                            : "a thread of the owner, since not every rank maps the memory");
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
WindowHandle Window::handle() const { return usable_here(core_).handle(0, bytes()); }
WindowHandle Window::handle(std::size_t offset, std::size_t bytes) const {
  return usable_here(core_).handle(offset, bytes);
}
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
