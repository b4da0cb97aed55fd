// SPDX-License-Identifier: Apache-2.0
// A completion queue as programs see it: entries to read, and a descriptor to wait for them.
#pragma once

#include <rdma/fi_eq.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>

namespace layer {

/// Everything with the lock of its provider held.
class Queue : public fid_cq {
 public:
  using Fid = fid_cq;

  virtual ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // What differs between providers.

  /// Calls with the lock held.
  virtual void locked(const std::function<void()>& call) = 0;
  /// Before software reads: makes entries of what has come.
  virtual void progress() = 0;
  virtual bool quiet() const { return entries_.empty(); }
  /// Deletes it. Not with the lock held.
  virtual int close() = 0;

  /// Reads up to `count` entries of the queue's format; -FI_EAGAIN, or -FI_EAVAIL if the first is an error.
  ssize_t read(void* buffer, std::size_t count);
  ssize_t read_error(fi_cq_err_entry& entry);

  /// Readable while it is not quiet; -1 without a wait object.
  int descriptor() const { return descriptor_; }

 protected:
  Queue(const fi_cq_attr& attributes, int descriptor, void* context);
  /// One with `err` is an error.
  void add(const fi_cq_err_entry& entry) { entries_.push_back(entry); }
  /// It is not quiet any more.
  void announce() const;

 private:
  void settle() const;

  fi_cq_format format_;
  int descriptor_;
  std::deque<fi_cq_err_entry> entries_;
};

/// The descriptor for a wait object; -1: none wanted; another negative error.
int wait_descriptor(fi_wait_obj wanted);

/// fi_trywait: -FI_EAGAIN if one of `handles` has something, so that waiting for its descriptor would be wrong.
int try_wait(fid_fabric* fabric, fid** handles, int count);

}  // namespace layer
