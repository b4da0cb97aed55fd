// SPDX-License-Identifier: Apache-2.0
// An endpoint of libfabric that writes to a peer's memory, and is written to.
#pragma once

#include "apps/bench/harness/contender.hpp"
#include "apps/bench/rivals/ofi.hpp"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sched.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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

  /// Adds the peer's address to those that this endpoint reaches.
  fi_addr_t reach(const RemoteMemory& theirs) const;

  /// Reads the completion queue, which also drives the provider, and calls `each(entry)`.
  template <class Each>
  void progress(Each each) const {
    std::array<fi_cq_data_entry, 16> entries;
    const long found = ::fi_cq_read(completions(), entries.data(), entries.size());
    if (found == -FI_EAGAIN) return;
    if (found < 0) fail_completion(found);
    for (const fi_cq_data_entry& entry : std::span(entries).first(static_cast<std::size_t>(found))) each(entry);
  }

  /// Registers memory for the accesses of the mode from it, and for the peer's to it.
  Handle<fid_mr> register_memory(std::byte* memory, std::size_t bytes) const;
  RemoteMemory remote_memory(const Handle<fid_mr>& region, const std::byte* memory) const;

 private:
  [[noreturn]] void fail_completion(long status) const;
  bool requires_mode(int mode) const { return (info_->domain_attr->mr_mode & mode) != 0; }

  const OfiMode mode_;
  // Opened in this order, and closed in reverse order.
  Info info_;
  Handle<fid_fabric> fabric_;
  Handle<fid_domain> domain_;
  Handle<fid_cq> completions_;
  Handle<fid_av> addresses_;
  Handle<fid_ep> endpoint_;
};

/// Calls `call` until libfabric accepts it; `progress` drives the provider meanwhile.
template <class Call, class Progress>
void post(Call call, Progress progress) {
  for (;;) {
    const long status = call();
    if (status == 0) return;
    if (status != -FI_EAGAIN) fail("an access", -status);
    progress();
  }
}

/// Calls `progress` until `condition` holds.
template <class Condition, class Progress>
void poll_until(Condition condition, Progress progress) {
  // After so many polls a wait yields its core, because the peer may need the same one. On cores of their own a wait
  // ends much earlier.
  constexpr int kPollsBeforeYield = 1000;
  for (int polls = 0; !condition(); ++polls) {
    progress();
    if (polls >= kPollsBeforeYield) ::sched_yield();
  }
}

/// The end of a run at both ranks.
class Finish {
 public:
  Finish(const Workload& workload, OfiMode mode);
  /// Drives the provider until the peer has called it too: some providers move nothing unless they are driven, not even
  /// the last writes of this rank (test: bench_ofi, large messages and sockets).
  template <class Progress>
  void operator()(Progress progress) {
    finished_.put({}, 0, 0);
    while (!peer_finished_.test()) progress();
    peer_finished_.release({});
  }

 private:
  sluice::Scope scope_;
  sluice::Memory memory_;
  sluice::Sender finished_;
  sluice::Receiver peer_finished_;
};

}  // namespace bench::ofi
