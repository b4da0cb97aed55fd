// SPDX-License-Identifier: Apache-2.0
#include "runtime/stream_threads.hpp"

#include <sluice/error.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

#include "runtime/cores.hpp"
#include "runtime/line.hpp"

namespace sluice::runtime {

namespace {

constexpr int kAhead = 64;  // the most calls of a stream that have had their turn and have not returned

/// Both ends of the channels of a line are of this rank, so a number of the process tells lines apart.
std::string new_scope() {
  static std::atomic<std::uint64_t> made{0};
  return "@threads:" + std::to_string(made.fetch_add(1, std::memory_order_relaxed));
}

}  // namespace

struct StreamThreads::Line {
  Line(Stream of, const std::string& what) : stream(of), thread(HostStream::Options{.name = what}) {}

  const Stream stream;
  std::mutex order;                     // of what is enqueued on the stream and on the thread
  std::atomic<std::uint64_t> begun{0};  // pieces of work that have had their turn
  HostStream thread;                    // outlives the channels that are used on it
  Sender come;                          // on the stream
  Receiver heard;                       // on the thread
  Sender done;                          // on the thread
  Receiver passed;                      // on the stream
  std::vector<ChannelEnd*> ends() const {
    return {detail::ChannelAccess::end(come).get(), detail::ChannelAccess::end(heard).get(),
            detail::ChannelAccess::end(done).get(), detail::ChannelAccess::end(passed).get()};
  }
};

StreamThreads::StreamThreads(std::shared_ptr<const Services> services, Rank rank, std::string what,
                             std::shared_ptr<SharedFate> fate)
    : services_(std::move(services)), rank_(rank), what_(std::move(what)), scope_(new_scope()), fate_(std::move(fate)) {
}
StreamThreads::~StreamThreads() = default;

template <class Handle>
Handle StreamThreads::open(Tag tag) {
  constexpr bool sends = std::is_same_v<Handle, Sender>;
  using Core = std::conditional_t<sends, detail::SenderCore, detail::ReceiverCore>;
  ChannelOptions options;
  options.depth = kAhead;
  const ChannelKey key{services_->rank, scope_, tag, sends ? Role::sender : Role::receiver};
  auto end = open_line<Handle, Core>(services_, Opening{key, rank_, rank_, {}, options, what_ + ": its stream", {}});
  SharedFate::join(fate_, *detail::ChannelAccess::end(end));
  return end;
}

StreamThreads::Line& StreamThreads::line_of(Stream stream) {
  const std::lock_guard lock(mutex_);
  const auto same = [&](const auto& line) { return line->stream == stream; };
  const auto found = std::ranges::find_if(lines_, same);
  if (found != lines_.end()) return **found;
  auto line = std::make_unique<Line>(stream, what_);
  line->heard = open<Receiver>(next_tag_);
  line->come = open<Sender>(next_tag_++);
  line->passed = open<Receiver>(next_tag_);
  line->done = open<Sender>(next_tag_++);
  detail::ChannelAccess::end(line->heard)->wait_without_limit();  // for work of the stream's own
  detail::core_of(line->passed).wait_from_when(line->begun);
  return *lines_.emplace_back(std::move(line));
}

/// Enqueueing on a full queue blocks with the mutex of this line only: before that queue drains, a callable of the
/// stream may have to enqueue on another line (test: a_full_stream_holds_up_no_call_on_another).
void StreamThreads::run(Stream stream, std::function<void(device::Lane)> work) {
  Line& line = line_of(stream);
  const std::lock_guard lock(line.order);
  line.come.put(stream);  // checks the stream, and changes nothing if it throws
  const Stream own = Stream::host(line.thread);
  try {
    line.heard.wait(own);
    line.heard.release(own);
    device::on_host(static_cast<HostStream::Impl*>(own.handle()), [&line, work = std::move(work)](device::Lane lane) {
      ++line.begun;
      work(lane);
    });
    line.done.put(own);
    line.passed.wait(stream);
    line.passed.release(stream);
  } catch (const Error& reason) {
    fate_->fail(reason.code(), reason.what());
    throw;
  } catch (const std::exception& reason) {
    fate_->fail(Code::out_of_resources, reason.what());
    throw;
  }
}

ChannelEnd* StreamThreads::close(base::Limit& limit) {
  const std::lock_guard lock(mutex_);
  std::vector<ChannelEnd*> ends;
  for (const auto& line : lines_) std::ranges::copy(line->ends(), std::back_inserter(ends));
  ChannelEnd* const open = close_all(ends, limit);
  if (open == nullptr) lines_.clear();
  return open;
}

void StreamThreads::clear() noexcept {
  const std::lock_guard lock(mutex_);
  lines_.clear();
}

}  // namespace sluice::runtime
