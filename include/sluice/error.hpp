// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/export.hpp>
#include <sluice/types.hpp>

#include <stdexcept>
#include <string>

namespace sluice {

/// What kind of failure an `Error` is, and so what a program can do about it.
enum class Code {
  bad_argument,  ///< a value that can never work; nothing was changed
  mismatch,      ///< the two ends of a channel disagree (bytes per slot)
  misuse,        ///< a call that the order of calls forbids
  timeout,      ///< a deadline passed; the call changed nothing and may be tried again, unless it ended a stream's wait
  peer_lost,    ///< the peer died, or ended with the channel open
  transport,    ///< a backend failed to move data
  unsupported,  ///< this build or machine cannot do it
  out_of_resources,  ///< memory, descriptors or queue entries ran out
  aborted            ///< `Context::abort` was called, or a stream had stopped, here or at the peer
};

/// The enumerator's name, as in logs and messages.
SLUICE_EXPORT const char* name(Code code) noexcept;

/// Every failure that Sluice reports. `what()` is one complete line: what was attempted, where, with whom.
class SLUICE_EXPORT Error : public std::runtime_error {
 public:
  Error(Code code, Rank rank, Rank peer, Tag tag, std::uint64_t epoch, const std::string& what);

  Code code() const noexcept { return code_; }
  /// The rank that noticed; -1 before there is one.
  Rank rank() const noexcept { return rank_; }
  /// The rank at the other end; -1: none.
  Rank peer() const noexcept { return peer_; }
  Tag tag() const noexcept { return tag_; }
  /// The epoch concerned; 0: none.
  std::uint64_t epoch() const noexcept { return epoch_; }

 private:
  Code code_;
  Rank rank_;
  Rank peer_;
  Tag tag_;
  std::uint64_t epoch_;
};

}  // namespace sluice
