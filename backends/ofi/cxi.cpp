// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/cxi.hpp"

#include <thread>

namespace sluice::backends::ofi {
namespace {

// From rdma/fi_cxi_ext.h, libfabric 1.21 and later.
constexpr const char* kCounterOps = "cxi_counter_ops";
struct CounterOps {
  int (*set_wb_buffer)(fid*, void* buffer, std::size_t bytes);
  int (*get_mmio_addr)(fid*, void** address, std::size_t* bytes);
};

// The structures of versions 1 to 6 are one, to which later ones appended.
constexpr const char* kDomainOps[] = {"dom_ops_v6", "dom_ops_v5"};
struct DomainOps {
  int (*cntr_read)(fid*, unsigned, std::uint64_t*, timespec*);
  int (*topology)(fid*, unsigned*, unsigned*, unsigned*);
  int (*enable_hybrid_mr_desc)(fid*, bool);
  std::size_t (*ep_get_unexp_msgs)(fid_ep*, fi_cq_tagged_entry*, std::size_t, fi_addr_t*, std::size_t*);
  int (*get_dwq_depth)(fid*, std::size_t* depth);
};

bool is_emulated(const Rail& rail) { return std::string_view(rail.info().fabric_attr->prov_name).starts_with("emu"); }

/// One ring must count as one.
bool arrives(const CounterPage& page, fid_cntr* counter) {
  constexpr auto kPatience = std::chrono::seconds(2);
  store(page, 1);
  const auto deadline = base::Clock::now() + kPatience;
  while (fi_cntr_read(counter) == 0 && base::Clock::now() < deadline) std::this_thread::yield();
  return fi_cntr_read(counter) == 1;
}

}  // namespace

std::optional<CounterPage> page_of(const Rail& rail, fid_cntr* counter) {
  CounterOps* ops = nullptr;
  void* address = nullptr;
  std::size_t bytes = 0;
  if (fi_open_ops(&counter->fid, kCounterOps, 0, reinterpret_cast<void**>(&ops), nullptr) != 0) return std::nullopt;
  if (ops->get_mmio_addr(&counter->fid, &address, &bytes) != 0 || address == nullptr) return std::nullopt;
  return CounterPage{static_cast<std::atomic<std::uint64_t>*>(address), is_emulated(rail)};
}

bool pages_work(const Rail& rail) {
  const auto counter = open_counter(rail);
  const auto page = page_of(rail, counter.get());
  return page && arrives(*page, counter.get());
}

std::optional<std::size_t> armable(const Rail& rail) {
  for (const char* const version : kDomainOps) {
    DomainOps* ops = nullptr;
    std::size_t depth = 0;
    if (fi_open_ops(&rail.domain()->fid, version, 0, reinterpret_cast<void**>(&ops), nullptr) != 0) continue;
    if (ops->get_dwq_depth(&rail.domain()->fid, &depth) == 0) return depth;
  }
  return std::nullopt;
}

void store(const CounterPage& page, std::uint64_t delta) noexcept {
  while (page.paced && page.add->load(std::memory_order_acquire) != 0) std::this_thread::yield();
  page.add->store(delta, std::memory_order_release);
}

}  // namespace sluice::backends::ofi
