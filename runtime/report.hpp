// SPDX-License-Identifier: Apache-2.0
// A page of memory that sluice-run shares with each process that it starts, and reads when the process has ended,
// however it ended.
#pragma once

#include "base/env.hpp"
#include "base/fd.hpp"
#include "base/fork.hpp"
#include "base/waits.hpp"

#include <sluice/types.hpp>

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace sluice::runtime {

struct ProcessReport {
  std::uint64_t launcher = 0;              ///< inode of the pipe whose other end sluice-run holds
  std::atomic<pid_t> process{0};           ///< the process that is the rank; 0: none yet
  std::atomic<std::int32_t> ranks{0};      ///< ranks of the process that are inside `run`
  std::atomic<std::int32_t> ends{0};       ///< open ends of channels
  std::atomic<bool> run_called{false};     ///< or the process is itself a sluice-run
  std::atomic<bool> lost_peer{false};      ///< the loss of another rank ended it
  std::atomic<bool> refused{false};        ///< another process wanted to be the rank
  std::atomic<bool> left_together{false};  ///< all its ranks called `exit` with code 0, with nothing open
};

/// The memory that sluice-run shares with a process.
struct SharedReport {
  ProcessReport process;
  base::WaitPage waits;
};

/// The report of this process. Without sluice-run, and in a process that a rank has forked, no process reads it.
ProcessReport& report() noexcept;

/// Makes a report for sluice-run: the page, which the process gets as SLUICE_REPORT_FD, and its mapping.
/// @throws std::system_error
std::pair<base::Fd, std::shared_ptr<SharedReport>> new_report();

/// Maps the page of the sluice-run that started this process, if one did: `report` returns it from then on, and waits
/// are noted in it.
/// @returns the write end of the pipe whose other end sluice-run holds; empty: there is no sluice-run
/// @throws std::invalid_argument if SLUICE_REPORT_FD or SLUICE_LAUNCHER_FD is another file than sluice-run gave
base::Fd join_launcher(const base::Env& env);

/// Makes this process the rank. @throws std::invalid_argument if another process is or was that rank
void become_rank(Rank rank);

/// A rank that is inside `run` while this lives: a call of `exit` with code 0 is then an error of that rank, if
/// channels are open or other ranks of the process go on.
class InsideRun {
 public:
  [[gnu::visibility("default")]] InsideRun();
  InsideRun(InsideRun&& other) noexcept : counts_(std::exchange(other.counts_, false)) {}
  InsideRun& operator=(InsideRun&&) = delete;
  [[gnu::visibility("default")]] ~InsideRun();

  /// Makes this thread the rank.
  void begin(Rank rank);

 private:
  bool counts_ = true;
  base::Origin origin_;         // a child of fork has a report of its own, which counts none of its parent's ranks
  std::optional<Rank> before_;  // the rank of this thread before `begin`
};

}  // namespace sluice::runtime
