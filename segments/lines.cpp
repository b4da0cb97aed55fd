// SPDX-License-Identifier: Apache-2.0
#include "segments/lines.hpp"

#include <sluice/error.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "runtime/channel.hpp"
#include "runtime/handles.hpp"

namespace sluice::segments {

namespace {

constexpr int kAhead = 64;  // the most calls of a stream that have had their turn and have not returned

/// Both ends of the channels of a line are of this rank, so a number of the process tells lines apart.
std::string new_name() {
  static std::atomic<std::uint64_t> made{0};
  return "@segments:lines:" + std::to_string(made.fetch_add(1, std::memory_order_relaxed));
}

}  // namespace

struct Lines::Line {
  Stream stream;
  std::mutex order;                                            // of what is enqueued on the stream and on the thread
  HostStream thread{HostStream::Options{.name = "segments"}};  // outlives the channels that are used on it
  Sender come;                                                 // on the stream
  Receiver heard;                                              // on the thread
  Sender done;                                                 // on the thread
  Receiver passed;                                             // on the stream
  std::vector<runtime::ChannelEnd*> ends() const {
    return {detail::ChannelAccess::end(come).get(), detail::ChannelAccess::end(heard).get(),
            detail::ChannelAccess::end(done).get(), detail::ChannelAccess::end(passed).get()};
  }
};

Lines::Lines(const Context& context, std::shared_ptr<runtime::SharedFate> fate)
    : context_(context), scope_(context_.scope(new_name())), fate_(std::move(fate)) {}
Lines::~Lines() = default;

Lines::Line& Lines::line_of(Stream stream) {
  const std::lock_guard lock(mutex_);
  const auto same = [&](const auto& line) { return line->stream == stream; };
  const auto found = std::ranges::find_if(lines_, same);
  if (found != lines_.end()) return **found;
  auto line = std::make_unique<Line>();
  line->stream = stream;
  const Rank self = context_.rank();
  const ChannelOptions options{.depth = kAhead, .name = "segments' stream"};
  line->heard = scope_.receiver(self, next_tag_, {}, options);
  line->come = scope_.sender(self, next_tag_++, {}, options);
  line->passed = scope_.receiver(self, next_tag_, {}, options);
  line->done = scope_.sender(self, next_tag_++, {}, options);
  for (runtime::ChannelEnd* const end : line->ends()) runtime::SharedFate::join(fate_, *end);
  return *lines_.emplace_back(std::move(line));
}

/// Enqueueing on a full queue blocks with the mutex of this line only: before that queue drains, a callable of the
/// stream may have to enqueue on another line (test: a_full_stream_holds_up_no_call_on_another).
void Lines::run(Stream stream, std::function<void()> work) {
  Line& line = line_of(stream);
  const std::lock_guard lock(line.order);
  line.come.put(stream);  // checks the stream, and changes nothing if it throws
  const Stream own = Stream::host(line.thread);
  try {
    line.heard.wait(own);
    line.heard.release(own);
    line.thread.run(std::move(work));
    line.done.put(own);
    line.passed.wait(stream);
    line.passed.release(stream);
  } catch (const Error& reason) {
    fate_->fail(reason.code(), reason.what());
    throw;
  }
}

bool Lines::close(base::Limit& limit) {
  const std::lock_guard lock(mutex_);
  for (const auto& line : lines_) {
    for (runtime::ChannelEnd* const end : line->ends()) {
      base::Limit at_once(Timeout::zero());
      (void)end->close_within(at_once);
    }
  }
  for (const auto& line : lines_) {
    for (runtime::ChannelEnd* const end : line->ends()) {
      if (!end->close_within(limit)) return false;
    }
  }
  lines_.clear();
  return true;
}

void Lines::clear() noexcept {
  const std::lock_guard lock(mutex_);
  lines_.clear();
}

}  // namespace sluice::segments
