// SPDX-License-Identifier: Apache-2.0
// Counters, the work that waits for them, and the memory that counts what lands in it.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_trigger.h>

#include <cstdint>
#include <map>
#include <utility>

#include "tests/chaos/write.hpp"

namespace chaos {

class Domain;
class Endpoint;

/// Everything with the domain's lock held.
class Counter : public fid_cntr {
 public:
  using Fid = fid_cntr;

  Counter(Domain& domain, void* context);
  ~Counter();
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  Domain& domain() const { return domain_; }
  std::uint64_t value() const { return value_; }
  std::uint64_t failures() const { return failures_; }
  void add(std::uint64_t value, std::uint64_t failures);
  /// Begins `write` when it has counted so far.
  void arm(std::uint64_t threshold, Endpoint& endpoint, Write write);

 private:
  void fire();

  Domain& domain_;
  std::uint64_t value_ = 0;
  std::uint64_t failures_ = 0;
  std::multimap<std::uint64_t, std::pair<Endpoint*, Write>> armed_;
};

/// Memory, which may count. Closed under the lock: the network below does not lock its table of memory.
class Region : public fid_mr {
 public:
  using Fid = fid_mr;

  Region(Domain& domain, fid_mr* wrapped, void* context);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  Domain& domain() const { return domain_; }
  void landed() const {
    if (counter) counter->add(1, 0);
  }

  Counter* counter = nullptr;

 private:
  Domain& domain_;
  fid_mr* inner_;
};

int open_counter(fid_domain* domain, fi_cntr_attr* attributes, fid_cntr** counter, void* context);
int queue_work(Domain& domain, const fi_deferred_work& asked);

}  // namespace chaos
