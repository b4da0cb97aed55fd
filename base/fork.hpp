// SPDX-License-Identifier: Apache-2.0
// What a child of fork must know: it has copies of all objects of its parent, and none of the threads that they count
// on; the sockets and the shared memory are still the parent's too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

namespace sluice::base {

/// A page that the kernel gives to children of fork as zeros, whoever called fork.
struct alignas(4096) WipedPage {
  std::atomic<std::int64_t> process{0};
};
extern WipedPage wiped_page;

/// The number of this process among its ancestors, or 0: nothing here has asked `this_process` yet. Numbers are
/// multiples of 16: a small one may be added to one.
inline std::int64_t process_if_known() noexcept { return wiped_page.process.load(std::memory_order_relaxed); }

/// The same, never 0. Any thread; takes no locks, which a child would find taken. @throws std::bad_alloc
std::int64_t this_process();

/// The process in which an object was made.
class Origin {
 public:
  Origin() : process_(this_process()) {}
  /// False in a child that was forked later.
  bool here() const noexcept { return process_ == process_if_known(); }

 private:
  std::int64_t process_;
};

/// Why a child may not use an object.
inline constexpr const char* kForked =
    "this process was forked after that: it may make ranks of its own, and not use its parent's";

/// Deletes what was made in this process. What a parent made stays as it is: to destroy the copy would talk to the
/// parent's peers, or wait for threads that are not here.
struct DeleteHere {
  template <class T>
  void operator()(T* object) const noexcept {
    if (origin.here()) delete object;
  }
  Origin origin;
};

/// As std::make_shared, deleted by DeleteHere.
template <class T, class... Arguments>
std::shared_ptr<T> make_here(Arguments&&... arguments) {
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), DeleteHere{});
}

/// One T in each process, made when it is first asked for: a child begins with one of its own. Never destroyed, since
/// static destructors may come later. For static objects: it needs no construction, and no lock that a fork may leave
/// taken.
template <class T>
class OnePerProcess {
 public:
  constexpr OnePerProcess() noexcept = default;
  OnePerProcess(const OnePerProcess&) = delete;
  OnePerProcess& operator=(const OnePerProcess&) = delete;

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
    const Made* of_parent = nullptr;  // so that checkers for leaks find it
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

  std::atomic<std::int64_t> state_{0};  // the process that `last_` was made in; one more: which is making it
  Made* last_ = nullptr;
};

}  // namespace sluice::base
