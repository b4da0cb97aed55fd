// SPDX-License-Identifier: Apache-2.0
// Messages and an answer, between ranks 0 and 1.
#pragma once

#include "apps/bench/harness/contender.hpp"
#include "apps/bench/model/fit.hpp"

#include <memory>
#include <string>

namespace bench {

/// A train of messages, of which rank 0 takes the time.
enum class Train {
  answered,  ///< rank 0 puts all; rank 1 receives all, and answers
  copied,    ///< the same, but rank 1 copies each message out
  combined,  ///< the same, but rank 1 adds each message to doubles in memory
  puts,      ///< the work of puts with a pause behind each, without the pauses
  receives   ///< the work of wait and release of messages that have landed, each of another channel
};

struct Prtt {
  std::unique_ptr<Contender> contender;
  std::string description;  ///< of its channels
};

/// A unit is `messages` of the workload's bytes, and an answer of the smallest size.
Prtt make_prtt(const Workload& workload, Train train, int messages);

}  // namespace bench
