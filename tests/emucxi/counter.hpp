// SPDX-License-Identifier: Apache-2.0
// A counter: two fields, what they trigger, a page that takes stores, and a word that it is written back to.
#pragma once

#include <rdma/fi_eq.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

#include "tests/emucxi/work.hpp"

namespace emucxi {

/// Everything with the domain's lock held.
class Counter : public fid_cntr {
 public:
  using Fid = fid_cntr;

  Counter(Domain& domain, void* context);
  ~Counter();
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  Domain& domain() const { return domain_; }
  std::uint64_t success() const { return success_; }
  std::uint64_t failure() const { return failure_; }

  void add(std::uint64_t more);
  void add_failures(std::uint64_t more);
  void set(std::uint64_t value);
  void set_failures(std::uint64_t value);

  /// Stores both fields where the program wants them.
  void write_back();
  void set_writeback(std::atomic<std::uint64_t>* word);

  /// The page, mapped when first asked for; null if there is no memory.
  void* page();
  bool has_page() const { return page_ != nullptr; }
  /// Takes what was stored into the page. False: nothing.
  bool take_stores();

  /// What it triggers, by threshold, and in the order of queueing where thresholds are the same.
  std::multimap<std::uint64_t, Work> armed;
  /// Regions and endpoints that count on it.
  int users = 0;

 private:
  std::atomic<std::uint64_t>& word(std::size_t offset) const;

  Domain& domain_;
  std::uint64_t success_ = 0;
  std::uint64_t failure_ = 0;
  std::byte* page_ = nullptr;
  std::atomic<std::uint64_t>* writeback_ = nullptr;
};

int open_counter(fid_domain* domain, fi_cntr_attr* attributes, fid_cntr** counter, void* context);

}  // namespace emucxi
