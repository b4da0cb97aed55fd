// SPDX-License-Identifier: Apache-2.0
#include "runtime/notices.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "runtime/cores.hpp"
#include "runtime/line.hpp"

namespace sluice::runtime {
namespace {

using detail::ChannelAccess;
using detail::core_of;
using detail::ReceiverCore;
using detail::SenderCore;

constexpr std::string_view kOfNotices = "@notices:";

bool matches(Rank given, Rank wanted) { return wanted == kAnySource || given == wanted; }

}  // namespace

std::string scope_of_notices(const std::string& scope_of_handle) { return std::string(kOfNotices) + scope_of_handle; }

std::string handle_of_notices(const std::string& scope) {
  return scope.starts_with(kOfNotices) ? scope.substr(kOfNotices.size()) : std::string();
}

NoticeSender::NoticeSender(ChannelEnd& target, const Opening& of, const std::string& scope)
    : out_(open_line<Sender, SenderCore>(
          target.own_services(), line_opening(target.own_services(), of,
                                              {of.key.world_peer, scope_of_notices(scope), of.key.tag, Role::sender},
                                              NoticeRecord::kDepth, sizeof(NoticeRecord)))) {}

template <class Work>
void NoticeSender::as_target(Work work) const {
  auto& core = static_cast<SenderCore&>(*ChannelAccess::end(out_));
  try {
    work(core);
  } catch (const Error& reason) {
    if (reason.code() != Code::misuse) throw;
    throw core.error(Code::closed, 0, "the owner has closed the window, and takes no more notices");
  }
}

void NoticeSender::send(device::Lane lane, const NoticeRecord& record) {
  as_target([&](SenderCore& core) {
    std::byte* const slot = lane.gpu == nullptr ? out_.acquire({}).data() : core.free_slot(lane);
    core.check();  // a put that has not run may read a slot that did not become free
    std::memcpy(slot, &record, sizeof record);
    core.put_on(lane);
    core.check();
  });
}

void NoticeSender::use_on(Stream stream) {
  as_target([&](SenderCore& core) {
    if (!core.bound_to(stream)) core.bind_slowly(stream);
    core.check();
  });
}

void NoticeSender::check() const {
  as_target([](const SenderCore& core) { core.check(); });
}

const void* NoticeSender::in_order() const noexcept { return ChannelAccess::end(out_)->puts_in_order(); }

ChannelEnd& NoticeEnd::admit(const Opening& of, const ChannelKey& key) {
  const std::lock_guard lock(mutex_);
  fresh_.reserve(fresh_.size() + 1);  // first: once made, the end must not be destroyed here
  auto core = base::make_here<ReceiverCore>(
      own_services(), line_opening(own_services(), of, key, NoticeRecord::kDepth, sizeof(NoticeRecord)),
      services().registry.word_of(key.world_peer, Standing::alone));
  ReceiverCore& made = *core;
  fresh_.push_back({ChannelAccess::make<Receiver>(std::move(core)), of.peer});
  call();
  return made;
}

NoticeEnd::NoticeEnd(std::shared_ptr<const Services> services, Opening what)
    : ChannelEnd(std::move(services), std::move(what)),
      call_(this->services().registry.take_word(this->services().rank, Standing::together)) {}

NoticeEnd::~NoticeEnd() { services().registry.give_back_word(services().rank, call_); }

void NoticeEnd::call() noexcept {
  any_fresh_.store(true, std::memory_order_release);
  call_.parking->wake();
}

void NoticeEnd::lose(Rank source, Code code, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (!lost_.insert(source).second) return;
  fresh_losses_.push_back({source, code, what});
  call();
}

void NoticeEnd::take_fresh() {
  if (!any_fresh_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  for (Line& line : fresh_) lines_.push_back(std::move(line));
  losses_.insert(losses_.end(), fresh_losses_.begin(), fresh_losses_.end());
  fresh_.clear();
  fresh_losses_.clear();
  any_fresh_.store(false, std::memory_order_relaxed);
}

void NoticeEnd::take_from(Line& line) {
  ReceiverCore& core = core_of(line.in);
  while (!core.failed() && core.may_take() && !core.all_taken()) {
    std::optional<Slice> slot;
    try {
      slot = core.wait_for(Timeout::zero());
    } catch (const Error&) {  // the target has failed: `lose` reports that
      return;
    }
    if (!slot) return;
    NoticeRecord record;
    std::memcpy(&record, slot->data(), sizeof record);
    seen_.push_back({{line.source, static_cast<Tag>(record.tag), record.offset, record.bytes}, &line});
  }
}

std::optional<Notice> NoticeEnd::take(Rank source, Tag tag) {
  for (Line& line : lines_) take_from(line);
  const auto found = std::ranges::find_if(seen_, [&](const Seen& one) {
    return matches(one.notice.source, source) && (tag == kAnyTag || one.notice.tag == tag);
  });
  if (found == seen_.end()) return std::nullopt;
  const Seen one = *found;
  seen_.erase(found);
  try {
    one.line->in.release({});
  } catch (const Error&) {  // the target has failed, and needs no credit
    return one.notice;
  }
  return one.notice;
}

/// The death of a rank is thrown by each call that waits for that rank alone.
void NoticeEnd::throw_loss(Rank source) {
  const auto is_news = [&](const Loss& one) {
    return matches(one.source, source) && (!one.told || (source != kAnySource && one.code == Code::peer_lost));
  };
  const auto found = std::ranges::find_if(losses_, is_news);
  if (found == losses_.end()) return;
  found->told = true;
  throw Error(found->code, opening.rank, found->source, 0, 0,
              "window '" + opening.name + "': a target of this rank gives no notices any more: " + found->what);
}

/// Lines whose targets have closed or failed, and whose notices are all matched.
void NoticeEnd::drop_used_up() {
  std::erase_if(lines_, [this](const Line& line) {
    const auto has = [&](const Seen& one) { return one.line == &line; };
    const ReceiverCore& core = core_of(line.in);
    return (core.failed() || core.all_taken()) && std::ranges::none_of(seen_, has);
  });
}

std::vector<base::Parking*> NoticeEnd::places() const {
  std::vector<base::Parking*> all{call_.parking};
  for (const Line& line : lines_) core_of(line.in).add_places(all);
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::vector<Notice> NoticeEnd::match(Rank source, Tag tag, std::size_t count, base::Limit& limit) {
  check_free();
  Warning warning = new_warning(0, "matches");
  std::vector<Notice> matched;
  for (;;) {
    if (matched.empty()) check();
    take_fresh();
    while (matched.size() < count) {
      const auto notice = take(source, tag);
      if (!notice) break;
      matched.push_back(*notice);
    }
    if (matched.size() == count || (failed() && !matched.empty())) return matched;
    if (matched.empty()) throw_loss(source);  // else the next call throws it
    drop_used_up();
    const auto comes = [](const Line& line) {
      ReceiverCore& core = core_of(line.in);
      return !core.failed() && core.may_take() && !core.all_taken();
    };
    const auto ready = [&] { return failed() || any_fresh_.load() || std::ranges::any_of(lines_, comes); };
    const std::vector<base::Parking*> all = places();
    if (!await_in_host(std::span(all), ready, limit, warning)) return matched;
  }
}

bool NoticeEnd::close_lines(base::Limit& limit) {
  take_fresh();
  seen_.clear();
  std::erase_if(lines_, [&](const Line& line) { return core_of(line.in).close_within(limit); });
  return lines_.empty();
}

std::string NoticeEnd::state() const { return std::to_string(seen_.size()) + " notices are not matched"; }

}  // namespace sluice::runtime
