// SPDX-License-Identifier: Apache-2.0
#include "segments/end.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "runtime/engine.hpp"
#include "runtime/error_text.hpp"
#include "runtime/kept.hpp"

namespace sluice::segments {

namespace {

std::string text_of(const Range& range) {
  return std::to_string(range.count) + " bytes from offset " + std::to_string(range.offset);
}

}  // namespace

End::End(Context& in, Rank of_peer, Tag of_tag, Slice of_memory, const char* role)
    : peer(of_peer), tag(of_tag), memory(std::move(of_memory)), context_(in),
      scope_(context_.scope("@segments:" + std::to_string(tag))),
      name_("segments of tag " + std::to_string(tag) + ", " + role) {
  if (memory.bytes() == 0) throw error(Code::bad_argument, "the buffer is empty");
}

Sender End::open_sender(Tag of_part, const Slice& slots, int depth) {
  Sender made = scope_.sender(peer, of_part, slots, {.depth = depth, .name = name_});
  runtime::ChannelEnd& end = *detail::ChannelAccess::end(made);
  runtime::SharedFate::join(fate_, end);
  ends_.push_back(&end);
  return made;
}

Receiver End::open_receiver(Tag of_part, const Slice& slots, int depth) {
  Receiver made = scope_.receiver(peer, of_part, slots, {.depth = depth, .name = name_, .shared_memory = true});
  runtime::ChannelEnd& end = *detail::ChannelAccess::end(made);
  runtime::SharedFate::join(fate_, end);
  ends_.push_back(&end);
  return made;
}

void End::begin(const Receiver& hub) {
  main_ = &core_of(hub);
  std::vector<base::Parking*> places;
  core_of(hub).add_places(places);
  hub_ = places.front();
  threads_.emplace(main_->own_services(), context_.rank(), "segments", fate_);
}

Error End::error(Code code, const std::string& what) const {
  return {code, context_.rank(), peer, tag, 0, name_ + ": " + what};
}

Range End::range(std::size_t offset, std::size_t count) const {
  if (offset <= memory.bytes() && count <= memory.bytes() - offset) return {offset, count};
  throw error(Code::bad_argument,
              text_of({offset, count}) + " do not lie inside a buffer of " + std::to_string(memory.bytes()));
}

void End::throw_timeout(const char* what, const Range& range, std::optional<Timeout> timeout) const {
  throw error(Code::timeout, what + (" " + text_of(range)) + ": not after " +
                                 base::duration_text(timeout.value_or(context_.timeout())));
}

void End::check() const {
  if (abandoned_.load(std::memory_order_relaxed)) throw error(Code::aborted, "the end was destroyed");
  if (!ends_.front()->failed()) return;
  try {
    fate_->check();
    ends_.front()->check();
  } catch (const Error& reason) {
    throw error(reason.code(), detail::without_kind(reason));
  }
}

void End::check_open() const {
  if (closing_.load(std::memory_order_relaxed)) throw error(Code::misuse, "the end is closed");
  check();
}

std::optional<Slice> End::take(Receiver& receiver) {
  const detail::ReceiverCore& core = core_of(receiver);
  if (core.failed() || !core_of(receiver).may_take() || core.all_taken()) return std::nullopt;
  return receiver.test();
}

/// As ChannelEnd::await_in_host, but for all ends. Without a verb only the limit ends a sleep.
bool End::sleep_until(base::Limit& limit, const char* verb, const std::function<bool()>& ready) {
  if (ready()) return true;
  const runtime::ChannelEnd& first = *main_;
  device::Helper* const helper = first.services().engine.helper();
  if (limit.left() == base::Clock::duration::zero()) {
    if (helper != nullptr) helper->look();
    return helper != nullptr && ready();
  }
  if (helper != nullptr && device::help_until(*helper, std::cref(ready), limit.next())) return true;
  runtime::ChannelEnd::Warning warning = first.new_warning(first.epoch() + 1, verb);
  std::vector<base::Parking*> places;
  const auto find_places = [&] {
    const std::lock_guard lock(mutex_);
    places.assign(1, hub_);
    add_places(places);
    std::ranges::sort(places);
    places.erase(std::unique(places.begin(), places.end()), places.end());
  };
  const auto next_look = [&] {
    return verb == nullptr ? limit.next() : std::min(limit.next(), first.next_look(warning));
  };
  for (find_places(); !base::wait_until(places, ready, next_look()); find_places()) {
    if (verb != nullptr) first.look_at(warning);
    if (!limit.over()) continue;
    if (helper != nullptr) helper->look();  // it may have arrived while the process stood still
    return ready();
  }
  return true;
}

/// Kernels of the stream use the buffer.
void End::lend_to_kernels(Stream stream) {
  device::check_supported(stream, context_.rank());
  device::Driver& driver = *device::driver(stream.kind());
  try {
    ends_.front()->lend_slots(driver, driver.device_of(stream.handle()));
  } catch (const device::GpuError& reason) {
    throw error(Code::out_of_resources, reason.what());
  }
}

void End::run(Stream stream, const char* what, const Range& range, std::function<bool(base::Limit&)> work) {
  if (device::of_gpu(stream)) lend_to_kernels(stream);
  threads_->run(stream, [this, what, range, work = std::move(work)](device::Lane) {
    try {
      base::Limit time = limit({});
      if (!work(time)) throw_timeout(what, range, {});
    } catch (const Error& reason) {
      if (!abandoned_) fail(reason);
    }
  });
}

void End::wait_connected(std::optional<Timeout> timeout) {
  const Timeout stated = timeout.value_or(context_.connect_timeout());
  base::Limit limit(stated);
  for (runtime::ChannelEnd* const end : ends_) end->wait_connected(limit, stated);
}

runtime::ChannelEnd* End::shut(base::Limit& limit) {
  if (runtime::ChannelEnd* const open = threads_->close(limit)) return open;
  stop();
  for (const runtime::ChannelEnd* const end : ends_) fate_->leave(*end);
  runtime::ChannelEnd* const open = runtime::close_all(ends_, limit);
  closed_ = open == nullptr;
  return open;
}

void End::close(std::optional<Timeout> timeout) {
  if (closed_) return;
  closing_ = true;
  const Timeout stated = timeout.value_or(context_.connect_timeout());
  base::Limit limit(stated);
  if (const runtime::ChannelEnd* const open = shut(limit))
    throw error(Code::timeout, detail::without_kind(open->not_closed(stated)));
}

/// An exception that unwinds the stack ends the channels here, since a WaitAny may keep this end.
bool End::leave() noexcept {
  if (closed_ || !origin.here()) return true;
  closing_ = true;
  const bool unwinds = std::uncaught_exceptions() > 0;
  try {
    base::Limit limit(context_.connect_timeout());
    if (!unwinds && shut(limit) == nullptr) return true;
  } catch (const std::exception& reason) {
    base::log(base::LogLevel::warn, reason.what());
  }
  abandoned_ = true;
  if (!unwinds) {
    for (runtime::ChannelEnd* const end : ends_) {
      if (!end->closed()) fate_->rejoin(*end);  // else nothing of what `shut` could not close would fail
    }
    fate_->fail(Code::aborted, name_ + ": destroyed while its work had not completed");
    base::log(base::LogLevel::warn, name_ + ": kept what streams or peers still use");
    wake();
    return false;
  }
  wake();
  threads_->clear();
  stop();
  for (runtime::ChannelEnd* const end : ends_) runtime::abandon(end->shared_from_this());
  return true;
}

std::string End::describe() const {
  return name_ + " of " + std::to_string(memory.bytes()) + " bytes, " + std::to_string(kLanes) +
         " lanes, each: " + ends_.front()->describe();
}

}  // namespace sluice::segments
