// SPDX-License-Identifier: Apache-2.0
// Children of fork. A child has copies of all objects of its parent, but none of the threads that they need, and it
// shares the sockets and the shared memory with the parent.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace sluice::base {

/// A page that the kernel gives to each child as zeros, also where no `fork` of the C library was called.
struct alignas(4096) WipedPage {
  std::atomic<std::int64_t> process{0};
};
[[gnu::visibility("default")]] extern WipedPage wiped_page;

/// Returns the number of this process, which no ancestor has; 0 before the first call of `this_process`. Numbers are
/// multiples of 16, so that a small number can be added to one.
inline std::int64_t process_if_known() noexcept { return wiped_page.process.load(std::memory_order_relaxed); }

/// Returns the number of this process, assigned at the first call. Any thread. Takes no locks, which a child might find
/// locked for ever. @throws std::bad_alloc
[[gnu::visibility("default")]] std::int64_t this_process();

/// The process that made an object.
class Origin {
 public:
  Origin() : process_(this_process()) {}
  /// False in a child that was forked later.
  bool here() const noexcept { return process_ == process_if_known(); }

 private:
  std::int64_t process_;
};

/// The text of the error when a child uses an object of its parent.
inline constexpr const char* kForked =
    "this process was forked after that: it may make ranks of its own, and not use its parent's";

/// Deletes objects in the process that made them, and does nothing in a child: destroying a child's copy would send
/// messages to the parent's peers, or wait for threads that do not run in the child.
struct DeleteHere {
  template <class T>
  void operator()(T* object) const noexcept {
    if (origin.here()) delete object;
  }
  Origin origin;
};

/// Like std::make_shared, deleted by DeleteHere.
template <class T, class... Arguments>
std::shared_ptr<T> make_here(Arguments&&... arguments) {
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), DeleteHere{});
}

/// A value, and the mutex that guards it.
template <class T>
struct Guarded {
  std::mutex mutex;
  T value{};
};

/// A static object of which each process has its own: the first use in a process makes it, also in a child. Never
/// destroyed, because other static destructors may use it later. Takes no locks.
template <class T>
class OnePerProcess {
 public:
  T& operator*() {
    const std::int64_t made = this_process();
    const std::int64_t making = made + 1;
    for (std::int64_t seen = state_.load(std::memory_order_acquire); seen != made;
         seen = state_.load(std::memory_order_acquire)) {
      if (seen == making) {
        std::this_thread::yield();
      } else if (state_.compare_exchange_strong(seen, making)) {
        make(made);
      }
    }
    return last_->value;
  }
  T* operator->() { return &**this; }

 private:
  struct Made {
    T value{};
    const Made* of_parent = nullptr;  // keeps it reachable for leak checkers
  };

  void make(std::int64_t made) {
    try {
      auto fresh = std::make_unique<Made>();
      fresh->of_parent = last_;
      last_ = fresh.release();
    } catch (...) {
      state_.store(0);
      throw;
    }
    state_.store(made, std::memory_order_release);
  }

  std::atomic<std::int64_t> state_{0};  // the number of the process that made `last_`; plus 1 while it is being made
  Made* last_ = nullptr;
};

}  // namespace sluice::base
