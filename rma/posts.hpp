// SPDX-License-Identifier: Apache-2.0
// Epochs between groups of ranks. `post` and `complete` are signals from a target to an origin, and back. A channel
// cannot carry the first `post` of a pair: it blocks until the origin opens its end, in `start`, and `post` may not
// wait for that. So the first is a mark in a list in the origin's page.
#pragma once

#include <sluice/channel.hpp>
#include <sluice/context.hpp>

#include <cstddef>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/limit.hpp"
#include "rma/group.hpp"
#include "rma/patience.hpp"
#include "rma/peers.hpp"
#include "rma/words.hpp"

namespace sluice::rma {

class Posts {
 public:
  Posts(const Group& group, Words own, Peers& peers, Patrol& patrol);

  bool posted() const noexcept { return posted_; }
  bool started() const noexcept { return started_; }

  // After Error{Code::timeout}, all of them go on where they were when they are called again.
  void post(std::span<const Rank> origins, base::Limit& limit);
  void start(std::span<const Rank> targets, base::Limit& limit);
  void complete(base::Limit& limit);
  void wait(base::Limit& limit);
  bool test();
  void close(base::Limit& limit);

 private:
  /// The channels with a rank for which this one is a target, or an origin.
  struct Pair {
    Sender out;
    Receiver in;
  };
  using Pairs = std::unordered_map<Rank, Pair>;
  /// A first post under way.
  struct First {
    Rank origin = 0;
    std::size_t attempts = 0;  ///< places in the origin's list
  };
  void check_group(std::span<const Rank> ranks) const;
  Pair open(Rank rank, Tag out, Tag in);
  void post_first(std::vector<First> left, base::Limit& limit);
  void try_places(std::span<First> firsts, base::Limit& limit);
  bool is_marked(Rank target, bool remove);
  void await_first(Rank target, base::Limit& limit);
  void await_post(Rank target, base::Limit& limit);
  void check_posted(const char* verb) const;

  const Group& group_;
  Words own_;
  Peers& peers_;
  Patrol& patrol_;
  Scope scope_;

  Pairs origins_;
  std::vector<Rank> exposed_to_;
  std::size_t completed_ = 0;      // of these origins
  std::unordered_set<Rank> told_;  // origins, by a `post` that ran out of time
  bool posted_ = false;

  Pairs targets_;
  std::vector<Rank> accessed_;
  std::size_t ended_ = 0;             // of these targets, by `complete`
  std::unordered_set<Rank> arrived_;  // posts that a `start` has taken which ran out of time
  bool started_ = false;
};

}  // namespace sluice::rma
