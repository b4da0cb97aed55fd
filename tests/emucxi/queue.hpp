// SPDX-License-Identifier: Apache-2.0
// A completion queue: what the NIC has written, and what software has made of it.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "tests/emucxi/work.hpp"
#include "tests/layer/queue.hpp"

namespace emucxi {

/// Everything with the domain's lock held.
class Queue : public layer::Queue {
 public:
  Queue(Domain& domain, const fi_cq_attr& attributes, int descriptor, void* context);

  Domain& domain() const { return domain_; }
  void locked(const std::function<void()>& call) override;

  /// The NIC's side: `transfer` is over.
  void finished(std::unique_ptr<Transfer> transfer, int error);
  /// Software's side: gives requests back to their endpoints, and makes entries for who asked for them.
  void progress() override;
  bool quiet() const override { return finished_.empty() && layer::Queue::quiet(); }

  void forget(const Endpoint& endpoint);
  int close() override;

  std::vector<Endpoint*> endpoints;

 private:
  struct Finished {
    std::unique_ptr<Transfer> transfer;
    int error;
  };

  Domain& domain_;
  std::deque<Finished> finished_;
};

int open_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context);

}  // namespace emucxi
