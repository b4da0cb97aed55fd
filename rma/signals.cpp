// SPDX-License-Identifier: Apache-2.0
#include "rma/signals.hpp"

#include <algorithm>
#include <utility>

namespace sluice::rma {

namespace {

constexpr int kLooks = 400;  // before a wait that can sleep, as many as base::wait_until has without a pause

void connect(ChannelHandle& end, base::Limit& limit) {
  if (!end.connected()) in_steps(limit, [&](Timeout step) { end.wait_connected(step); });
}

}  // namespace

/// Over a network, credits come milliseconds later, so there are plenty.
Signals Signals::open(Scope& scope, const Group& group, Rank to, Tag out, Rank from, Tag in) {
  const ChannelOptions options{.depth = 4 * kReleased, .name = group.name};
  Sender sender = scope.sender(to, out, {}, options);
  return Signals(std::move(sender), scope.receiver(from, in, {}, options));
}

void Signals::signal(base::Limit& limit) {
  if (!reached_) connect(out, limit);  // else the put waits, for as long as the context does
  reached_ = true;
  out.put({});
}

bool Signals::take_now() {
  if (!in.test()) return false;
  taken();
  return true;
}

void Signals::taken() {
  if (++unreleased_ < kReleased) return;
  in.release({}, unreleased_);
  unreleased_ = 0;
}

void Signals::take(const Group& group, base::Limit& limit, Patrol* patrol, const char* what) {
  for (int looks = 0; looks < kLooks; ++looks) {
    if (take_now()) return;
    if (limit.left() == Timeout::zero()) break;
  }
  for (Timeout step = Patrol::kBegin;; step = Patrol::kPeriod) {
    if (limit.over()) throw group.error(Code::timeout, what, in.peer());
    if (in.wait_for(std::min<Timeout>(limit.left(), step))) return taken();
    if (in.closed()) throw group.error(Code::peer_lost, "the rank has left", in.peer());
    if (patrol != nullptr) patrol->look();
  }
}

void Signals::close(base::Limit& limit) {
  in_steps(limit, [&](Timeout step) { out.close(step); });
  in_steps(limit, [&](Timeout step) { in.close(step); });
}

Fence::Fence(const Group& group) : group_(group), barrier_(group.rank, group.size) {
  Scope scope = Context(group.context).scope(group.part("fence"));
  for (int round = 0; round < barrier_.rounds(); ++round) {
    const auto tag = static_cast<Tag>(round);
    rounds_.push_back(Signals::open(scope, group, barrier_.to(round), tag, barrier_.from(round), tag));
  }
}

void Fence::connect(base::Limit& limit) {
  for (Signals& round : rounds_) {
    rma::connect(round.out, limit);
    rma::connect(round.in, limit);
  }
}

void Fence::pass(base::Limit& limit, Patrol* patrol) {
  const auto of = [&](int round) -> Signals& { return rounds_[static_cast<std::size_t>(round)]; };
  barrier_.pass([&](int round) { of(round).signal(limit); },
                [&](int round) { of(round).take(group_, limit, patrol, "not every rank has called it"); });
}

void Fence::close(base::Limit& limit) {
  for (Signals& round : rounds_) round.close(limit);
}

}  // namespace sluice::rma
