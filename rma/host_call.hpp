// SPDX-License-Identifier: Apache-2.0
// How the epochs of a CollectiveWindow reach ranks, and wait.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/limit.hpp"
#include "rma/by_rank.hpp"
#include "rma/group.hpp"
#include "rma/patience.hpp"
#include "rma/peers.hpp"
#include "rma/posts.hpp"
#include "rma/signals.hpp"
#include "rma/words.hpp"

namespace sluice::rma {

/// What a collective window has open to other ranks.
struct Links {
  Links(const Group& its, Words words)
      : group(its), own(std::move(words)), patrol(its), fence(its), peers(its, own),
        posts(Context(its.context).scope(its.part("post"))) {
    patrol.watch(fence.any());
  }
  void close(base::Limit& limit);

  const Group& group;
  Words own;
  Patrol patrol;
  Fence fence;
  Peers peers;
  Scope posts;
  // With ranks that this one has met, by a post.
  ByRank<Signals> origins;
  ByRank<Signals> targets;
};

/// A `Call` of Epochs: one call of the program, which lasts no longer than its limit.
class HostCall {
 public:
  HostCall(Links& links, base::Limit& limit) : links_(links), limit_(limit) {}

  static constexpr bool kRepeats = true;

  int size() const { return links_.group.size; }
  void reach(Rank rank) { static_cast<void>(links_.peers.words(rank, limit_)); }
  /// After an error the word may yet change, before the changes that later calls make.
  std::uint64_t add(Rank rank, std::size_t offset, std::uint64_t value) {
    return links_.peers.add(rank, offset, value, limit_);
  }
  bool maps(Rank rank) { return links_.peers.maps(rank, limit_); }
  void subtract_later(Rank rank, std::size_t offset, std::uint64_t lock) {
    links_.peers.subtract(rank, offset, lock, limit_);
  }
  void compare_swap(std::span<Mark> marks, std::uint64_t value, auto made);
  std::atomic_ref<std::uint64_t> own(std::size_t offset) const { return links_.own.word(offset); }

  void await(Rank rank, const char* what, auto ready) {
    Patience patience(links_, limit_, rank, what);
    do patience.rest();
    while (!ready());
  }

  void flush(Rank rank) { links_.peers.flush(rank, limit_); }
  void flush_all() { links_.peers.flush_all(limit_); }
  void meet() { links_.fence.pass(limit_, &links_.patrol); }

  /// A channel blocks its first put until the peer has opened its end, which an origin does in `start`, and `post` may
  /// not wait for that. So the first post of a pair is a mark, and the others are signals.
  bool signal_post(Rank origin) {
    return if_met(links_.origins, origin, [this](Signals& with) { with.signal(limit_); });
  }
  bool take_post(Rank target) {
    return if_met(links_.targets, target, [this](Signals& with) { take(with, "a target has not called post"); });
  }
  void met_origin(Rank origin) { links_.origins.set(origin, open(origin, kPost, kComplete)); }
  void met_target(Rank target) { links_.targets.set(target, open(target, kComplete, kPost)); }
  void signal_complete(Rank target) { met(links_.targets, target).signal(limit_); }
  void take_complete(Rank origin) { take(met(links_.origins, origin), "an origin has not called complete"); }
  bool take_complete_now(Rank origin) { return met(links_.origins, origin).take_now(); }

  [[noreturn]] void misuse(const std::string& what, Rank rank = -1) const {
    throw links_.group.error(Code::misuse, what, rank);
  }

 private:
  static constexpr Tag kPost = 0;
  static constexpr Tag kComplete = 1;
  Signals open(Rank rank, Tag out, Tag in) { return Signals::open(links_.posts, links_.group, rank, out, rank, in); }
  void take(Signals& from, const char* what) { from.take(links_.group, limit_, &links_.patrol, what); }
  Signals& met(ByRank<Signals>& all, Rank rank) const {
    Signals* const with = all.find(rank);
    if (with == nullptr) misuse("its signals were not opened, as an earlier error said", rank);
    return *with;
  }
  static bool if_met(auto& all, Rank rank, auto work) {
    Signals* const met = all.find(rank);
    if (met != nullptr) work(*met);
    return met != nullptr;
  }

  Links& links_;
  base::Limit& limit_;
};

void HostCall::compare_swap(std::span<Mark> marks, std::uint64_t value, auto made) {
  while (!marks.empty()) {
    const auto some = marks.first(std::min(at::kPostCount, marks.size()));
    for (const Mark& mark : some) reach(mark.origin);  // first: this may run out of time
    for (std::size_t i = 0; i < some.size(); ++i) {    // their messages are under way together
      const Slice old = links_.own.slice(at::kOlds + i * kWord, kWord);
      links_.peers.words(some[i].origin, limit_).compare_swap({}, some[i].place, 0, value, old);
    }
    for (std::size_t i = 0; i < some.size(); ++i) {
      Target& words = links_.peers.words(some[i].origin, limit_);
      in_steps(limit_, [&](Timeout step) { words.drain(step); });
      const std::uint64_t before = own(at::kOlds + i * kWord).load();
      if (before == 0 || before == value) made(some[i]);  // `value`: by a call that ran out of time
    }
    marks = marks.subspan(some.size());
  }
}

}  // namespace sluice::rma
