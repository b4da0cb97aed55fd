// SPDX-License-Identifier: Apache-2.0
// The messages of a plan, which ranks exchange before its first round.
#pragma once

#include <sluice/channel.hpp>
#include <sluice/context.hpp>
#include <sluice/types.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/limit.hpp"
#include "unr/messages.hpp"

namespace sluice::unr {

/// A message of a rank, as its peer sees it.
struct Entry {
  Key key = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  ///< of a receive, in the slot of its channel
  std::uint64_t slot = 0;    ///< of a receive: bytes of that slot
  std::uint32_t channel = 0;
  Rank peer = 0;
  bool is_send = false;
  char signal[47] = {};  ///< its name, which may be cut off
};

/// Gives each of `peers` the entries of `own` that concern it, and returns what it gives, in its order. The i-th calls
/// of two ranks with one name match.
/// @throws Error of a channel; {Code::timeout}: a peer has not called it
std::map<Rank, std::vector<Entry>> exchange_tables(Context& context, const std::string& name,
                                                   const std::vector<Entry>& own, const std::vector<Rank>& peers,
                                                   base::Limit& limit, Timeout stated);

/// Receiver::wait_for, as one of several waits with one limit.
inline bool wait_within(base::Limit& limit, Receiver& receiver) {
  do {
    if (receiver.wait_for(limit.step())) return true;
  } while (!receiver.closed() && !limit.over());
  return false;
}

}  // namespace sluice::unr
