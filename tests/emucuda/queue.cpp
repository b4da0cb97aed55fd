// SPDX-License-Identifier: Apache-2.0
#include "tests/emucuda/queue.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/emucuda/backoff.hpp"
#include "tests/emucuda/context.hpp"
#include "tests/emucuda/deadlock.hpp"

namespace emucuda {

void Queue::push(Item item) {
  const std::lock_guard lock(mutex_);
  items_.push_back(std::move(item));
  // Queues live as long as the process, and so do their threads.
  if (!started_) std::thread([this] { run(); }).detach();
  started_ = true;
  filled_.notify_one();
}

void Queue::dawdle() {
  if (slow_us_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % (slow_us_ + 1)));
}

bool Queue::holds_up(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  return std::any_of(items_.begin(), items_.end(), [&](const Item& item) { return item.stream.get() != &stream; });
}

/// Waits until the mark is reached. The legacy stream makes others wait which the program has not ordered.
void Queue::wait_for(const Mark& mark, const Item& item) {
  Context& context = item.stream->context;
  HeldUp held_up(context.settings.held_up);
  Backoff backoff;
  for (; !mark.reached(); backoff.pause()) {
    const auto by_legacy = [&] {
      return mark.stream->parked_at != 0 && (context.is_legacy(mark.stream) || context.is_legacy(item.stream));
    };
    if (held_up.too_long(by_legacy))
      report_deadlock("a stream is held up by " + where(*mark.stream) + ": one of them is the legacy default stream");
  }
}

Item Queue::next() {
  std::unique_lock lock(mutex_);
  filled_.wait(lock, [this] { return !items_.empty(); });
  Item item = std::move(items_.front());
  items_.pop_front();
  return item;
}

void Queue::run() {
  for (;;) {
    Item item = next();
    perform(item);
  }
}

void Queue::perform(Item& item) {
  Stream& stream = *item.stream;
  Turn turn(stream, *this);
  for (const Mark& mark : item.after) wait_for(mark, item);
  turn.dawdle();
  if (stream.context.error() == CUDA_SUCCESS) stream.context.fail(item.work(turn));
  // Frees the memory that it holds before waiting operations go on.
  item.work = nullptr;
  stream.completed.store(item.ticket);
}

Context& Turn::context() const { return stream_.context; }

void Turn::dawdle() { queue_.dawdle(); }

bool Turn::park(const Piece& word, std::uintptr_t address, std::uint64_t value, const std::function<bool()>& ready) {
  Backoff backoff;
  HeldUp held_up(context().settings.held_up);
  while (!ready()) {
    if (!word.range->live || context().error() != CUDA_SUCCESS) break;
    stream_.parked_for.store(value);
    stream_.parked_at.store(address);
    if (held_up.too_long([&] { return queue_.holds_up(stream_); }))
      report_deadlock("a stream is held up by " + where(stream_) + ": they share a hardware queue");
    backoff.pause();
  }
  stream_.parked_at.store(0);
  return word.range->live && context().error() == CUDA_SUCCESS;
}

void Turn::run_kernel(const std::function<void()>& kernel) const {
  HeldUp held_up(context().settings.held_up);
  Backoff backoff;
  for (; !context().try_to_begin_kernel(); backoff.pause()) {
    if (held_up.too_long([] { return true; }))
      report_deadlock("a kernel is held up by others, which hold the whole device");
  }
  kernel();
  context().end_kernel();
}

void Turn::wait(const std::function<bool()>& ready) const {
  Backoff backoff;
  while (!ready()) backoff.pause();
}

}  // namespace emucuda
