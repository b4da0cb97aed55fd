// SPDX-License-Identifier: Apache-2.0
// A completion queue: what the NIC has written, and what software has made of it.
#pragma once

#include <rdma/fi_eq.h>

#include <deque>
#include <memory>
#include <vector>

#include "tests/emucxi/work.hpp"

namespace emucxi {

/// Everything with the domain's lock held.
class Queue : public fid_cq {
 public:
  using Fid = fid_cq;

  Queue(Domain& domain, const fi_cq_attr& attributes, int descriptor, void* context);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  Domain& domain() const { return domain_; }
  fi_cq_format format() const { return format_; }
  /// Readable while there is something for software to do; -1 without a wait object.
  int descriptor() const { return descriptor_; }

  /// The NIC's side: `transfer` is over.
  void finished(std::unique_ptr<Transfer> transfer, int error);
  /// Software's side: gives requests back to their endpoints, and makes entries for who asked for them.
  void progress();
  bool quiet() const { return finished_.empty() && entries_.empty(); }
  /// Clears the descriptor if there is nothing left.
  void settle() const;

  const fi_cq_err_entry* front() const { return entries_.empty() ? nullptr : &entries_.front(); }
  void pop() { entries_.pop_front(); }

  void forget(const Endpoint& endpoint);

  std::vector<Endpoint*> endpoints;

 private:
  struct Finished {
    std::unique_ptr<Transfer> transfer;
    int error;
  };

  Domain& domain_;
  fi_cq_format format_;
  int descriptor_;
  std::deque<Finished> finished_;
  std::deque<fi_cq_err_entry> entries_;
};

int open_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context);

/// fi_trywait: -FI_EAGAIN if one of `handles` has something, so that waiting for its descriptor would be wrong.
int try_wait(fid_fabric* fabric, fid** handles, int count);

}  // namespace emucxi
