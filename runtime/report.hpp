// SPDX-License-Identifier: Apache-2.0
// Words in a page of memory that sluice-run shares with each process that it starts: it can read them however the
// process has ended.
#pragma once

#include "base/env.hpp"
#include "base/fd.hpp"
#include "base/fork.hpp"

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
  std::atomic<std::int32_t> ranks{0};      ///< of the process that are inside `run`
  std::atomic<std::int32_t> ends{0};       ///< of channels that are open
  std::atomic<bool> run_called{false};     ///< or the process is itself a sluice-run
  std::atomic<bool> lost_peer{false};      ///< the loss of another rank ended it
  std::atomic<bool> refused{false};        ///< another process wanted to be the rank
  std::atomic<bool> left_together{false};  ///< all its ranks called `exit` with code 0, with nothing open
};

/// The report of this process. Without sluice-run, and in a process that a rank has forked, it has no reader.
ProcessReport& report() noexcept;

/// A new report, for sluice-run.
struct NewReport {
  base::Fd page;  ///< for the process: what `join_launcher` takes as SLUICE_REPORT_FD
  std::shared_ptr<ProcessReport> words;
};

/// @throws std::system_error
NewReport new_report();

/// Makes `report` that of the sluice-run which started this process, if one did.
/// @returns the write end of the pipe whose other end sluice-run holds; empty: there is no sluice-run
/// @throws std::invalid_argument if SLUICE_REPORT_FD or SLUICE_LAUNCHER_FD is not what sluice-run gave
base::Fd join_launcher(const base::Env& env);

/// This process is the rank from now on. @throws std::invalid_argument if another one is or was it
void become_rank(Rank rank);

/// A rank that is inside `run` while this lives: a call of `exit` with code 0 is then an error of that rank, if
/// channels are open or other ranks of the process go on.
class InsideRun {
 public:
  [[gnu::visibility("default")]] InsideRun();
  InsideRun(InsideRun&& other) noexcept : counts_(std::exchange(other.counts_, false)) {}
  InsideRun& operator=(InsideRun&&) = delete;
  [[gnu::visibility("default")]] ~InsideRun();

  /// This thread is the rank from now on.
  void begin(Rank rank);

 private:
  bool counts_ = true;
  base::Origin origin_;         // a child of fork has a report of its own, which counts none of its parent's ranks
  std::optional<Rank> before_;  // what this thread was
};

}  // namespace sluice::runtime
