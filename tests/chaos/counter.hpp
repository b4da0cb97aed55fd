// SPDX-License-Identifier: Apache-2.0
// Counters, deferred work, and memory that counts the writes that land in it.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_trigger.h>

#include <cstdint>
#include <map>
#include <utility>

#include "tests/chaos/settings.hpp"
#include "tests/chaos/write.hpp"
#include "tests/layer/object.hpp"

namespace chaos {

class Domain;
class Endpoint;

class Counter : public layer::Part<fid_cntr, Domain> {
 public:
  Counter(Domain& owner, void* context);
  ~Counter();

  std::uint64_t value() const { return value_; }
  std::uint64_t failures() const { return failures_; }
  void add(std::uint64_t value, std::uint64_t failures);
  /// Begins `write` when the counter reaches `threshold`.
  void arm(std::uint64_t threshold, Endpoint& endpoint, Write write);

 private:
  void fire();

  std::uint64_t value_ = 0;
  std::uint64_t failures_ = 0;
  std::multimap<std::uint64_t, std::pair<Endpoint*, Write>> armed_;
};

/// A memory region, which may have a counter. Closed with the lock held, because the network below does not lock its
/// table of regions.
class Region : public layer::Part<fid_mr, Domain> {
 public:
  Region(Domain& owner, fid_mr* wrapped, void* context);
  ~Region();

  void landed() const {
    if (counter) counter->add(1, 0);
  }

  Counter* counter = nullptr;

 private:
  fid_mr* inner_;
};

int open_counter(fid_domain* domain, fi_cntr_attr* attributes, fid_cntr** counter, void* context);
/// FI_QUEUE_WORK.
int queue_work(const Settings& settings, const fi_deferred_work& asked);

}  // namespace chaos
