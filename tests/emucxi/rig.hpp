// SPDX-License-Identifier: Apache-2.0
// The fixture of the provider's tests: a domain with one endpoint, memory, counters and deferred work. Runs on
// `emucxi`, and on plain `sockets` where that can do the same.
#pragma once

#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_trigger.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/emucxi/cxi.hpp"
#include "tests/layer/info.hpp"

namespace emucxi::test {

/// The key of a test's only memory, or of its first.
inline constexpr std::uint64_t kKey = 1001;

/// Closes in silence; tests that are about closing call fi_close themselves.
struct Close {
  template <class T>
  void operator()(T* handle) const {
    fi_close(&handle->fid);
  }
};
template <class T>
using Handle = std::unique_ptr<T, Close>;

using layer::Info;

/// An environment variable for as long as this lives.
class Setting {
 public:
  Setting(const char* name, const std::string& value);
  ~Setting();
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

/// Waits for `reached`, for far longer than any machine needs. False: it never came.
template <class F>
bool eventually(F reached) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!reached()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

/// The hints of a Sluice backend.
Info good_hints(const std::string& provider = kProvider);
/// fi_getinfo as it is called for that provider: 0 and the information, or an error.
int get_info(const Info& hints, Info& info);

class Rig {
 public:
  explicit Rig(const std::string& provider = kProvider) : Rig(good_hints(provider)) {}
  explicit Rig(const Info& hints, bool selective = true);

  Handle<fid_cntr> counter() const;
  bool emulated() const { return provider_ == kProvider; }

  /// Returns when the earlier operations on this endpoint have been done: operations stay in order.
  void barrier();
  /// Takes up to one entry: as fi_cq_read.
  ssize_t read_queue(fi_cq_data_entry& entry) const { return fi_cq_read(queue.get(), &entry, 1); }
  ssize_t read_queue() const { return fi_cq_read(queue.get(), nullptr, 0); }

  Info info;
  Handle<fid_fabric> fabric;
  Handle<fid_domain> domain;
  Handle<fid_av> addresses;
  Handle<fid_cq> queue;
  Handle<fid_cntr> writes;  // immediate ones
  Handle<fid_ep> endpoint;
  fi_addr_t self = FI_ADDR_UNSPEC;

 private:
  std::string provider_;
  std::unique_ptr<class Target> scratch_;
  std::uint64_t barriers_ = 0;
};

/// Memory that others can reach, with a counter for what they write there.
class Target {
 public:
  Target(const Rig& rig, std::size_t size, std::uint64_t key, fid_cntr* counter = nullptr);

  std::uint64_t key() const { return fi_mr_key(region.get()); }
  std::uint64_t& word(std::size_t index = 0) { return reinterpret_cast<std::uint64_t*>(bytes.data())[index]; }

  std::vector<std::byte> bytes;
  Handle<fid_mr> region;
};

/// Deferred work and everything it points to.
class Deferred {
 public:
  Deferred(const Rig& rig, const Handle<fid_cntr>& trigger, std::uint64_t threshold, fid_cntr* completion = nullptr);
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

  Deferred& write(std::span<const std::byte> from, const Target& to, std::uint64_t offset = 0);
  Deferred& read(std::span<std::byte> to, const Target& from, std::uint64_t offset = 0);
  Deferred& atomic(std::uint64_t& operand, const Target& at, fi_op operation = FI_SUM);
  Deferred& fetch(std::uint64_t& operand, std::uint64_t& result, const Target& at, fi_op operation = FI_SUM);
  Deferred& compare(std::uint64_t& operand, std::uint64_t& compared, std::uint64_t& result, const Target& at);
  Deferred& change(fi_op_type how, fid_cntr* counter, std::uint64_t value);
  Deferred& to(fi_addr_t peer, std::uint64_t key);

  void set_flags(std::uint64_t flags);
  int queue();

  fi_deferred_work work{};
  fi_op_rma rma{};
  fi_op_compare_atomic compare_op{};
  fi_op_fetch_atomic fetch_op{};
  fi_op_atomic atomic_op{};
  fi_op_cntr counter_op{};
  iovec local{};
  fi_rma_iov remote{};

 private:
  fi_msg_atomic atomic_message(std::uint64_t& operand, const Target& at, fi_op operation);

  fid_domain* domain_;
  fi_ioc operand_{};
  fi_ioc compared_{};
  fi_ioc result_{};
  fi_rma_ioc place_{};
};

// Payloads: no two bytes near each other alike, no two stamps alike.
std::vector<std::byte> payload(std::size_t bytes, std::uint64_t stamp);
/// Every byte of it.
void expect_payload(std::span<const std::byte> bytes, std::uint64_t stamp);
/// Nothing has been written there.
void expect_poison(std::span<const std::byte> bytes);

bool reaches(const Handle<fid_cntr>& counter, std::uint64_t value);
void expect_counts(const Handle<fid_cntr>& counter, std::uint64_t success, std::uint64_t failure = 0);

}  // namespace emucxi::test
