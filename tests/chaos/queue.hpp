// SPDX-License-Identifier: Apache-2.0
// A completion queue: what has ended here, and what came with the writes of others.
#pragma once

#include <cstdint>

#include "tests/layer/queue.hpp"

namespace chaos {

class Domain;

class Queue : public layer::Queue {
 public:
  Queue(Domain& domain, const fi_cq_attr& attributes, int descriptor, fid_cq* wrapped, int below, void* context);
  ~Queue() override;

  void locked(const std::function<void()>& call) override;
  void progress() override;
  int close() override;

  /// What was posted with `context` is over.
  void ended(void* context, int error);
  /// From the network below.
  void poll();

  fid_cq* const inner;
  const int inner_descriptor;

 private:
  void poll_error();

  Domain& domain_;
};

int open_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context);

}  // namespace chaos
