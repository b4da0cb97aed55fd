// SPDX-License-Identifier: Apache-2.0
// A completion queue as programs see it: entries to read, and a descriptor to wait for them.
#pragma once

#include <rdma/fi_eq.h>

#include <cstddef>
#include <cstdint>
#include <deque>

#include "tests/layer/fabric.hpp"

namespace layer {

class Queue : public Part<fid_cq, Domain> {
 public:
  Queue(Domain& owner, const fi_cq_attr& attributes, int descriptor, void* context);
  virtual ~Queue();

  /// Before software reads: makes entries of what has completed.
  virtual void progress() = 0;
  virtual bool quiet() const { return entries_.empty(); }

  /// Reads up to `count` entries of the queue's format; -FI_EAGAIN, -FI_EAVAIL if the first is an error, or
  /// -FI_EOVERRUN.
  ssize_t read(void* buffer, std::size_t count);
  ssize_t read_error(fi_cq_err_entry& entry);

  /// Readable while it is not quiet; -1 without a wait object.
  int descriptor() const { return descriptor_; }

 protected:
  /// An entry with `err` set is an error.
  void add(const fi_cq_err_entry& entry) { entries_.push_back(entry); }
  /// Makes the descriptor readable.
  void announce() const;
  /// Entries were lost: there is no more to read.
  void overrun() { overrun_ = true; }

 private:
  /// Clears the descriptor if the queue is quiet.
  void settle() const;

  fi_cq_format format_;
  int descriptor_;
  bool overrun_ = false;
  std::deque<fi_cq_err_entry> entries_;
};

/// The descriptor for a wait object, -1 if no wait object is wanted, or another negative error.
int wait_descriptor(fi_wait_obj wanted);

/// fi_trywait: -FI_EAGAIN if one of `handles` has entries, so that the program must not wait for its descriptor.
int try_wait(fid_fabric* fabric, fid** handles, int count);

}  // namespace layer
