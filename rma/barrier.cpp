// SPDX-License-Identifier: Apache-2.0
#include "rma/barrier.hpp"

#include "rma/signal.hpp"

namespace sluice::rma {

namespace {

// A rank is at most one barrier ahead of the next. Over a network, credits come milliseconds later.
constexpr int kDepth = 64;

}  // namespace

Barrier::Barrier(const Group& group) : group_(group) {
  Scope scope = Context(group.context).scope(group.part("fence"));
  Tag tag = 0;
  for (int distance = 1; distance < group.size; distance *= 2, ++tag) {
    const ChannelOptions options{.depth = kDepth, .name = group.name};
    Sender out = scope.sender((group.rank + distance) % group.size, tag, {}, options);
    Receiver in = scope.receiver((group.rank - distance + group.size) % group.size, tag, {}, options);
    rounds_.push_back({std::move(out), std::move(in)});
  }
}

void Barrier::connect(base::Limit& limit) {
  for (Round& round : rounds_) {
    for (ChannelHandle* const end : {static_cast<ChannelHandle*>(&round.out), static_cast<ChannelHandle*>(&round.in)}) {
      if (end->connected()) continue;
      static_cast<void>(limit.over());
      end->wait_connected(limit.left());
    }
  }
}

void Barrier::pass(base::Limit& limit, Patrol* patrol) {
  for (; round_ < rounds_.size(); ++round_, signalled_ = false) {
    Round& round = rounds_[round_];
    if (!signalled_) round.out.put({});
    signalled_ = true;
    take_signal(round.in, group_, limit, patrol, "not every rank has called it");
  }
  round_ = 0;
}

void Barrier::close(base::Limit& limit) {
  for (Round& round : rounds_) {
    static_cast<void>(limit.over());
    round.out.close(limit.left());
    round.in.close(limit.left());
  }
}

}  // namespace sluice::rma
