// SPDX-License-Identifier: Apache-2.0
// Classes that are the objects which libfabric's inline calls expect, and the calls that are alike for all of them.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <atomic>

namespace layer {

/// Derives from the structure of libfabric whose first member is the fid.
template <class F>
class Object : public F {
 public:
  using Fid = F;

  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  /// How many other objects use this one, which cannot be closed before them.
  std::atomic<int> users = 0;

 protected:
  explicit Object(const F& base) : F(base) {}
  ~Object() = default;
};

/// An object of a domain. The domain's lock is held in every call but the constructor.
template <class F, class D>
class Part : public Object<F> {
 public:
  D& domain;

 protected:
  Part(const F& base, D& owner) : Object<F>(base), domain(owner) { ++domain.users; }
  ~Part() { --domain.users; }
};

/// The object behind an fid.
template <class T>
T& object(fid* handle) {
  return *static_cast<T*>(reinterpret_cast<typename T::Fid*>(handle));
}

/// Calls `call` with the part behind an fid, with the domain's lock held.
template <class T, class F>
auto locked(fid* handle, F call) {
  T& part = object<T>(handle);
  return part.domain.locked([&] { return call(part); });
}

/// fi_close of a fabric or a domain.
template <class T>
int close(fid* handle) {
  T& closed = object<T>(handle);
  if (closed.users > 0) return -FI_EBUSY;
  delete &closed;
  return 0;
}

/// fi_close of a part.
template <class T>
int close_part(fid* handle) {
  return locked<T>(handle, [](T& part) { return close<T>(&part.fid); });
}

/// fi_control of a part that can only be enabled.
template <class T>
int enable(fid* handle, int command, void*) {
  if (command != FI_ENABLE) return -FI_ENOSYS;
  return locked<T>(handle, [](T& part) { return part.enable(); });
}

}  // namespace layer
