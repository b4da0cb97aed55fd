// SPDX-License-Identifier: Apache-2.0
// A memory region, which others can reach only after the steps that cxi demands, in its order.
#pragma once

#include <rdma/fi_domain.h>

#include <cstdint>

namespace emucxi {

class Counter;
class Domain;
class Endpoint;

/// Everything with the domain's lock held.
class Region : public fid_mr {
 public:
  using Fid = fid_mr;

  Region(Domain& domain, const fi_mr_attr& attributes, std::uint64_t flags);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  Domain& domain() const { return domain_; }

  int bind(Endpoint& endpoint);
  int bind(Counter& counter, std::uint64_t flags);
  int enable();

  bool counts() const { return arrivals_ != nullptr; }
  /// Counts what others have written since. False: nothing.
  bool poll();

 private:
  int open_inner();

  Domain& domain_;
  iovec memory_;
  std::uint64_t access_;
  std::uint64_t wanted_key_;
  bool events_;
  Endpoint* endpoint_ = nullptr;
  Counter* counter_ = nullptr;
  bool enabled_ = false;
  fid_mr* inner_ = nullptr;
  fid_cntr* arrivals_ = nullptr;  // of `sockets`: as many as others have written, 32 bits
  std::uint32_t counted_ = 0;
};

extern fi_ops_mr region_ops;

}  // namespace emucxi
