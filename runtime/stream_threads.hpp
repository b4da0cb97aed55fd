// SPDX-License-Identifier: Apache-2.0
// Work of threads of the library in the order of streams of any kind.
#pragma once

#include <sluice/stream.hpp>
#include <sluice/types.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/limit.hpp"
#include "device/gpu.hpp"
#include "runtime/fate.hpp"

namespace sluice::runtime {

struct Services;

/// A thread for each stream, and two channels of this rank to itself without bytes: by one the stream tells the thread
/// that a piece of work has its turn, by the other the thread tells the stream that it is done. So a stream of any kind
/// waits for one word, whatever the work looks at.
class StreamThreads {
 public:
  /// The channels fail with the others of `fate`. `what`: names the threads and the channels.
  StreamThreads(std::shared_ptr<const Services> services, Rank rank, std::string what,
                std::shared_ptr<SharedFate> fate);
  ~StreamThreads();
  StreamThreads(const StreamThreads&) = delete;
  StreamThreads& operator=(const StreamThreads&) = delete;

  /// Later work on `stream` runs once `work(lane)` has returned, which throws nothing. `lane`: the thread's.
  /// @throws Error; if `work` was accepted before that, the thread still calls it
  void run(Stream stream, std::function<void(device::Lane)> work);
  /// Closes the channels, once all work is done. Returns one that has not closed within the limit; null: all have.
  ChannelEnd* close(base::Limit& limit);
  void clear() noexcept;

 private:
  struct Line;
  Line& line_of(Stream stream);
  template <class Handle>
  Handle open(Tag tag);

  const std::shared_ptr<const Services> services_;
  const Rank rank_;
  const std::string what_;
  const std::string scope_;
  const std::shared_ptr<SharedFate> fate_;
  std::mutex mutex_;  // of `lines_`, not of what a line does
  std::vector<std::unique_ptr<Line>> lines_;
  Tag next_tag_ = 0;
};

}  // namespace sluice::runtime
