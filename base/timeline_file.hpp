// SPDX-License-Identifier: Apache-2.0
// The file of a timeline. Processes of one job, also on several hosts, write it together without locks of the file
// system: network file systems may lack locks, or ignore them.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
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
// A process keeps events that it has not written yet in other files of the folder. If it has ended without writing
// them, the process that merges makes a part of each such file.
//
// Every part is merged. A process that cannot create `merging` has put its part there before, and the process that
// removes `merging` looks for parts again afterwards.

/// @throws std::invalid_argument why the file or its folder cannot be written; never for ""
void check_timeline(const std::string& file);

/// Events that are on disk, as a part that `publish` lets processes merge.
class Part {
 public:
  /// Writes the events. Returns once they are on disk.
  /// @param name  that no other part of the job has
  /// @param began  the origin of their times
  /// @param events  lines of JSON that end with ",\n", but for the last
  /// @throws std::exception if they cannot be written
  Part(const std::string& file, const std::string& job, const std::string& name, const Moment& began,
       const std::string& events);
  /// @throws std::system_error
  void publish() const;

 private:
  std::filesystem::path hidden_;
  std::filesystem::path ready_;
};

/// Merges all parts that are published, and the events that ended processes of this host have left (slice_file.hpp),
/// unless another process merges them. Replaces a file of another job.
/// @throws std::exception if parts cannot be merged
void merge_parts(const std::string& file, const std::string& job);

/// Calls merge_the_rest for the job that has last written parts of this timeline.
/// @throws std::exception as merge_the_rest, or if no job has left parts
void finish_timeline(const std::string& file);

/// Logs that so many events of a thread were not kept.
void log_lost(const std::string& file, std::uint64_t events);

/// Returns the folder of the parts.
std::filesystem::path folder_of_parts(const std::string& file, const std::string& job);

/// Merges the parts and the events that killed processes have left. To be called once all processes of the job have
/// ended; other hosts may call it at the same time.
/// @throws std::exception if a part stays in the folder, so that the file lacks events
void merge_the_rest(const std::string& file, const std::string& job);

}  // namespace sluice::base::trace
