// SPDX-License-Identifier: Apache-2.0
// The file of a timeline. Processes of one job, also on several hosts, write it together without locks of the file
// system: network file systems may lack locks, or ignore them.
#pragma once

#include <chrono>
#include <string>

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

// The folder FILE.JOB.parts lies beside the timeline of a job. Each process writes its events there, as parts, which
// are timelines too. One process at a time merges the parts into the file: the process that creates the file `merging`
// in the folder, with its process name in it. It removes the folder with the last part.
//
// Every part is merged. A process that cannot create `merging` has put its part there before, and the process that
// removes `merging` looks for parts again afterwards.

/// @throws std::invalid_argument why the file or its folder cannot be written; never for ""
void check_timeline(const std::string& file);

/// Adds events, either to the file, or as a part that another process merges. Returns once they are on disk. Replaces
/// a file of another job.
/// @param part  a name that no other part of the job has
/// @param began  the origin of their times
/// @param events  lines of JSON that end with ",\n", but for the last
/// @throws std::exception if they cannot be written
void add_to_timeline(const std::string& file, const std::string& job, const std::string& part, const Moment& began,
                     const std::string& events);

/// Merges the parts that killed processes have left. To be called once all processes of the job have ended; other
/// hosts may call it at the same time.
/// @throws std::exception if a part stays in the folder, so that the file lacks events
void merge_the_rest(const std::string& file, const std::string& job);

}  // namespace sluice::base::trace
