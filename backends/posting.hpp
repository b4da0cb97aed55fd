// SPDX-License-Identifier: Apache-2.0
// Work that the engine posts when a bell was rung.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/transport.hpp"
#include "device/gpu.hpp"

namespace sluice::backends {

/// Epochs that are posted in order, on each of several rails, and end in any.
class Posting {
 public:
  /// No more than `depth` epochs are under way.
  Posting(device::Watch& watch, int depth, std::size_t rails);
  Posting(const Posting&) = delete;
  Posting& operator=(const Posting&) = delete;
  virtual ~Posting() = default;

  /// Posts what was rung and not yet posted. A busy rail holds back no other. Called within the engine's turn only.
  AfterTurn post_rung();

  /// An epoch stands for all before it, which need not be posted then.
  virtual bool cumulative() const noexcept { return false; }
  /// Its bell was rung, or may have been. Called within the engine's turn only, before `post_rung`.
  virtual void heard() noexcept {}
  // On the first rail. Called within the engine's turn only.
  std::uint64_t posted() const noexcept { return posted_.front(); }
  /// Epochs that were rung for and not posted yet.
  std::uint64_t pending() const noexcept { return rung() - posted(); }
  /// A GPU's stream will ring for an epoch, and will wake no thread.
  virtual bool awaited() const noexcept = 0;
  /// The next epoch is so long that it delays what is posted behind it.
  virtual bool next_is_long() const noexcept { return false; }

 protected:
  /// For epochs that travel along with another put, on their only rail, and complete with `posted_along`. `next_along`:
  /// the last one that may be posted now; 0: none is left. Called within the engine's turn only.
  std::uint64_t next_along() const noexcept;
  void posted_along(std::uint64_t epoch) noexcept;

  /// One rail's share of `epoch` has completed. Raises `watch.done` to the last epoch up to which all have.
  void over(std::uint64_t epoch) noexcept;

  device::Watch& watch_;

 private:
  /// The last epoch that was rung for.
  virtual std::uint64_t rung() const noexcept = 0;
  /// Starts this rail's share of `epoch`. False: busy, to be called again next turn. Ends with `over`, now or in
  /// `poll`.
  virtual bool post_share(std::size_t rail, std::uint64_t epoch) = 0;
  /// `epoch` is not posted, since the watch is shut.
  virtual void left_out(std::uint64_t /*epoch*/) noexcept {}
  /// No `post_share` of this rail that was busy has left anything under way.
  virtual bool at_rest(std::size_t rail) = 0;
  bool post_rung(std::size_t rail, std::uint64_t rung);
  bool post_traced(std::size_t rail, std::uint64_t epoch);
  /// The last epoch that may be posted, or counted as posted after a failure: no more than depth epochs are under way.
  std::uint64_t last_allowed(std::size_t rail, std::uint64_t rung) const noexcept;

  std::vector<std::size_t> shares_over_;  // of the outstanding epochs
  std::vector<std::uint64_t> posted_;     // by each rail
  std::uint64_t done_ = 0;
};

}  // namespace sluice::backends
