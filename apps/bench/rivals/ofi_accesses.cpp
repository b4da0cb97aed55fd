// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/accesses.hpp"
#include "apps/bench/harness/counter.hpp"
#include "apps/bench/harness/exchange.hpp"
#include "apps/bench/rivals/ofi.hpp"
#include "apps/bench/rivals/ofi_endpoint.hpp"

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

namespace bench {
namespace {

constexpr std::size_t kUnread = 8;  // completions that may be unread at once, at most

/// A Way (harness/accesses.hpp). All memory of a rank is registered: a page for the notices of the peer and the
/// operands of atomics, a line each, then the window, then the local memory.
class OfiWay {
 public:
  OfiWay(const Workload& workload, const AccessLayout& layout, OfiMode mode)
      : bytes_(layout.message), local_at_(kPage + layout.window), memory_(local_at_ + layout.payload),
        endpoint_(std::string(ofi_provider(workload.options)), mode, kUnread), finish_(workload, mode) {
    std::memset(memory_.data(), 0, kPage);
    region_ = endpoint_.register_memory(memory_.data(), local_at_ + layout.payload);
    desc_ = ::fi_mr_desc(region_.get());
    theirs_ = exchange(workload.context, workload.peer, endpoint_.remote_memory(region_, memory_.data()));
    peer_ = endpoint_.reach(theirs_);
    if (::fi_atomicvalid(endpoint_.get(), FI_UINT64, FI_SUM, &numbers_at_once_) != 0)
      throw std::runtime_error("libfabric: this provider adds no 64-bit integers");
  }

  std::byte* window() const { return memory_.data() + kPage; }
  std::byte* local() const { return memory_.data() + local_at_; }

  void put() {
    complete([&] {
      return ::fi_write(endpoint_.get(), local(), bytes_, desc_, peer_, theirs(kPayloadAt), theirs_.key, nullptr);
    });
  }
  void get(std::size_t at) {
    complete([&] {
      return ::fi_read(endpoint_.get(), local(), bytes_, desc_, peer_, theirs(kPayloadAt + at), theirs_.key, nullptr);
    });
  }
  Word fetch_add(Word value) {
    word(kOperand) = value;
    complete([&] {
      return ::fi_fetch_atomic(endpoint_.get(), &word(kOperand), 1, desc_, &word(kOld), desc_, peer_, theirs(0),
                               theirs_.key, FI_UINT64, FI_SUM, nullptr);
    });
    return word(kOld);
  }
  Word compare_swap(Word expected, Word desired) {
    word(kOperand) = desired;
    word(kExpected) = expected;
    complete([&] {
      return ::fi_compare_atomic(endpoint_.get(), &word(kOperand), 1, desc_, &word(kExpected), desc_, &word(kOld),
                                 desc_, peer_, theirs(0), theirs_.key, FI_UINT64, FI_CSWAP, nullptr);
    });
    return word(kOld);
  }
  void accumulate() {
    const std::size_t numbers = bytes_ / sizeof(Word);
    for (std::size_t done = 0; done < numbers; done += numbers_at_once_) {
      const std::size_t at = done * sizeof(Word);
      const std::size_t count = std::min(numbers_at_once_, numbers - done);
      complete([&] {
        return ::fi_atomic(endpoint_.get(), local() + at, count, desc_, peer_, theirs(kPayloadAt + at), theirs_.key,
                           FI_UINT64, FI_SUM, nullptr);
      });
    }
  }
  void flush() {}

  // libfabric has copied the value when the call returns; why_no_ofi() refuses a provider that cannot.
  void notify() {
    ++sent_;
    const std::uint64_t to = theirs_.base + kNotices * kLine;
    post([&] { return ::fi_inject_write(endpoint_.get(), &sent_, sizeof sent_, peer_, to, theirs_.key); });
  }
  void await_notice() {
    ++received_;
    const auto& notices = *reinterpret_cast<const Counter*>(memory_.data() + kNotices * kLine);
    poll_until([&] { return notices.load(std::memory_order_acquire) >= received_; });
  }
  void finish_run() {
    finish_([this] { progress(); });
  }

 private:
  enum Line : std::size_t { kNotices, kOperand, kExpected, kOld };
  Word& word(Line line) const { return *reinterpret_cast<Word*>(memory_.data() + line * kLine); }
  /// A place of the peer's window.
  std::uint64_t theirs(std::size_t at) const { return theirs_.base + kPage + at; }

  template <class Call>
  void complete(Call call) {
    post(call);
    ++under_way_;
    poll_until([this] { return under_way_ == 0; });
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
    endpoint_.progress([this](const fi_cq_data_entry&) { --under_way_; });
  }

  const std::size_t bytes_;
  const std::size_t local_at_;
  Pages memory_;
  ofi::Endpoint endpoint_;
  ofi::Handle<fid_mr> region_;
  void* desc_ = nullptr;
  ofi::RemoteMemory theirs_{};
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::size_t numbers_at_once_ = 0;
  long under_way_ = 0;
  Word sent_ = 0;
  Word received_ = 0;
  ofi::Finish finish_;
};

}  // namespace

std::unique_ptr<Contender> make_ofi_accesses(OfiMode mode, const Workload& workload) {
  if (workload.access == Access::flush || is_of_epochs(workload.access)) return nullptr;
  return std::make_unique<AccessContender<OfiWay>>(workload, mode);
}

}  // namespace bench
