// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "collectives/awaited.hpp"
#include "runtime/cores.hpp"
#include "runtime/fate.hpp"
#include "runtime/kept.hpp"

namespace sluice::collectives {
namespace {

using Kind = Step::Kind;

/// The GPU that has the memory; -1: the host.
int gpu_of(const Slice& memory) {
  device::Driver* const driver = runtime::extent_of(memory).driver;
  const auto found = driver == nullptr ? std::nullopt : driver->find(memory.data());
  return found ? found->device : -1;
}

HostStream::Impl* host_of(Stream stream) { return static_cast<HostStream::Impl*>(stream.handle()); }

}  // namespace

Operation::Shared::Shared(Schedule of) : schedule(std::move(of)), fate(std::make_shared<runtime::SharedFate>()) {}

Operation::Operation(Context& context, std::string name, Schedule schedule, Progress progress)
    : context_(context), scope_(context.scope("collective " + name)),
      ready_scope_(context.scope("ready for collective " + name)), name_(std::move(name)),
      shared_(std::make_shared<Shared>(std::move(schedule))) {
  for (const Slice& slice : schedule_.slices) gpu_of_memory_ = std::max(gpu_of_memory_, gpu_of(slice));
  for (const std::size_t bytes : schedule_.scratches)
    shared_->scratches.push_back(bytes == 0 ? Memory() : allocate(bytes));
  if (schedule_.function.combine != nullptr) {
    for (const Step& step : schedule_.steps)
      if (step.kind == Kind::combine) shared_->operand.resize(std::max(shared_->operand.size(), step.bytes));
  }
  for (std::size_t i = 0; i < schedule_.steps.size(); ++i)
    if (schedule_.steps[i].kind >= Kind::copy)
      last_computed_[i < schedule_.begin_of_wait ? 0 : 1] = &schedule_.steps[i];
  shared_->landings.resize(schedule_.messages.size());
  ends_.reserve(schedule_.messages.size());
  deferred_releases_.reserve(schedule_.messages.size());
  for (std::size_t i = 0; i < schedule_.messages.size(); ++i) open(i);
  if (progress == Progress::own_stream) own_ = std::make_unique<HostStream>(HostStream::Options{.name = name_});
}

/// Ends that an exception destroys end their waits at once; then streams go on to the markers.
Operation::~Operation() {
  if (state_ == State::closed || !origin.here()) return;
  const bool unwinds = std::uncaught_exceptions() > 0;
  const Timeout stated = unwinds ? runtime::time_to_leave(context_.connect_timeout()) : context_.connect_timeout();
  base::Limit limit(stated);
  try {
    if (unwinds) ends_.clear();
    shut(limit, stated);
    return;
  } catch (const std::exception& reason) {
    base::log(base::LogLevel::warn, name_ + ": kept what streams or peers still use: " + reason.what());
  }
  new (std::nothrow) std::pair(shared_, std::move(ends_));  // for ever
  if (own_ != nullptr) (void)own_.release();
}

Slice Operation::source_of(const Message& message) const {
  const Place& from = message.at;
  if (message.bytes == 0) return {};
  const Slice whole = from.of == Place::Of::user ? schedule_.slices[from.index] : shared_->scratches[from.index].all();
  return whole.slice(from.offset, message.bytes);
}

void Operation::open(std::size_t index) {
  const Message& message = schedule_.messages[index];
  End& end = ends_.emplace_back();
  Scope& scope = message.ready ? ready_scope_ : scope_;
  if (message.sends) {
    end.sender =
        scope.sender(message.peer, message.tag, source_of(message), {.name = name_, .contents = schedule_.contents});
  } else if (message.lands_aside()) {
    if (message.bytes > 0) shared_->landings[index] = allocate(kLandings * message.bytes);
    end.receiver = scope.receiver(message.peer, message.tag, shared_->landings[index].all(),
                                  {.depth = kLandings, .name = name_, .contents = schedule_.contents});
  } else {
    end.receiver = scope.receiver(message.peer, message.tag, source_of(message),
                                  {.name = name_, .contents = schedule_.contents, .shared_memory = true});
  }
  runtime::SharedFate::join(fate_, end_of(index));
}

runtime::ChannelEnd& Operation::end_of(std::size_t message) {
  return *detail::ChannelAccess::end(ends_[message].channel(schedule_.messages[message].sends));
}

Error Operation::error(Code code, const std::string& what) const {
  return {code, schedule_.rank, -1, 0, 0, name_ + ": " + what};
}

void Operation::check(State state, const char* verb) const {
  if (state_ >= State::closing) throw error(Code::misuse, std::string(verb) + ": it is closed");
  // A peer may have closed, or died, since: the result is there nevertheless.
  if (state_ == State::tested && state == State::started) return;
  fate_->check();
  if (state_ == state || state_ == State::tested) return;
  throw error(Code::misuse,
              std::string(verb) + (state_ == State::started ? ": it was started and not waited for" : " before start"));
}

void Operation::check_stream(Stream stream) const {
  if (!device::usable(stream)) throw error(Code::misuse, "the HostStream was moved from, or is the parent's");
  device::check_supported(stream, schedule_.rank);
  if (has_started_ && stream.kind() != stream_.kind())
    throw error(Code::misuse, "a stream of another kind than before");
  const bool on_gpu = device::of_gpu(stream);
  if (on_gpu && own_ != nullptr) throw error(Code::unsupported, "Progress::own_stream, on the stream of a GPU");
  if (on_gpu && schedule_.function.combine != nullptr)
    throw error(Code::unsupported, "a function of the program, on the stream of a GPU");
  if (gpu_of_memory_ >= 0 && !on_gpu)
    throw error(Code::unsupported, "memory of a GPU, on a stream that is not of a GPU");
}

void Operation::start(Stream stream) {
  // A capture may have ended between start and wait.
  if (capture_ != 0 && state_ == State::started && stream.kind() == stream_.kind()) prepare_for_gpu(stream);
  check(State::idle, "start");
  check_stream(stream);
  if (device::of_gpu(stream)) prepare_for_gpu(stream);
  stream_ = stream;
  has_started_ = true;
  next_ = 0;
  state_ = State::started;
  if (own_ != nullptr) return start_on_own(stream);
  if (stream.kind() != Stream::Kind::program_order) return enqueue_start(stream);
  (void)go_on(schedule_.begin_of_wait);
  release_deferred(stream);
}

void Operation::start_on_own(Stream stream) {
  const Stream own = Stream::host(*own_);
  ++starts_;
  if (stream.kind() == Stream::Kind::host) {
    host_of(stream)->raise_at(ready_, starts_);
    host_of(own)->wait_for(ready_, starts_);
  }
  enqueue_start(own);
  enqueue_wait(own);
  host_of(own)->raise_at(done_, starts_);
}

void Operation::wait(Stream stream) {
  check(State::started, "wait");
  check_stream(stream);
  if (device::of_gpu(stream)) prepare_for_gpu(stream);
  if (state_ == State::tested) {
    state_ = State::idle;
    return;
  }
  if (stream.kind() == Stream::Kind::program_order) {
    finish_now();
  } else if (own_ != nullptr) {
    host_of(stream)->wait_for(done_, starts_);
    device::in_order(stream, [fate = fate_](device::Lane lane) { fate->report(lane); });
  } else {
    enqueue_wait(stream);
    if (capture_ != 0) ++captured_;
  }
  state_ = State::idle;
}

void Operation::finish_now() {
  if (own_ != nullptr) {
    own_->synchronize();
    return fate_->check();  // also a failure that was thrown before
  }
  carry_out_until({}, schedule_.steps.size());
}

bool Operation::test() {
  check(State::started, "test");
  if (state_ == State::tested) return true;
  if (stream_.kind() != Stream::Kind::program_order) throw error(Code::misuse, "test of what a stream has started");
  if (own_ != nullptr ? !done_->reached(starts_) : !go_on(schedule_.steps.size())) return false;
  finish_now();
  state_ = State::tested;
  return true;
}

void Operation::carry_out_until(Stream stream, std::size_t end) {
  for (; next_ < end; ++next_) carry_out(stream, schedule_.steps[next_]);
}

void Operation::enqueue_start(Stream stream) {
  enqueue(stream, [this, stream] {
    carry_out_until(stream, schedule_.begin_of_wait);
    release_deferred(stream);
  });
}

void Operation::enqueue_wait(Stream stream) {
  enqueue(stream, [this, stream] { carry_out_until(stream, schedule_.steps.size()); });
}

template <class Work>
void Operation::enqueue(Stream stream, Work work) {
  try {
    work();
    if (capture_ == 0 && unmarked_) enqueue_marker(stream);
  } catch (const device::GpuError& reason) {
    if (capture_ != 0) lose_graph(reason.what());
    mark_behind_error(stream);
    break_off(reason.what());
    throw error(Code::transport, reason.what());
  } catch (const std::exception& reason) {
    if (capture_ != 0) {  // the error of a plan says that the graph is lost
      state_ = State::idle;
      throw;
    }
    mark_behind_error(stream);
    if (!fate_->failed()) break_off(reason.what());  // else the failure of a channel fails all of them
    state_ = State::broken;
    throw;
  }
}

bool Operation::advance(Stream stream) {
  check(State::started, "advance");
  if (state_ == State::tested) return true;
  enqueue(stream, [this, stream] {
    for (; next_ < schedule_.steps.size() && !would_park(schedule_.steps[next_]); ++next_)
      carry_out(stream, schedule_.steps[next_]);
  });
  if (next_ < schedule_.steps.size()) return false;
  state_ = State::tested;
  return true;
}

void Operation::break_off(const char* why) noexcept {
  state_ = State::broken;
  fate_->fail(Code::aborted, name_ + " could not be enqueued: " + why);
}

void Operation::enqueue_marker(Stream stream) {
  unmarked_ = false;
  device::in_order(stream, [&passed = shared_->passed, marker = ++markers_](device::Lane lane) {
    device::raise(lane, passed.word, marker, passed.parking);
  });
}

/// The stream may have been given some of the steps. If it refuses the marker too, closing times out.
void Operation::mark_behind_error(Stream stream) noexcept {
  try {
    enqueue_marker(stream);
  } catch (const std::exception& reason) {
    base::log(base::LogLevel::warn, name_ + ": " + reason.what());
  }
}

bool Operation::await_markers(base::Limit& limit) {
  const auto passed = [this] { return base::reached(shared_->passed.word, markers_); };
  while (!base::wait_until(shared_->passed.parking, passed, limit.next()))
    if (limit.over()) return passed();
  return true;
}

void Operation::shut(base::Limit& limit, Timeout stated) {
  std::vector<runtime::ChannelEnd*> ends;
  for (std::size_t i = 0; i < ends_.size(); ++i) ends.push_back(&end_of(i));
  for (const runtime::ChannelEnd* const end : ends) fate_->leave(*end);
  if (const runtime::ChannelEnd* const open = runtime::close_all(ends, limit)) throw open->not_closed(stated);
  if (!await_markers(limit)) throw error(Code::timeout, "not closed in time: a stream has not done its work");
}

bool Operation::go_on(std::size_t end) {
  for (; next_ < end; ++next_) {
    const Step& step = schedule_.steps[next_];
    if (step.kind == Kind::wait) {
      End& of = ends_[step.message];
      const std::optional<Slice> landed = of.receiver.test();
      if (!landed) {
        end_of(step.message).check_next();  // throws if the peer has closed its end
        return false;
      }
      of.landed = *landed;
    } else {
      if (would_block(step)) return false;
      carry_out({}, step);
    }
  }
  return true;
}

/// For every kind of step but a wait.
bool Operation::would_block(const Step& step) {
  if (step.kind >= Kind::copy) return false;
  End& end = ends_[step.message];
  if (step.kind == Kind::put) return !end.sender.credited();
  if (step.kind != Kind::acquire) return false;
  const runtime::ChannelEnd& core = end_of(step.message);
  return !base::reached(core.done, core.epoch()) && !core.failed();
}

const ChannelHandle* Operation::awaited() noexcept {
  if (own_ != nullptr || next_ >= schedule_.steps.size()) return nullptr;
  const Step& step = schedule_.steps[next_];
  if (step.kind == Kind::wait) return is_being_copied(step) ? nullptr : &ends_[step.message].receiver;
  return step.kind == Kind::put ? &ends_[step.message].sender : nullptr;
}

void Operation::carry_out(Stream stream, const Step& step) {
  if (step.kind >= Kind::copy) return compute(stream, step);
  if (gpu_ >= 0) return carry_out_by_plan(stream, step);
  End& end = ends_[step.message];
  switch (step.kind) {
    case Kind::put: return end.sender.put(stream);
    case Kind::wait: end.landed = end.receiver.wait(stream); return;
    case Kind::release: return release(stream, step.message);
    default: (void)end.sender.acquire(stream);
  }
}

/// The store of a release takes as long as it takes to get the line of memory from the peer, and later stores of a core
/// wait for it. So the host releases behind the puts of the next start. Memory of the program is released at once: an
/// `acquire` of the sender would throw if this end closed without it.
void Operation::release(Stream stream, std::uint32_t message) {
  if (!schedule_.messages[message].lands_aside())
    ends_[message].receiver.release(stream);
  else
    deferred_releases_.push_back(message);
}

void Operation::release_deferred(Stream stream) {
  for (; released_ < deferred_releases_.size(); ++released_)
    ends_[deferred_releases_[released_]].receiver.release(stream);
  deferred_releases_.clear();
  released_ = 0;
}

void Operation::wait_connected(std::optional<Timeout> timeout) {
  if (state_ >= State::closing) throw error(Code::misuse, "wait_connected: it is closed");
  const Timeout stated = timeout.value_or(context_.connect_timeout());
  base::Limit limit(stated);
  for (std::size_t i = 0; i < ends_.size(); ++i) end_of(i).wait_connected(limit, stated);
}

void Operation::close(std::optional<Timeout> timeout) {
  const Timeout stated = timeout.value_or(context_.connect_timeout());
  base::Limit limit(stated);
  if (state_ == State::closed) return;
  state_ = State::closing;
  shut(limit, stated);
  state_ = State::closed;
}

std::string Operation::describe() const {
  std::string text = name_ + ": " + schedule_.algorithm;
  if (gpu_ >= 0)
    text += "; on streams of GPU " + std::to_string(gpu_) + (combines_numbers() ? ", whose kernels combine" : "");
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const Message& message = schedule_.messages[i];
    const End& end = ends_[i];
    text += "\n  " + (message.sends ? end.sender.describe() : end.receiver.describe());
  }
  return text;
}

}  // namespace sluice::collectives

namespace sluice::detail {

bool can_advance(const Collective& collective) noexcept {
  collectives::Operation* const operation = collectives::Operation::of(collective);
  return operation == nullptr || operation->can_advance();
}

bool advance(Collective& collective, Stream stream) {
  collectives::Operation* const operation = collectives::Operation::of(collective);
  return operation == nullptr || operation->advance(stream);
}

void add_awaited(Collective& collective, EndsWait& waits) noexcept {
  collectives::Operation* const operation = collectives::Operation::of(collective);
  const ChannelHandle* const end = operation == nullptr ? nullptr : operation->awaited();
  if (end != nullptr)
    waits.add(*end);
  else
    waits.look_soon();
}

}  // namespace sluice::detail
