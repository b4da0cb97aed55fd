// SPDX-License-Identifier: Apache-2.0
// The objects behind CUDA's handles. A handle is a number that is never used twice, and no address: a stale one
// is found. Only pools can reuse their handles (EMUCUDA_POOLS_RECYCLE).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace emucuda {

inline std::uintptr_t next_handle() {
  static std::atomic<std::uintptr_t> last{0x1000};
  return last += 16;
}

template <class T>
class Handles {
 public:
  /// `Handle` is one of CUDA's pointer types, or its integer for memory.
  template <class Handle>
  void add(const std::shared_ptr<T>& object, Handle* handle) {
    const std::lock_guard lock(mutex_);
    add_as(next_handle(), object, handle);
  }

  /// As one may that is an address: under the number that was taken last, if there is one.
  template <class Handle>
  void add_again(const std::shared_ptr<T>& object, Handle* handle) {
    const std::lock_guard lock(mutex_);
    add_as(taken_ != 0 ? std::exchange(taken_, 0) : next_handle(), object, handle);
  }

  template <class Handle>
  std::shared_ptr<T> find(Handle handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find((std::uintptr_t)handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  /// The handle of one for which it is so; 0: of none.
  template <class Predicate>
  std::uintptr_t handle_if(Predicate predicate) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, object] : objects_) {
      if (predicate(*object)) return handle;
    }
    return 0;
  }

  /// Finds it, and forgets it.
  template <class Handle>
  std::shared_ptr<T> take(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find((std::uintptr_t)handle);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<T> object = found->second;
    taken_ = found->first;
    objects_.erase(found);
    return object;
  }

  template <class Predicate>
  void forget_if(Predicate predicate) {
    const std::lock_guard lock(mutex_);
    std::erase_if(objects_, [&](const auto& entry) { return predicate(*entry.second); });
  }

 private:
  template <class Handle>
  void add_as(std::uintptr_t number, const std::shared_ptr<T>& object, Handle* handle) {
    objects_[number] = object;
    *handle = (Handle)number;
  }

  mutable std::mutex mutex_;
  std::uintptr_t taken_ = 0;
  std::map<std::uintptr_t, std::shared_ptr<T>> objects_;
};

}  // namespace emucuda
