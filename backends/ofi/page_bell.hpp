// SPDX-License-Identifier: Apache-2.0
// A bell that is a page of the NIC's, and the ways to ring it for a stream.
#pragma once

#include <cstdint>
#include <mutex>

#include "backends/ofi/cxi.hpp"

namespace sluice::backends::ofi {

const char* name(Ringer ringer) noexcept;

/// Finds out, on counters of its own. Before anything is parked: takes up to 2 s for each that does not work. `mutex`,
/// the rail's, is held for single calls only.
Ringers choose_ringers(device::Driver& driver, const Rail& rail, std::mutex& mutex);

/// Rung by a store to the NIC: no thread of ours takes part, unless a GPU cannot do without.
class PageBell final : public TickBell {
 public:
  PageBell(Station& station, Owned<fid_cntr> counter, CounterPage page)
      : TickBell(station, std::move(counter)), station_(station), page_(page) {}
  ~PageBell() override;
  void ring(device::Lane lane) override;
  void reach_from(device::Driver& driver) override;
  std::uint64_t* counter_for_kernels() const noexcept override { return for_kernels_; }
  void let_kernels_ring() noexcept override;
  std::string rung_for_gpus_by() const override;
  bool look() override { return rung_by_engine() && TickBell::look(); }
  /// A GPU writes the word behind each ring of the page, as do kernels of the host.
  std::uint64_t rung() const noexcept override {
    return driver_ == nullptr && !by_kernels_ ? rings.load(std::memory_order_relaxed) : TickBell::rung();
  }
  bool awaited() const noexcept override { return rung_by_engine() && TickBell::awaited(); }

 private:
  /// Streams and kernels only write the word, and the engine rings the page.
  bool rung_by_engine() const noexcept {
    return by_kernels_ ? for_kernels_ == nullptr : driver_ != nullptr && ringer_ == Ringer::engine;
  }

  Station& station_;
  CounterPage page_;
  Ringer ringer_ = Ringer::engine;
  device::Driver* driver_ = nullptr;
  void* seen_by_gpus_ = nullptr;
  // The address at which kernels ring, as the host sees it until GPUs reach it. Null: the engine rings for them, as on
  // an emulated page, where two stores in a row are one: a kernel cannot wait.
  std::uint64_t* for_kernels_ = page_.paced ? nullptr : reinterpret_cast<std::uint64_t*>(page_.add);
  bool by_kernels_ = false;  // kernels ring, and nothing else does
};

}  // namespace sluice::backends::ofi
