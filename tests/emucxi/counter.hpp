// SPDX-License-Identifier: Apache-2.0
// A counter: two fields, the work that they trigger, a page that takes stores, and a word for writebacks.
#pragma once

#include <rdma/fi_eq.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

#include "tests/emucxi/work.hpp"
#include "tests/layer/object.hpp"

namespace emucxi {

/// `users` are regions and endpoints that count on it.
class Counter : public layer::Part<fid_cntr, Domain> {
 public:
  /// With the domain's lock held.
  Counter(Domain& owner, void* context);
  ~Counter();

  std::uint64_t success() const { return success_; }
  std::uint64_t failure() const { return failure_; }

  void add(std::uint64_t more);
  void add_failures(std::uint64_t more);
  void set(std::uint64_t value);
  void set_failures(std::uint64_t value);

  /// Stores both fields in the word of the program.
  void write_back() const;
  void set_writeback(std::atomic<std::uint64_t>* word);

  /// The page, mapped by the first call; null if there is no memory.
  void* page();
  bool has_page() const { return page_ != nullptr; }
  /// Takes the words that were stored into the page. False: there were none.
  bool take_stores();

  /// The work that it triggers, by threshold; work of one threshold is in the order of queueing.
  std::multimap<std::uint64_t, Work> armed;

 private:
  std::atomic<std::uint64_t>& word(std::size_t offset) const;

  std::uint64_t success_ = 0;
  std::uint64_t failure_ = 0;
  std::byte* page_ = nullptr;
  std::atomic<std::uint64_t>* writeback_ = nullptr;
};

int open_counter(fid_domain* domain, fi_cntr_attr* attributes, fid_cntr** counter, void* context);

}  // namespace emucxi
