// SPDX-License-Identifier: Apache-2.0
// The file of a timeline. Processes of one job, also on several hosts, write it together without locks of the file
// system, which networks' file systems may lack, or have without effect.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace sluice::base::trace {

using Nanoseconds = std::chrono::nanoseconds;

/// A point of time by both clocks, and the boot in which the steady clock is valid.
struct Moment {
  std::string of_boot;
  Nanoseconds steady{};
  Nanoseconds since_1970{};

  static Moment now();
  /// This moment on the steady clock of this boot.
  Nanoseconds here() const;
};

/// The form that times have in the file: "1234.567".
std::string microseconds(Nanoseconds time);

/// The timeline of a job, and the folder FILE.JOB.parts. Each process writes its events there, as parts: timelines of
/// their own. One process at a time merges the parts into the file: the one that creates the file `merging` in the
/// folder, with its name as a process in it. The folder is removed with the last part.
///
/// Every part is merged. A process that cannot create `merging` has put its part there before, and the process that
/// removes `merging` looks for parts again afterwards.
class TimelineFile {
 public:
  TimelineFile(const std::string& file, const std::string& job);

  /// @throws std::invalid_argument saying why the file or its folder cannot be written; "" can
  static void check(const std::string& file);

  /// Adds events, either to the file, or as a part that another process merges. They are on disk then. Replaces a file
  /// of another job.
  /// @param part  a name that no other part of the job has
  /// @param began  the origin of their times
  /// @param events  lines of JSON that end with ",\n", but for the last
  /// @throws std::exception if they cannot be written
  void add(const std::string& part, const Moment& began, const std::string& events) const;

  /// Adds what processes have left that were killed. Call it once all processes of the job have ended; other hosts may
  /// do so at the same time.
  /// @throws std::exception if something stays in the folder: events are missing in the file
  void merge_the_rest() const;

 private:
  struct Merging;

  void merge() const;
  void merge(std::vector<std::filesystem::path> parts) const;
  void remove_merging_of_killed() const;
  std::vector<std::filesystem::path> left() const;

  std::string file_;
  std::string job_;
  std::filesystem::path folder_;
  std::filesystem::path merging_;
};

}  // namespace sluice::base::trace
