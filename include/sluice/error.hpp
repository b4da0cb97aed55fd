// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/export.hpp>
#include <sluice/types.hpp>

#include <stdexcept>
#include <string>

namespace sluice {

/// The kind of a failure. It tells a program what to do about an `Error`. The values are those of `sluice_code` in C.
enum class Code {
  bad_argument = 1,  ///< a value that can never work; nothing was changed
  mismatch,          ///< the two ends of a channel disagree about the bytes or the contents of a slot
  misuse,            ///< a call that the order of calls forbids
  timeout,    ///< a limit of time was exceeded. `close` may only be called again. Other calls that block the host, and
              ///< a first verb that waits for its peer, have changed nothing. A longer wait of a connected channel, on
              ///< a stream or in program order, has failed the channel
  peer_lost,  ///< the peer died, or ended with the channel open
  transport,  ///< a backend or a GPU's driver failed to move data
  unsupported,       ///< this build or machine cannot do it
  out_of_resources,  ///< memory, descriptors or queue entries ran out
  aborted,           ///< `Context::abort` was called, or a stream stopped or was destroyed, here or at the peer
  closed             ///< a wait for an epoch that never comes: the peer has closed its end
};

/// The name of the enumerator, as in logs and messages.
SLUICE_EXPORT const char* name(Code code) noexcept;

/// Every failure that Sluice reports, but for bad settings (see `run`). `what()` is one complete line: the kind, what
/// was attempted, the ranks, the tag and the epoch.
class SLUICE_EXPORT Error : public std::runtime_error {
 public:
  Error(Code code, Rank rank, Rank peer, Tag tag, std::uint64_t epoch, const std::string& what);

  Code code() const noexcept { return code_; }
  /// The rank that noticed the failure; -1 if there is no rank yet.
  Rank rank() const noexcept { return rank_; }
  /// The rank at the other end of the channel; -1: the failure concerns no channel.
  Rank peer() const noexcept { return peer_; }
  /// The tag of the channel; 0 if there is none.
  Tag tag() const noexcept { return tag_; }
  /// The epoch of the put or wait that failed; 0: none.
  std::uint64_t epoch() const noexcept { return epoch_; }

 private:
  Code code_;
  Rank rank_;
  Rank peer_;
  Tag tag_;
  std::uint64_t epoch_;
};

}  // namespace sluice
