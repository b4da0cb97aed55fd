// SPDX-License-Identifier: Apache-2.0
// What the engine posts once it has heard a bell.
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
  // On the first rail; only who has the engine's turn calls these.
  std::uint64_t posted() const noexcept { return posted_.front(); }
  /// Epochs that were rung for and not posted yet.
  std::uint64_t pending() const noexcept { return rung() - posted(); }
  /// An epoch will be rung for by a GPU's stream, which tells nobody.
  virtual bool awaited() const noexcept = 0;
  /// What is posted next holds up what is posted behind it.
  virtual bool next_is_long() const noexcept { return false; }

 protected:
  /// The last epoch that may be posted now; 0: none is left. For what goes with something else, on its only
  /// rail: it is over with `posted_along`. Only who has the engine's turn calls these.
  std::uint64_t next_along() const noexcept;
  void posted_along(std::uint64_t epoch) noexcept;

  /// One rail's share of `epoch` is over. Raises `watch.done` to the last epoch up to which all is.
  void over(std::uint64_t epoch) noexcept;

 private:
  /// The last epoch that was rung for.
  virtual std::uint64_t rung() const noexcept = 0;
  /// Starts this rail's share of `epoch`. False: busy, ask again next turn. Ends with `over`, now or in `poll`.
  virtual bool post_share(std::size_t rail, std::uint64_t epoch) = 0;
  /// No `post_share` of this rail that was busy has left anything under way.
  virtual bool at_rest(std::size_t rail) = 0;
  bool post_rung(std::size_t rail, std::uint64_t rung);
  bool post_traced(std::size_t rail, std::uint64_t epoch);
  /// What is not posted any more waits its turn as if it were: no more than depth epochs are under way.
  std::uint64_t last_allowed(std::size_t rail, std::uint64_t rung) const noexcept;

  device::Watch& watch_;
  std::vector<std::size_t> shares_over_;  // of the outstanding epochs
  std::vector<std::uint64_t> posted_;     // by each rail
  std::uint64_t done_ = 0;
};

}  // namespace sluice::backends
