// SPDX-License-Identifier: Apache-2.0
// A completion queue: completions as the NIC writes them, and the entries that software makes of them.
#pragma once

#include <deque>
#include <memory>

#include "tests/emucxi/work.hpp"
#include "tests/layer/queue.hpp"

namespace emucxi {

class Queue : public layer::Queue {
 public:
  using layer::Queue::Queue;

  /// The NIC's side: `transfer` has completed.
  void finished(std::unique_ptr<Transfer> transfer, int error);
  /// Software's side: returns requests to their endpoints, and makes the entries that programs requested.
  void progress() override;
  bool quiet() const override { return finished_.empty() && layer::Queue::quiet(); }

  void forget(const Endpoint& endpoint);

 private:
  struct Finished {
    std::unique_ptr<Transfer> transfer;
    int error;
  };

  std::deque<Finished> finished_;
  std::uint64_t entries_ = 0;  // so far
};

int open_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context);

}  // namespace emucxi
