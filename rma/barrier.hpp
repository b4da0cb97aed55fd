// SPDX-License-Identifier: Apache-2.0
// A dissemination barrier on channels: in round k each rank signals the one 2^k after it, and waits for the one 2^k
// before it. After the last round it has a signal from each rank, directly or through others.
#pragma once

#include <sluice/channel.hpp>

#include <cstddef>
#include <vector>

#include "base/limit.hpp"
#include "rma/group.hpp"
#include "rma/patience.hpp"

namespace sluice::rma {

class Barrier {
 public:
  explicit Barrier(const Group& group);

  void connect(base::Limit& limit);
  /// One of its ends; null: there is none.
  const ChannelHandle* any() const noexcept { return rounds_.empty() ? nullptr : &rounds_.front().out; }
  /// Returns when all ranks have called it as often. After Error{Code::timeout} it may be called again, and goes on
  /// where it was. `patrol`: null: ranks that are far ahead may have left.
  void pass(base::Limit& limit, Patrol* patrol);
  void close(base::Limit& limit);

 private:
  struct Round {
    Sender out;
    Receiver in;
  };

  const Group& group_;
  std::vector<Round> rounds_;
  std::size_t round_ = 0;  // of a barrier that has not ended
  bool signalled_ = false;
};

}  // namespace sluice::rma
