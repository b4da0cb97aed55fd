// SPDX-License-Identifier: Apache-2.0
// Work of a segmented channel in the order of streams.
#pragma once

#include <sluice/context.hpp>
#include <sluice/stream.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/limit.hpp"
#include "runtime/fate.hpp"

namespace sluice::segments {

/// One line for each stream: a thread, and two channels of this rank to itself without bytes, by which the stream tells
/// the thread that a piece of work has its turn, and the thread tells the stream that it is done. So any kind of
/// stream waits for one word, whatever the work looks at.
class Lines {
 public:
  /// The channels fail with the others of `fate`.
  Lines(const Context& context, std::shared_ptr<runtime::SharedFate> fate);
  ~Lines();
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  /// Later work on `stream` runs once `work()` has returned, which throws nothing.
  void run(Stream stream, std::function<void()> work);
  /// Closes the lines, once all their work is done. False: not within the limit.
  bool close(base::Limit& limit);
  void clear() noexcept;

 private:
  struct Line;
  Line& line_of(Stream stream);

  Context context_;
  Scope scope_;
  const std::shared_ptr<runtime::SharedFate> fate_;
  std::mutex mutex_;  // of `lines_`, not of what a line does
  std::vector<std::unique_ptr<Line>> lines_;
  Tag next_tag_ = 0;
};

}  // namespace sluice::segments
