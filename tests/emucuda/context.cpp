// SPDX-License-Identifier: Apache-2.0
#include "tests/emucuda/context.hpp"

#include <algorithm>
#include <map>

#include "tests/emucuda/backoff.hpp"
#include "tests/emucuda/deadlock.hpp"
#include "tests/emucuda/driver.hpp"

namespace emucuda {
namespace {

using Clock = std::chrono::steady_clock;

/// Says when nothing has moved for too long.
class Watch {
 public:
  explicit Watch(std::chrono::milliseconds limit) : limit_(limit) {}

  bool stuck(const Marks& marks) {
    std::uint64_t done = 0;
    for (const Mark& mark : marks) done += mark.stream->completed.load();
    const auto now = Clock::now();
    if (done != done_) since_ = now;
    done_ = done;
    return now - since_ > limit_;
  }

 private:
  std::chrono::milliseconds limit_;
  Clock::time_point since_ = Clock::now();
  std::uint64_t done_ = 0;
};

}  // namespace

Context::Context(int device, const Settings& with) : settings(with), device_(device) {
  for (std::size_t i = 0; i < next_queue_.size() * settings.queues; ++i) {
    const std::uint64_t seed = settings.seed * 1000 + static_cast<std::uint64_t>(device) * 100 + i;
    queues_.push_back(std::make_unique<Queue>(settings.slow_us, seed));
  }
}

void Context::retain() { ++retained_; }

bool Context::release() {
  if (retained_.load() == 0) return false;
  if (--retained_ == 0) reset();
  return true;
}

void Context::reset() {
  synchronize("cuDevicePrimaryCtxRelease");
  driver().forget(*this);
  const std::lock_guard lock(mutex_);
  streams_.clear();
  legacy_ = nullptr;
  ++generation_;
  peers = 0;
  error_ = CUDA_SUCCESS;
}

void Context::fail(CUresult error) {
  int none = CUDA_SUCCESS;
  if (error != CUDA_SUCCESS) error_.compare_exchange_strong(none, error);
}

// --- streams ---------------------------------------------------------------------------------------------------------

StreamPtr Context::add_stream(unsigned with_flags, int priority) {
  std::erase_if(streams_, [](const StreamPtr& stream) { return stream.use_count() == 1 && stream->idle(); });
  const std::size_t urgent = priority < 0 && settings.priorities ? 1 : 0;
  Queue& queue = *queues_[urgent * settings.queues + next_queue_[urgent]++ % settings.queues];
  streams_.push_back(std::make_shared<Stream>(*this, with_flags, priority, queue));
  return streams_.back();
}

StreamPtr Context::create_stream(unsigned with_flags, int priority) {
  const std::lock_guard lock(mutex_);
  return add_stream(with_flags, priority);
}

StreamPtr Context::legacy_stream() {
  const std::lock_guard lock(mutex_);
  if (!legacy_) legacy_ = add_stream(CU_STREAM_DEFAULT, 0);
  return legacy_;
}

bool Context::is_legacy(const StreamPtr& stream) {
  const std::lock_guard lock(mutex_);
  return stream == legacy_;
}

StreamPtr Context::per_thread_stream() {
  struct Own {
    std::uint64_t generation;
    StreamPtr stream;
  };
  thread_local std::map<Context*, Own> streams;
  Own& own = streams[this];
  if (!own.stream || own.generation != generation_) own = {generation_, create_stream(CU_STREAM_DEFAULT, 0)};
  return own.stream;
}

// --- order -----------------------------------------------------------------------------------------------------------

/// The legacy stream waits for all blocking streams, and they wait for it.
Marks Context::predecessors(const StreamPtr& stream) {
  Marks marks;
  if (!stream->blocking()) return marks;
  for (const StreamPtr& other : streams_) {
    const bool ordered = other != stream && other->blocking() && (stream == legacy_ || other == legacy_);
    if (ordered && !other->idle()) marks.push_back({other, other->submitted.load()});
  }
  return marks;
}

/// An H100 took 48 ahead, and not 64. A launch beyond that waited. So did those of other threads meanwhile, unless the
/// stream waited for a word.
void Context::make_room_for(const Operations& operations, const StreamPtr& stream,
                            std::unique_lock<std::mutex>& submitting) {
  constexpr std::uint64_t kMost = 48;
  const auto more = static_cast<std::uint64_t>(
      std::ranges::count_if(operations, [](const Work& work) { return work.target<HostFunction>() != nullptr; }));
  if (more == 0) return;
  const auto is_full = [&] { return stream->functions != 0 && stream->functions + more > kMost && !error(); };
  Backoff backoff;
  Watch watch(settings.deadlock);
  const Marks all = everything();
  while (is_full()) {
    if (stream->parked_at != 0) {
      submitting.unlock();
      while (is_full() && stream->parked_at != 0) backoff.pause();
      submitting.lock();
      watch = Watch(settings.deadlock);
    } else if (watch.stuck(all)) {
      tell_who_is_parked("a launch of a function of the host");
    } else {
      backoff.pause();
    }
  }
  stream->functions += more;
}

Mark Context::submit(const StreamPtr& stream, Operations operations, const Mark& also) {
  if (driver().captures.record(stream, operations)) return {};
  std::unique_lock submitting(submitting_);
  make_room_for(operations, stream, submitting);
  const std::lock_guard lock(mutex_);
  for (Work& work : operations) {
    Marks after = predecessors(stream);
    after.push_back(also);
    stream->queue.push({stream, ++stream->submitted, std::move(after), std::move(work)});
  }
  return {stream, stream->submitted.load()};
}

Mark Context::submit(const StreamPtr& stream, Work work) {
  Operations one;
  one.push_back(std::move(work));
  return submit(stream, std::move(one), {});
}

Marks Context::before(const StreamPtr& stream) {
  const std::lock_guard lock(mutex_);
  Marks marks = predecessors(stream);
  // For a stream that is not the legacy one, what it waits for is in front of its own last operation already.
  if (stream != legacy_) marks.clear();
  marks.push_back({stream, stream->submitted.load()});
  return marks;
}

Marks Context::everything() {
  const std::lock_guard lock(mutex_);
  Marks marks;
  for (const StreamPtr& stream : streams_) marks.push_back({stream, stream->submitted.load()});
  return marks;
}

// --- waiting ---------------------------------------------------------------------------------------------------------

CUresult Context::wait(const Marks& marks) const {
  Backoff backoff;
  for (const Mark& mark : marks) {
    while (!mark.reached()) backoff.pause();
  }
  return error();
}

CUresult Context::wait_implicitly(const char* call, const Marks& marks) {
  Backoff backoff;
  Watch watch(settings.deadlock);
  for (const Mark& mark : marks) {
    for (; !mark.reached(); backoff.pause()) {
      if (watch.stuck(marks)) tell_who_is_parked(call);
    }
  }
  return error();
}

void Context::tell_who_is_parked(const std::string& call) {
  const std::lock_guard lock(mutex_);
  for (const StreamPtr& stream : streams_) {
    if (stream->parked_at != 0) report_deadlock(call + " waits for " + where(*stream));
  }
  report_deadlock(call + " waits for a stream that does not come to an end");
}

// --- kernels ---------------------------------------------------------------------------------------------------------

bool Context::try_to_begin_kernel() {
  if (settings.resident == 0) return true;
  std::size_t now = resident_.load();
  while (now < settings.resident) {
    if (resident_.compare_exchange_weak(now, now + 1)) return true;
  }
  return false;
}

void Context::end_kernel() {
  if (settings.resident != 0) --resident_;
}

}  // namespace emucuda
