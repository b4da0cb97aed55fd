// SPDX-License-Identifier: Apache-2.0
#include "rma/posts.hpp"

#include <algorithm>
#include <string>

#include "rma/signal.hpp"

namespace sluice::rma {

namespace {

constexpr Tag kPostTag = 0;
constexpr Tag kCompleteTag = 1;

/// The place in a list that a target tries after so many others. In a context of up to kPostCount ranks the first is
/// its own.
std::size_t place_of(Rank target, std::size_t attempts) {
  return at::kPosts + (static_cast<std::size_t>(target) + attempts) % at::kPostCount * kWord;
}

/// The mark of a target there.
std::uint64_t mark_of(Rank target) { return static_cast<std::uint64_t>(target) + 1; }

}  // namespace

Posts::Posts(const Group& group, Words own, Peers& peers, Patrol& patrol)
    : group_(group), own_(std::move(own)), peers_(peers), patrol_(patrol),
      scope_(Context(group.context).scope(group.part("post"))) {}

void Posts::check_group(std::span<const Rank> ranks) const {
  for (const Rank rank : ranks) peers_.check_rank(rank);
  if (ranks.size() < 2) return;
  std::vector<Rank> sorted(ranks.begin(), ranks.end());
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice != sorted.end())
    throw group_.error(Code::bad_argument, "a group names rank " + std::to_string(*twice) + " twice", *twice);
}

Posts::Pair Posts::open(Rank rank, Tag out, Tag in) {
  const ChannelOptions options = signal_options(group_);
  Sender sender = scope_.sender(rank, out, {}, options);
  return {std::move(sender), scope_.receiver(rank, in, {}, options)};
}

void Posts::post(std::span<const Rank> origins, base::Limit& limit) {
  check_group(origins);
  if (posted_) throw group_.error(Code::misuse, "post before the wait of the last one");
  std::vector<First> firsts;
  for (const Rank origin : origins) {
    if (told_.contains(origin)) continue;
    if (const auto known = origins_.find(origin); known != origins_.end()) {
      known->second.out.put({});
      told_.insert(origin);  // the others may run out of time
    } else {
      firsts.push_back({origin});
    }
  }
  if (!firsts.empty()) post_first(std::move(firsts), limit);
  told_.clear();
  exposed_to_.assign(origins.begin(), origins.end());
  completed_ = 0;
  posted_ = true;
}

void Posts::post_first(std::vector<First> left, base::Limit& limit) {
  Patience patience(group_, peers_, patrol_, limit, {}, "the list of posts at an origin is full");
  for (std::size_t rounds = 0; !left.empty(); ++rounds) {
    if (rounds != 0 && rounds % at::kPostCount == 0) patience.rest();
    for (std::size_t i = 0; i < left.size(); i += at::kPostCount)
      try_places(std::span(left).subspan(i, std::min(at::kPostCount, left.size() - i)), limit);
    std::erase_if(left, [&](const First& one) { return told_.contains(one.origin); });
  }
}

/// Each of them tries one place. Their messages are under way together.
void Posts::try_places(std::span<First> firsts, base::Limit& limit) {
  const auto old_of = [&](std::size_t i) { return own_.slice(at::kOlds + i * kWord, kWord); };
  for (const First& one : firsts)
    static_cast<void>(peers_.words(one.origin, limit));  // first: this may run out of time
  for (std::size_t i = 0; i < firsts.size(); ++i) {
    const std::size_t place = place_of(group_.rank, firsts[i].attempts++);
    peers_.words(firsts[i].origin, limit).compare_swap({}, place, 0, mark_of(group_.rank), old_of(i));
  }
  for (std::size_t i = 0; i < firsts.size(); ++i) {
    const Rank origin = firsts[i].origin;
    peers_.words(origin, limit).flush({});
    if (own_.word(at::kOlds + i * kWord).load() != 0) continue;
    told_.insert(origin);
    origins_[origin] = open(origin, kPostTag, kCompleteTag);
  }
}

/// True if the mark of the target is in the list of this rank. If so, `remove` takes it out.
bool Posts::is_marked(Rank target, bool remove) {
  const std::size_t places = static_cast<std::size_t>(group_.size) <= at::kPostCount ? 1 : at::kPostCount;
  for (std::size_t attempts = 0; attempts < places; ++attempts) {
    const auto word = own_.word(place_of(target, attempts));
    if (word.load(std::memory_order_acquire) != mark_of(target)) continue;
    if (remove) word.store(0, std::memory_order_release);
    return true;
  }
  return false;
}

void Posts::await_first(Rank target, base::Limit& limit) {
  peers_.words(target, limit);  // so that its loss is noticed
  Patience patience(group_, peers_, patrol_, limit, std::span(&target, 1), "a target has not called post");
  while (!is_marked(target, true)) patience.rest();
  targets_[target] = open(target, kCompleteTag, kPostTag);
}

void Posts::await_post(Rank target, base::Limit& limit) {
  if (!arrived_.empty() && arrived_.contains(target)) return;
  const auto known = targets_.find(target);
  if (known == targets_.end()) return await_first(target, limit);
  take_signal(known->second.in, group_, limit, &patrol_, "a target has not called post");
}

void Posts::start(std::span<const Rank> targets, base::Limit& limit) {
  check_group(targets);
  if (started_) throw group_.error(Code::misuse, "start before the complete of the last one");
  std::size_t arrived = 0;
  try {
    for (; arrived < targets.size(); ++arrived) await_post(targets[arrived], limit);
  } catch (...) {
    arrived_.insert(targets.begin(), targets.begin() + static_cast<std::ptrdiff_t>(arrived));
    throw;
  }
  if (!arrived_.empty())
    for (const Rank target : targets) arrived_.erase(target);
  accessed_.assign(targets.begin(), targets.end());
  ended_ = 0;
  started_ = true;
}

void Posts::complete(base::Limit& limit) {
  if (!started_) throw group_.error(Code::misuse, "complete without start");
  for (const Rank target : accessed_) peers_.flush(target, limit);
  for (; ended_ < accessed_.size(); ++ended_) targets_.at(accessed_[ended_]).out.put({});
  started_ = false;
}

void Posts::check_posted(const char* verb) const {
  if (!posted_) throw group_.error(Code::misuse, std::string(verb) + " without post");
}

void Posts::wait(base::Limit& limit) {
  check_posted("wait");
  for (; completed_ < exposed_to_.size(); ++completed_)
    take_signal(origins_.at(exposed_to_[completed_]).in, group_, limit, &patrol_, "an origin has not called complete");
  posted_ = false;
}

bool Posts::test() {
  check_posted("test");
  for (; completed_ < exposed_to_.size(); ++completed_)
    if (!take_signal_now(origins_.at(exposed_to_[completed_]).in)) return false;
  posted_ = false;
  return true;
}

void Posts::close(base::Limit& limit) {
  for (Pairs* const pairs : {&origins_, &targets_}) {
    for (auto& [rank, pair] : *pairs) {
      static_cast<void>(limit.over());
      pair.out.close(limit.left());
      pair.in.close(limit.left());
    }
  }
}

}  // namespace sluice::rma
