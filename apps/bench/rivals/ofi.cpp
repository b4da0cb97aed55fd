// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/rivals/ofi.hpp"

#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/harness/exchange.hpp"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <stdexcept>

namespace bench {
namespace {

constexpr std::uint32_t kInterface = FI_VERSION(1, 15);
constexpr std::size_t kCounterLine = 64;
constexpr std::size_t kCounters = 2;
constexpr std::size_t kLongestName = 512;
constexpr std::size_t kFewestCompletions = 1024;

// Lets the other side run if both share a core; on cores of their own a wait ends much earlier.
constexpr int kPollsBeforeYield = 1000;

// --- handles ---------------------------------------------------------------------------------------------------------

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

[[noreturn]] void fail(const char* what, long code) {
  throw std::runtime_error(std::string("libfabric: ") + what + ": " + ::fi_strerror(static_cast<int>(code)));
}

void check_call(long status, const char* what) {
  if (status < 0) fail(what, -status);
}

// Makes the object that `open(&raw)` opens.
template <class Object, class Open>
Handle<Object> open(const char* what, Open open_it) {
  Object* raw = nullptr;
  check_call(open_it(&raw), what);
  return Handle<Object>(raw);
}

// --- providers -------------------------------------------------------------------------------------------------------

Info hints(const std::string& provider, OfiMode mode) {
  Info wanted(::fi_allocinfo());
  if (!wanted) throw std::bad_alloc();
  wanted->caps = FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
  wanted->ep_attr->type = FI_EP_RDM;
  wanted->fabric_attr->prov_name = ::strdup(provider.c_str());
  wanted->domain_attr->threading = FI_THREAD_DOMAIN;
  wanted->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  wanted->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  wanted->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  if (mode != OfiMode::data) {
    wanted->tx_attr->msg_order = FI_ORDER_WAW;
    wanted->rx_attr->msg_order = FI_ORDER_WAW;
  } else {
    wanted->domain_attr->cq_data_size = 1;
  }
  return wanted;
}

// The provider alone, or, if it only connects pairs, with the layer that makes endpoints for all its peers.
Info find_provider(const std::string& provider, OfiMode mode) {
  for (const auto& name : {provider, provider + ";ofi_rxm"}) {
    fi_info* found = nullptr;
    if (::fi_getinfo(kInterface, nullptr, nullptr, 0, hints(name, mode).get(), &found) == 0) return Info(found);
  }
  return nullptr;
}

Handle<fid_fabric> open_fabric(const fi_info& info) {
  return open<fid_fabric>("fi_fabric", [&](fid_fabric** to) { return ::fi_fabric(info.fabric_attr, to, nullptr); });
}

Handle<fid_domain> open_domain(fid_fabric& fabric, fi_info& info) {
  return open<fid_domain>("fi_domain", [&](fid_domain** to) { return ::fi_domain(&fabric, &info, to, nullptr); });
}

Handle<fid_cq> open_queue(fid_domain& domain, OfiMode mode, std::size_t completions) {
  fi_cq_attr queue{};
  queue.format = FI_CQ_FORMAT_DATA;
  queue.wait_obj = mode == OfiMode::flag_wait ? FI_WAIT_FD : FI_WAIT_NONE;
  queue.size = std::max(kFewestCompletions, completions);
  return open<fid_cq>("fi_cq_open", [&](fid_cq** to) { return ::fi_cq_open(&domain, &queue, to, nullptr); });
}

bool has_queue(fi_info& info, OfiMode mode) {
  try {
    const auto fabric = open_fabric(info);
    const auto domain = open_domain(*fabric, info);
    open_queue(*domain, mode, 1);
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

std::string unordered(const std::string& provider) {
  return "libfabric's provider " + provider + " does not promise that writes arrive in order (FI_ORDER_WAW)";
}

// --- a pair of endpoints ---------------------------------------------------------------------------------------------

/// Address and key with which the peer writes here.
struct Target {
  std::array<char, kLongestName> name;
  std::size_t name_bytes;
  std::uint64_t base;
  std::uint64_t key;
};

using Counter = std::atomic<std::uint64_t>;

/// An endpoint, and the objects that it needs to write and to be written to.
class Endpoint {
 public:
  Endpoint(const Workload& workload, OfiMode mode)
      : info_(find_provider(std::string(ofi_provider(workload.options)), mode)) {
    if (!info_) fail("fi_getinfo", FI_ENODATA);
    fabric_ = open_fabric(*info_);
    domain_ = open_domain(*fabric_, *info_);
    completions_ = open_queue(*domain_, mode, 2 * static_cast<std::size_t>(workload.depth));
    fi_av_attr table{};
    addresses_ =
        open<fid_av>("fi_av_open", [&](fid_av** to) { return ::fi_av_open(domain_.get(), &table, to, nullptr); });
    info_->tx_attr->op_flags = 0;
    endpoint_ = open<fid_ep>("fi_endpoint",
                             [&](fid_ep** to) { return ::fi_endpoint(domain_.get(), info_.get(), to, nullptr); });
    // No write here requests a completion of its own: the source is never overwritten.
    check_call(::fi_ep_bind(endpoint_.get(), &completions_->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION), "fi_ep_bind");
    // Bound separately, since some providers apply "selective" to remote data too, and drop it (test: bench_ofi on
    // sockets).
    check_call(::fi_ep_bind(endpoint_.get(), &completions_->fid, FI_RECV), "fi_ep_bind");
    check_call(::fi_ep_bind(endpoint_.get(), &addresses_->fid, 0), "fi_ep_bind");
    check_call(::fi_enable(endpoint_.get()), "fi_enable");
  }

  fid_ep* get() const { return endpoint_.get(); }
  fid_cq* completions() const { return completions_.get(); }
  fid_av* addresses() const { return addresses_.get(); }
  std::size_t inject_bytes() const { return info_->tx_attr->inject_size; }

  Handle<fid_mr> pin(std::byte* memory, std::size_t bytes) const {
    constexpr std::uint64_t kKey = 1;  // the only key of its domain, unless the provider chooses
    auto region = open<fid_mr>("fi_mr_reg", [&](fid_mr** to) {
      return ::fi_mr_reg(domain_.get(), memory, bytes, FI_WRITE | FI_REMOTE_WRITE, 0, kKey, 0, to, nullptr);
    });
    if (asks_for(FI_MR_ENDPOINT)) {
      check_call(::fi_mr_bind(region.get(), &endpoint_->fid, 0), "fi_mr_bind");
      check_call(::fi_mr_enable(region.get()), "fi_mr_enable");
    }
    return region;
  }

  Target target(const Handle<fid_mr>& region, const std::byte* memory) const {
    Target mine{};
    mine.name_bytes = mine.name.size();
    check_call(::fi_getname(&endpoint_->fid, mine.name.data(), &mine.name_bytes), "fi_getname");
    mine.base = asks_for(FI_MR_VIRT_ADDR) ? reinterpret_cast<std::uintptr_t>(memory) : 0;
    mine.key = ::fi_mr_key(region.get());
    return mine;
  }

 private:
  bool asks_for(int mode) const { return (info_->domain_attr->mr_mode & mode) != 0; }

  // In the order in which they are made; they close in reverse order.
  Info info_;
  Handle<fid_fabric> fabric_;
  Handle<fid_domain> domain_;
  Handle<fid_cq> completions_;
  Handle<fid_av> addresses_;
  Handle<fid_ep> endpoint_;
};

/// Two ranks that write to each other. All memory of a rank is pinned: counters with a line each, the target, the
/// source.
class Link {
 public:
  Link(const Workload& workload, OfiMode mode, std::size_t payload_bytes)
      : mode_(mode), bytes_(workload.bytes), target_at_(payload_bytes >= kPage ? kPage : kCounters * kCounterLine),
        source_at_(whole_pages(target_at_ + payload_bytes)),
        memory_(source_at_ + std::max(payload_bytes, kCounterLine)),  // memory of 0 bytes cannot be registered

        endpoint_(workload, mode), scope_(workload.context.scope("sluice-bench libfabric")),
        done_memory_(workload.context.allocate(2)),
        done_(scope_.sender(workload.peer, tag(), done_memory_.slice(0, 1))),
        their_done_(scope_.receiver(workload.peer, tag(), done_memory_.slice(1, 1))) {
    std::memset(memory_.data(), 0, target_at_);
    region_ = endpoint_.pin(memory_.data(), source_at_ + std::max(payload_bytes, kCounterLine));
    theirs_ = exchange(workload.context, workload.peer, endpoint_.target(region_, memory_.data()));
    if (::fi_av_insert(endpoint_.addresses(), theirs_.name.data(), 1, &peer_, 0, nullptr) != 1)
      throw std::runtime_error("libfabric: the peer's address is of no use here");
    done_.wait_connected();
    their_done_.wait_connected();
  }

  const std::byte* target() const { return memory_.data() + target_at_; }

  /// Writes a message from the source to the same place of the peer's target, and then raises the peer's counter by
  /// one.
  void put(std::size_t counter, std::size_t at = 0) {
    const std::byte* const source = memory_.data() + source_at_ + at;
    if (mode_ == OfiMode::data) {
      write_with_data(source, bytes_, target_at_ + at, counter);
    } else {
      if (bytes_ > 0) write(source, bytes_, target_at_ + at);
      raise(counter);
    }
  }

  /// Raises the peer's counter by one, after everything that was put.
  void signal(std::size_t counter) {
    if (mode_ == OfiMode::data) {
      write_with_data(memory_.data(), 0, 0, counter);
    } else {
      raise(counter);
    }
  }

  /// Returns the value of this rank's counter as soon as it is at least `least`.
  std::uint64_t await(std::size_t counter, std::uint64_t least) {
    for (int polls = 0;; ++polls) {
      if (const std::uint64_t value = count(counter); value >= least) return value;
      progress();
      if (polls >= kPollsBeforeYield) ::sched_yield();
    }
  }

  /// Returns when the peer has called it as well. Until then it drives the provider for the last writes of this rank:
  /// some providers move nothing unless they are driven (test: bench_ofi, large messages and sockets).
  void settle() {
    done_.put({}, 0, 0);
    while (!their_done_.test()) progress();
    their_done_.release({});
  }

 private:
  // All modes may be open at once.
  sluice::Tag tag() const { return static_cast<sluice::Tag>(mode_); }

  std::uint64_t count(std::size_t counter) const {
    if (mode_ == OfiMode::data) return arrived_[counter];
    return reinterpret_cast<const Counter*>(memory_.data() + counter * kCounterLine)->load(std::memory_order_acquire);
  }

  void raise(std::size_t counter) {
    const std::uint64_t value = ++raised_[counter];
    write(reinterpret_cast<const std::byte*>(&value), sizeof(value), counter * kCounterLine);
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
    for (;;) {
      const long status = call();
      if (status == 0) return;
      if (status != -FI_EAGAIN) fail("a write", -status);
      progress();
    }
  }

  // Reading the queue drives the provider.
  void progress() {
    std::array<fi_cq_data_entry, 16> done;
    const long found = ::fi_cq_read(endpoint_.completions(), done.data(), done.size());
    if (found == -FI_EAGAIN) return;
    if (found < 0) fail_completion(found);
    for (const fi_cq_data_entry& entry : std::span(done).first(static_cast<std::size_t>(found))) {
      if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) ++arrived_.at(entry.data);
    }
  }

  [[noreturn]] void fail_completion(long status) {
    fi_cq_err_entry error{};
    if (status == -FI_EAVAIL && ::fi_cq_readerr(endpoint_.completions(), &error, 0) > 0) status = -error.err;
    fail("a completion", -status);
  }

  const OfiMode mode_;
  const std::size_t bytes_;
  const std::size_t target_at_;
  const std::size_t source_at_;
  Pages memory_;
  Endpoint endpoint_;
  Handle<fid_mr> region_;
  Target theirs_{};
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  sluice::Scope scope_;
  sluice::Memory done_memory_;
  sluice::Sender done_;
  sluice::Receiver their_done_;
  std::array<std::uint64_t, kCounters> raised_{};   // at the peer
  std::array<std::uint64_t, kCounters> arrived_{};  // here, if they arrive as remote data
};

// --- contenders ------------------------------------------------------------------------------------------------------

class OfiPingPong : public Contender {
 public:
  OfiPingPong(const Workload& workload, OfiMode mode) : workload_(workload), link_(workload, mode, workload.bytes) {}

  double run(long count) override {
    const double taken = timed([&] {
      for (long i = 0; i < count; ++i) {
        ++turn_;
        if (workload_.first) link_.put(0);
        link_.await(0, turn_);
        use(workload_, link_.target());
        if (!workload_.first) link_.put(0);
      }
    });
    link_.settle();
    return taken;
  }

 private:
  const Workload workload_;
  Link link_;
  std::uint64_t turn_ = 0;
};

// The target's counter 0 counts messages; the source's counter 0 counts credits, each for half a ring, and counter 1
// answers.
class OfiFlood : public Contender {
 public:
  OfiFlood(const Workload& workload, OfiMode mode)
      : workload_(workload), depth_(static_cast<std::uint64_t>(workload.depth)),
        credit_every_(std::max<std::uint64_t>(depth_ / 2, 1)), link_(workload, mode, workload.bytes * depth_) {}

  double run(long count) override {
    const double taken = timed([&] {
      for (long i = 0; i < count; ++i) {
        ++windows_;
        if (workload_.first) {
          send_window();
        } else {
          receive_window();
        }
      }
    });
    link_.settle();
    return taken;
  }

 private:
  std::size_t slot(std::uint64_t message) const { return (message % depth_) * workload_.bytes; }

  void send_window() {
    for (int i = 0; i < workload_.window; ++i) {
      if (sent_ >= released_ + depth_) released_ = credit_every_ * link_.await(0, (sent_ - depth_) / credit_every_ + 1);
      link_.put(0, slot(sent_++));
    }
    link_.await(1, windows_);
  }

  void receive_window() {
    for (int i = 0; i < workload_.window; ++i) {
      if (seen_ <= received_) seen_ = link_.await(0, received_ + 1);
      use(workload_, link_.target() + slot(received_));
      if (++received_ % credit_every_ == 0) link_.signal(0);
    }
    link_.signal(1);
  }

  const Workload workload_;
  const std::uint64_t depth_;
  const std::uint64_t credit_every_;
  Link link_;
  std::uint64_t sent_ = 0;
  std::uint64_t released_ = 0;  // by the credits seen so far
  std::uint64_t received_ = 0;
  std::uint64_t seen_ = 0;  // messages that have arrived
  std::uint64_t windows_ = 0;
};

}  // namespace

std::string why_no_ofi(OfiMode mode, const Options& options) {
  const std::string provider(ofi_provider(options));
  const Info info = find_provider(provider, mode);
  if (!info && mode != OfiMode::data && find_provider(provider, OfiMode::data)) return unordered(provider);
  if (!info) return "libfabric has no provider " + provider + " here that writes to all peers (FI_EP_RDM, FI_RMA)";
  if (mode != OfiMode::data && info->ep_attr->max_order_waw_size < std::ranges::max(options.sizes))
    return unordered(provider) + " above " + std::to_string(info->ep_attr->max_order_waw_size) + " bytes";
  if (mode == OfiMode::flag_wait && !has_queue(*info, mode))
    return "libfabric's provider " + provider + " has no completion queue that can be slept on (FI_WAIT_FD)";
  return {};
}

std::string ofi_library(const Options& options) {
  const Info info = find_provider(std::string(ofi_provider(options)), OfiMode::data);
  const std::string version = std::to_string(FI_MAJOR(::fi_version())) + "." + std::to_string(FI_MINOR(::fi_version()));
  return "libfabric " + version + ", " + (info ? info->fabric_attr->prov_name : "no provider");
}

std::unique_ptr<Contender> make_ofi_ping_pong(OfiMode mode, const Workload& workload) {
  return std::make_unique<OfiPingPong>(workload, mode);
}
std::unique_ptr<Contender> make_ofi_flood(OfiMode mode, const Workload& workload) {
  return std::make_unique<OfiFlood>(workload, mode);
}

}  // namespace bench
