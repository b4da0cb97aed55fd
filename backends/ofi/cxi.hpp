// SPDX-License-Identifier: Apache-2.0
// Offers of HPE's Slingshot NICs beyond libfabric: counters with a page that threads and GPU streams may store to, and
// a limit on armed work. The small ABI is stated here, since its header is rarely installed.
#pragma once

#include <optional>

#include "backends/ofi/triggered.hpp"

namespace sluice::backends::ofi {

/// A counter's page. A store of 8 bytes adds its value to the counter: it is never read, and never stored a total to.
struct CounterPage {
  std::atomic<std::uint64_t>* add = nullptr;
  /// An emulated page is memory, whose reader may see two stores in a row as one: each store waits until the one before
  /// is taken. Hardware counts every store.
  bool paced = false;
};

/// The page of a counter, if it has one.
std::optional<CounterPage> page_of(const Rail& rail, fid_cntr* counter);

/// The rail's counters have pages, and a ring of one was seen to arrive.
bool pages_work(const Rail& rail);

/// How many operations may be armed at the NIC, by all ranks on it together; nothing if it does not say.
std::optional<std::size_t> armable(const Rail& rail);

/// Adds to the counter.
void store(const CounterPage& page, std::uint64_t delta) noexcept;

}  // namespace sluice::backends::ofi
