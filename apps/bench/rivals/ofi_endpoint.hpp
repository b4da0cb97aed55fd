// SPDX-License-Identifier: Apache-2.0
// An endpoint of libfabric that writes to a peer's memory, and is written to.
#pragma once

#include "apps/bench/harness/contender.hpp"
#include "apps/bench/rivals/ofi.hpp"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace bench::ofi {

struct FreeInfo {
  void operator()(fi_info* info) const { ::fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

struct Close {
  template <class Object>
  void operator()(Object* object) const {
    ::fi_close(&object->fid);
  }
};
template <class Object>
using Handle = std::unique_ptr<Object, Close>;

/// @throws std::runtime_error that names the call and libfabric's reason
[[noreturn]] void fail(const char* call, long error);

/// Finds the provider, or, if it only connects pairs of endpoints, the provider with the layer ofi_rxm, whose endpoints
/// reach all peers. Returns nullptr if there is neither.
Info find_provider(const std::string& provider, OfiMode mode);

/// True if the provider has a completion queue of the kind that this mode needs.
bool has_completion_queue(fi_info& info, OfiMode mode);

/// An endpoint's address and its registered memory, as the peer needs them to write there.
struct RemoteMemory {
  static constexpr std::size_t kMaxNameBytes = 512;
  std::array<char, kMaxNameBytes> name;
  std::size_t name_bytes;
  std::uint64_t base;
  std::uint64_t key;
};

/// An endpoint with the libfabric objects that it depends on.
class Endpoint {
 public:
  /// @param arrivals  the most completions that may be unread at once
  Endpoint(const std::string& provider, OfiMode mode, std::size_t arrivals);

  fid_ep* get() const { return endpoint_.get(); }
  fid_cq* completions() const { return completions_.get(); }
  fid_av* addresses() const { return addresses_.get(); }
  /// The most bytes that a write copies before it returns.
  std::size_t inject_bytes() const { return info_->tx_attr->inject_size; }

  /// Registers memory for writes from it, and for the peer's writes into it.
  Handle<fid_mr> register_memory(std::byte* memory, std::size_t bytes) const;
  RemoteMemory remote_memory(const Handle<fid_mr>& region, const std::byte* memory) const;

 private:
  bool requires_mode(int mode) const { return (info_->domain_attr->mr_mode & mode) != 0; }

  // Opened in this order, and closed in reverse order.
  Info info_;
  Handle<fid_fabric> fabric_;
  Handle<fid_domain> domain_;
  Handle<fid_cq> completions_;
  Handle<fid_av> addresses_;
  Handle<fid_ep> endpoint_;
};

}  // namespace bench::ofi
