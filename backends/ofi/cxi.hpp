// SPDX-License-Identifier: Apache-2.0
// What HPE's Slingshot NICs offer beyond libfabric: counters with a page that anybody may store to, a GPU stream too,
// and a limit on armed work. The small ABI is stated here, since its header is rarely installed.
#pragma once

#include <optional>

#include "backends/ofi/triggered.hpp"

namespace sluice::backends::ofi {

/// A counter's page. A store of 8 bytes adds its value to the counter: it is never read, and never stored a total to.
struct CounterPage {
  std::atomic<std::uint64_t>* add = nullptr;
  /// An emulated one is memory, where two stores in a row are one to who looks later: each waits until the one before
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
