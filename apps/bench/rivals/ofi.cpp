// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/rivals/ofi.hpp"

#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/harness/exchange.hpp"
#include "apps/bench/rivals/link_contenders.hpp"
#include "apps/bench/rivals/ofi_endpoint.hpp"

#include <rdma/fi_rma.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bench {
namespace {

constexpr std::size_t kSignals = 2;  // kinds of signals: credits and answers

/// A Link (link_contenders.hpp) of two ranks that write to each other. All memory of a rank is registered: counters,
/// one cache line each (messages, then each kind of signal), the target, and the source.
class OfiLink {
 public:
  OfiLink(const Workload& workload, const LinkLayout& layout, OfiMode mode)
      : mode_(mode), bytes_(workload.bytes), all_bytes_(bytes_ * layout.slots),
        target_at_(all_bytes_ >= kPage ? kPage : (1 + layout.signals) * kLine),
        source_at_(whole_pages(target_at_ + all_bytes_)),
        memory_bytes_(source_at_ + std::max(all_bytes_, kLine)),  // memory of 0 bytes cannot be registered
        memory_(memory_bytes_), endpoint_(std::string(ofi_provider(workload.options)), mode, 2 * layout.slots),
        arrived_in_slot_(layout.slots), finish_(workload, mode) {
    std::memset(memory_.data(), 0, target_at_);
    region_ = endpoint_.register_memory(memory_.data(), memory_bytes_);
    theirs_ = exchange(workload.context, workload.peer, endpoint_.remote_memory(region_, memory_.data()));
    peer_ = endpoint_.reach(theirs_);
  }

  std::byte* source(Message message) { return memory_.data() + source_at_ + message.slot * bytes_; }
  void put(Message message) {
    const std::size_t at = message.slot * bytes_;
    if (mode_ == OfiMode::data) {
      write_with_data(source(message), bytes_, target_at_ + at, kSignals + message.slot);
    } else {
      if (bytes_ > 0) write(source(message), bytes_, target_at_ + at);
      set_counter(0, message.number + 1);
    }
  }

  const std::byte* await(Message message) {
    if (mode_ == OfiMode::data) {
      poll_until([&] { return arrived_in_slot_[message.slot] > 0; });
      --arrived_in_slot_[message.slot];
    } else if (messages_seen_ <= message.number) {
      poll_until([&] {
        messages_seen_ = counter(0);
        return messages_seen_ > message.number;
      });
    }
    return memory_.data() + target_at_ + message.slot * bytes_;
  }

  void signal(Signal which) {
    const auto number = static_cast<std::size_t>(which);
    if (mode_ == OfiMode::data) {
      write_with_data(memory_.data(), 0, 0, number);
    } else {
      set_counter(1 + number, ++signals_sent_.at(number));
    }
  }

  std::uint64_t await(Signal which, std::uint64_t least) {
    const auto number = static_cast<std::size_t>(which);
    std::uint64_t arrived = 0;
    poll_until([&] {
      arrived = mode_ == OfiMode::data ? signals_arrived_.at(number) : counter(1 + number);
      return arrived >= least;
    });
    return arrived;
  }

  void finish_run() {
    finish_([this] { progress(); });
  }

 private:
  std::uint64_t counter(std::size_t index) const {
    return reinterpret_cast<const Counter*>(memory_.data() + index * kLine)->load(std::memory_order_acquire);
  }

  // Writes a counter of the peer. The value may lie on the stack, because libfabric has copied it when this call
  // returns; why_no_ofi() refuses a provider that cannot inject so many bytes.
  void set_counter(std::size_t index, std::uint64_t value) {
    const std::uint64_t to = theirs_.base + index * kLine;
    post([&] { return ::fi_inject_write(endpoint_.get(), &value, sizeof(value), peer_, to, theirs_.key); });
  }

  void write(const std::byte* from, std::size_t bytes, std::size_t at) {
    const std::uint64_t to = theirs_.base + at;
    if (bytes <= endpoint_.inject_bytes()) {
      post([&] { return ::fi_inject_write(endpoint_.get(), from, bytes, peer_, to, theirs_.key); });
    } else {
      void* const local = ::fi_mr_desc(region_.get());
      post([&] { return ::fi_write(endpoint_.get(), from, bytes, local, peer_, to, theirs_.key, nullptr); });
    }
  }

  void write_with_data(const std::byte* from, std::size_t bytes, std::size_t at, std::uint64_t data) {
    const std::uint64_t to = theirs_.base + at;
    if (bytes <= endpoint_.inject_bytes()) {
      post([&] { return ::fi_inject_writedata(endpoint_.get(), from, bytes, data, peer_, to, theirs_.key); });
    } else {
      void* const local = ::fi_mr_desc(region_.get());
      post([&] { return ::fi_writedata(endpoint_.get(), from, bytes, local, data, peer_, to, theirs_.key, nullptr); });
    }
  }

  template <class Call>
  void post(Call call) {
    ofi::post(call, [this] { progress(); });
  }

  template <class Condition>
  void poll_until(Condition condition) {
    ofi::poll_until(condition, [this] { progress(); });
  }

  void progress() {
    endpoint_.progress([this](const fi_cq_data_entry& entry) {
      if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) count_arrival(entry.data);
    });
  }

  void count_arrival(std::uint64_t data) {
    if (data < kSignals) {
      ++signals_arrived_.at(data);
    } else {
      ++arrived_in_slot_.at(data - kSignals);
    }
  }

  const OfiMode mode_;
  const std::size_t bytes_;      // of a message
  const std::size_t all_bytes_;  // of all slots
  const std::size_t target_at_;
  const std::size_t source_at_;
  const std::size_t memory_bytes_;
  Pages memory_;
  ofi::Endpoint endpoint_;
  ofi::Handle<fid_mr> region_;
  ofi::RemoteMemory theirs_{};
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  // For modes that poll counters in memory.
  std::uint64_t messages_seen_ = 0;
  std::array<std::uint64_t, kSignals> signals_sent_{};
  // For the mode that polls remote data. The count of a slot is 0 or 1, because a slot is reused only after it was
  // read.
  std::vector<int> arrived_in_slot_;
  std::array<std::uint64_t, kSignals> signals_arrived_{};
  ofi::Finish finish_;
};

std::string unordered(const std::string& provider) {
  return "libfabric's provider " + provider + " does not promise that writes arrive in order (FI_ORDER_WAW)";
}

}  // namespace

std::string why_no_ofi(OfiMode mode, const Options& options) {
  const std::string provider(ofi_provider(options));
  const bool by_flag = mode == OfiMode::flag || mode == OfiMode::flag_wait;
  const ofi::Info info = ofi::find_provider(provider, mode);
  if (!info && by_flag && ofi::find_provider(provider, OfiMode::data)) return unordered(provider);
  if (!info && is_of_accesses(mode))
    return "libfabric has no provider " + provider + " here with writes, reads and atomics (FI_RMA, FI_ATOMIC)";
  if (!info) return "libfabric has no provider " + provider + " here that writes to all peers (FI_EP_RDM, FI_RMA)";
  if (by_flag && info->ep_attr->max_order_waw_size < std::ranges::max(options.sizes))
    return unordered(provider) + " above " + std::to_string(info->ep_attr->max_order_waw_size) + " bytes";
  if (mode != OfiMode::data && info->tx_attr->inject_size < sizeof(std::uint64_t))
    return "libfabric's provider " + provider + " injects at most " + std::to_string(info->tx_attr->inject_size) +
           " bytes, less than the 8 of a flag";
  if (may_sleep(mode) && !ofi::has_completion_queue(*info, mode))
    return "libfabric's provider " + provider + " has no completion queue that can be slept on (FI_WAIT_FD)";
  return {};
}

std::string ofi_library(const Options& options) {
  const ofi::Info info = ofi::find_provider(std::string(ofi_provider(options)), OfiMode::data);
  const std::string version = std::to_string(FI_MAJOR(::fi_version())) + "." + std::to_string(FI_MINOR(::fi_version()));
  return "libfabric " + version + ", " + (info ? info->fabric_attr->prov_name : "no provider");
}

std::unique_ptr<Contender> make_ofi_ping_pong(OfiMode mode, const Workload& workload) {
  return std::make_unique<LinkPingPong<OfiLink>>(workload, mode);
}
std::unique_ptr<Contender> make_ofi_flood(OfiMode mode, const Workload& workload) {
  return std::make_unique<LinkFlood<OfiLink>>(workload, mode);
}

}  // namespace bench
