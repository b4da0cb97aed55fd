// SPDX-License-Identifier: Apache-2.0
// The emulated part of cxi's extensions of libfabric: their names, numbers and structures. Written out here, because
// libfabric installs cxi's header only where cxi itself was built.
#pragma once

#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>
#include <ctime>

namespace emucxi {

inline constexpr const char* kProvider = "emucxi";
inline constexpr const char* kDomain = "emucxi0";

/// FI_CXI_CNTR_WB, a flag of deferred work.
inline constexpr std::uint64_t kWriteback = std::uint64_t{1} << 62;

inline constexpr std::uint64_t kSuccessMax = (std::uint64_t{1} << 48) - 1;
inline constexpr std::uint64_t kFailureMax = (std::uint64_t{1} << 7) - 1;

/// Set in the word that a writeback stores, above success (48 bits) and failure (7 bits).
inline constexpr std::uint64_t kWritten = std::uint64_t{1} << 63;

/// Offsets in a counter's page that take stores, in bytes.
inline constexpr std::size_t kAddAt = 0;
inline constexpr std::size_t kAddFailureAt = 64;
inline constexpr std::size_t kResetAt = 128;
inline constexpr std::size_t kResetFailureAt = 192;
/// The emulation only: what the words for resets hold while there is nothing to do; the words for adding then hold 0.
inline constexpr std::uint64_t kNoReset = ~std::uint64_t{0};

inline constexpr const char* kCounterOps = "cxi_counter_ops";
struct CounterOps {
  int (*set_wb_buffer)(fid*, void* buffer, std::size_t bytes);
  int (*get_mmio_addr)(fid*, void** address, std::size_t* bytes);
};

/// "dom_ops_v1" to "dom_ops_v6" have the same structure, to which later versions append.
inline constexpr const char* kDomainOps = "dom_ops_v";
struct DomainOps {
  int (*cntr_read)(fid*, unsigned counter, std::uint64_t* value, timespec*);
  int (*topology)(fid*, unsigned* group, unsigned* nic_switch, unsigned* port);
  int (*enable_hybrid_mr_desc)(fid*, bool);
  std::size_t (*ep_get_unexp_msgs)(fid_ep*, fi_cq_tagged_entry*, std::size_t count, fi_addr_t*,
                                   std::size_t* unexpected);
  int (*get_dwq_depth)(fid*, std::size_t* depth);
  int (*enable_mr_match_events)(fid*, bool);
  int (*enable_optimized_mrs)(fid*, bool);
};

}  // namespace emucxi
