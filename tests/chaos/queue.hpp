// SPDX-License-Identifier: Apache-2.0
// A completion queue: completions of writes of this side, and remote CQ data of writes of peers.
#pragma once

#include "tests/layer/queue.hpp"

namespace chaos {

class Domain;

class Queue : public layer::Queue {
 public:
  Queue(Domain& owner, const fi_cq_attr& attributes, int descriptor, fid_cq* wrapped, int below, void* context);
  ~Queue() override;

  void progress() override;

  /// Adds the entry of the write that was posted with `context`.
  void complete(void* context, int error);
  /// Reads the completions of the network below.
  void poll();

  fid_cq* const inner;
  const int inner_descriptor;

 private:
  void poll_error();

  Domain& domain_;
};

int open_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context);

}  // namespace chaos
