// SPDX-License-Identifier: Apache-2.0
// A stream: operations numbered in the order of submission, done in that order by the thread of its queue.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tests/emucuda/addresses.hpp"
#include "tests/emucuda/cuda_api.hpp"

namespace emucuda {

class Context;
class Queue;
class Turn;

/// One operation of a stream. Any result but success is the context's error from then on.
using Work = std::function<CUresult(Turn&)>;
using Operations = std::vector<Work>;

/// A function of the host, as Work.
struct HostFunction {
  CUhostFn function;
  void* data;
  CUresult operator()(Turn& turn) const;
};

struct Stream {
  Stream(Context& owner, unsigned with_flags, int with_priority, Queue& on)
      : context(owner), flags(with_flags), priority(with_priority), queue(on) {}

  bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
  bool idle() const { return completed.load() >= submitted.load(); }
  /// True for the operation that emucuda_refuse_of has chosen.
  bool refuses_next() {
    unsigned left = refused_in.load();
    while (left != 0 && !refused_in.compare_exchange_weak(left, left - 1)) {
    }
    return left == 1;
  }

  Context& context;
  const std::uint64_t id = next_id();  // no two ever share one
  const unsigned flags;
  const int priority;
  Queue& queue;
  std::atomic<std::uint64_t> submitted{0};
  std::atomic<std::uint64_t> completed{0};
  std::atomic<std::uint64_t> functions{0};  // of the host, that are still to run
  std::atomic<std::uint64_t> parked_at{0};  // the word it waits for, as the program calls it; 0: none
  std::atomic<std::uint64_t> parked_for{0};
  std::atomic<int> awaited{0};          // by so many threads
  std::atomic<unsigned> refused_in{0};  // the so many-th operation from now on is refused; 0: none

 private:
  static std::uint64_t next_id() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }
};
using StreamPtr = std::shared_ptr<Stream>;

/// A point in a stream.
struct Mark {
  StreamPtr stream;
  std::uint64_t ticket = 0;
  bool reached() const { return !stream || stream->completed.load() >= ticket; }
};
using Marks = std::vector<Mark>;

struct Item {
  StreamPtr stream;
  std::uint64_t ticket;
  Marks after;
  Work work;
};

/// The actions of an operation while it runs.
class Turn {
 public:
  Turn(Stream& stream, Queue& queue) : stream_(stream), queue_(queue) {}

  Context& context() const;
  /// Sleeps for a random time up to EMUCUDA_SLOW_US.
  void dawdle();
  /// Waits until `ready()`, which looks at `word`. False: the word was freed, or the context has failed.
  bool park(const Piece& word, std::uintptr_t address, std::uint64_t value, const std::function<bool()>& ready);
  /// Once the device has a place for it.
  void run_kernel(const std::function<void()>& kernel) const;
  void function_over() const { --stream_.functions; }
  /// Waits for something that other streams do.
  void wait(const std::function<bool()>& ready) const;

 private:
  Stream& stream_;
  Queue& queue_;
};

}  // namespace emucuda
