// SPDX-License-Identifier: Apache-2.0
// How a rank waits for a word that no one wakes it for, and notices that what it waits for cannot come.
#pragma once

#include <sluice/channel.hpp>
#include <sluice/error.hpp>

#include "base/limit.hpp"
#include "base/waits.hpp"
#include "rma/group.hpp"
#include "rma/rest.hpp"

namespace sluice::rma {

/// `in_steps` with a limit that ends.
[[gnu::noinline]] void in_some_steps(base::Limit& limit, auto wait) {
  do {
    try {
      wait(limit.step());
      limit.over();  // so that later waits have less time
      return;
    } catch (const Error& error) {
      if (error.code() != Code::timeout) throw;
    }
  } while (!limit.over());
  wait(Timeout::zero());
}
/// Calls `wait(step)`, which may be called again after Error{Code::timeout}, until it returns or the limit ends. So
/// several waits with one limit take no longer than that.
void in_steps(base::Limit& limit, auto wait) {
  if (limit.left() == Timeout::max()) return wait(Timeout::max());
  in_some_steps(limit, wait);
}

/// Looks at all ranks, one after the other, in waits that last: a rank may wait for one that waits for one that died.
/// It keeps a target of one rank at a time.
class Patrol {
 public:
  explicit Patrol(const Group& group) : group_(group), next_(group.rank) {}
  /// Names an end that was opened before any wait: an abort fails what is open then, not what is opened later.
  void watch(const ChannelHandle* oldest) noexcept { oldest_ = oldest; }
  /// @throws Error the end of the job
  void check_job() const;
  /// Call it every `kPeriod` or so. @throws Error the loss of a rank, or the end of the job
  void look();

  static constexpr auto kBegin = std::chrono::milliseconds(500);
  static constexpr auto kPeriod = std::chrono::milliseconds(20);

 private:
  static constexpr int kLooks = 50;  ///< at a rank that does not answer

  const Group& group_;
  const ChannelHandle* oldest_ = nullptr;
  Rank next_;
  Target target_;
  int looks_ = 0;
  bool closing_ = false;
};

struct Links;

/// One wait. Between two looks at a word, the caller calls `rest`.
class Patience {
 public:
  /// `suspect`: the rank whose next step it waits for. `what`: what has not happened, for people.
  Patience(Links& links, base::Limit& limit, Rank suspect, const char* what)
      : links_(links), limit_(limit), suspect_(suspect), what_(what) {}

  /// Spins a little, then yields, then sleeps, longer each time.
  /// @throws Error{Code::timeout} after the limit; the loss of the suspect, or after some time of any rank
  void rest();

 private:
  void nap();
  void note();

  Links& links_;
  base::Limit& limit_;
  Rank suspect_;
  const char* what_;
  Rest rest_{0};
  bool yields_ = true;
  base::Clock::time_point last_look_;
  base::WaitNote note_;
};

}  // namespace sluice::rma
