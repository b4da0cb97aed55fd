// SPDX-License-Identifier: Apache-2.0
// Channels without bytes, whose puts are signals: they wake a rank that sleeps, and fail if the peer is lost.
#pragma once

#include <sluice/channel.hpp>
#include <sluice/context.hpp>

#include <cstddef>
#include <utility>
#include <vector>

#include "base/limit.hpp"
#include "rma/barrier.hpp"
#include "rma/group.hpp"
#include "rma/patience.hpp"

namespace sluice::rma {

/// A channel to a rank, and one from a rank.
class Signals {
 public:
  Signals(Sender to, Receiver from) : out(std::move(to)), in(std::move(from)) {}

  Sender out;
  Receiver in;

  static Signals open(Scope& scope, const Group& group, Rank to, Tag out, Rank from, Tag in);
  /// Blocks until the peer has opened its end, up to the limit.
  void signal(base::Limit& limit);
  /// Waits for the next signal. `patrol`: null: ranks may leave, since this one is late. `what`: what has not happened,
  /// for people.
  void take(const Group& group, base::Limit& limit, Patrol* patrol, const char* what);
  /// Takes the next signal if it is here.
  bool take_now();
  void close(base::Limit& limit);

 private:
  /// A quarter of the credits, so that the others last while these travel.
  static constexpr std::size_t kReleased = 16;

  /// Releases signals together, which saves the peer a cache miss for each of them.
  void taken();

  bool reached_ = false;  // the peer has opened its end of `out`
  std::size_t unreleased_ = 0;
};

/// The signals of a barrier.
class Fence {
 public:
  explicit Fence(const Group& group);

  void connect(base::Limit& limit);
  /// One of its ends; null: there is none.
  const ChannelHandle* any() const noexcept { return rounds_.empty() ? nullptr : &rounds_.front().out; }
  /// Returns when all ranks have called it as often. After Error{Code::timeout} it may be called again.
  void pass(base::Limit& limit, Patrol* patrol);
  void close(base::Limit& limit);

 private:
  const Group& group_;
  Barrier barrier_;
  std::vector<Signals> rounds_;
};

}  // namespace sluice::rma
