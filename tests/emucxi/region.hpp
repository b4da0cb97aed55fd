// SPDX-License-Identifier: Apache-2.0
// A memory region, which peers can access only after the steps that cxi requires, in the order of cxi.
#pragma once

#include <rdma/fi_domain.h>

#include <cstdint>

#include "tests/layer/object.hpp"

namespace emucxi {

class Counter;
class Domain;
class Endpoint;

class Region : public layer::Part<fid_mr, Domain> {
 public:
  /// With the domain's lock held.
  Region(Domain& owner, const fi_mr_attr& attributes, std::uint64_t flags);
  ~Region();

  int bind(Endpoint& endpoint);
  int bind(Counter& counter, std::uint64_t flags);
  int enable();

  bool counts() const { return arrivals_ != nullptr; }
  /// Counts the writes of peers since the last call. False: there were none.
  bool poll();

 private:
  int open_inner();

  iovec memory_;
  std::uint64_t access_;
  std::uint64_t wanted_key_;
  bool events_;
  Endpoint* endpoint_ = nullptr;
  Counter* counter_ = nullptr;
  bool enabled_ = false;
  fid_mr* inner_ = nullptr;
  fid_cntr* arrivals_ = nullptr;  // of `sockets`: the number of writes of peers, 32 bits
  std::uint32_t counted_ = 0;
};

extern fi_ops_mr region_ops;

}  // namespace emucxi
