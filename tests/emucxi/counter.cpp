// SPDX-License-Identifier: Apache-2.0
#include "tests/emucxi/counter.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/emucxi/cxi.hpp"
#include "tests/emucxi/domain.hpp"
#include "tests/layer/tables.hpp"

namespace emucxi {
namespace {

using layer::locked;

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

// --- cxi's own calls -------------------------------------------------------------------------------------------------

int set_wb_buffer(fid* handle, void* buffer, std::size_t bytes) {
  if (!buffer || bytes < sizeof(std::uint64_t)) return -FI_EINVAL;
  return locked<Counter>(handle, [&](Counter& counter) {
    counter.set_writeback(static_cast<std::atomic<std::uint64_t>*>(buffer));
    return 0;
  });
}

int get_mmio_addr(fid* handle, void** address, std::size_t* bytes) {
  return locked<Counter>(handle, [&](Counter& counter) {
    *address = counter.page();
    *bytes = sizeof(void*);  // of a pointer, not of the page: cxi says so too
    counter.domain.stir();
    return *address ? 0 : -FI_ENOMEM;
  });
}

CounterOps counter_ops = {set_wb_buffer, get_mmio_addr};

// --- libfabric's calls -----------------------------------------------------------------------------------------------

/// Reading makes the NIC write back.
std::uint64_t read(fid_cntr* handle) {
  return locked<Counter>(&handle->fid, [](const Counter& counter) {
    counter.write_back();
    return counter.success();
  });
}

std::uint64_t readerr(fid_cntr* handle) {
  return locked<Counter>(&handle->fid, [](const Counter& counter) {
    counter.write_back();
    return counter.failure();
  });
}

int change(fid_cntr* handle, void (Counter::*how)(std::uint64_t), std::uint64_t value, std::uint64_t most) {
  if (value > most) return -FI_EINVAL;
  return locked<Counter>(&handle->fid, [&](Counter& counter) {
    (counter.*how)(value);
    return 0;
  });
}

int add(fid_cntr* handle, std::uint64_t value) { return change(handle, &Counter::add, value, kSuccessMax); }
int set(fid_cntr* handle, std::uint64_t value) { return change(handle, &Counter::set, value, kSuccessMax); }
int adderr(fid_cntr* handle, std::uint64_t value) { return change(handle, &Counter::add_failures, value, kFailureMax); }
int seterr(fid_cntr* handle, std::uint64_t value) { return change(handle, &Counter::set_failures, value, kFailureMax); }

int open_counter_ops(fid*, const char* name, std::uint64_t, void** ops, void*) {
  if (std::strcmp(name, kCounterOps) != 0) return -FI_EINVAL;
  *ops = &counter_ops;
  return 0;
}

fi_ops counter_fid_ops = layer::calls<fi_ops>([](fi_ops& has) {
  has.close = layer::close_part<Counter>;
  has.ops_open = open_counter_ops;
});
fi_ops_cntr cntr_ops = layer::calls<fi_ops_cntr>([](fi_ops_cntr& has) {
  has.read = read;
  has.readerr = readerr;
  has.add = add;
  has.set = set;
  has.adderr = adderr;
  has.seterr = seterr;
});

bool acceptable(const fi_cntr_attr& attributes) {
  const fi_wait_obj wait = attributes.wait_obj;
  return attributes.events == FI_CNTR_EVENTS_COMP && attributes.flags == 0 &&
         (wait == FI_WAIT_NONE || wait == FI_WAIT_UNSPEC || wait == FI_WAIT_YIELD);
}

}  // namespace

Counter::Counter(Domain& owner, void* context) : Part({{FI_CLASS_CNTR, context, &counter_fid_ops}, &cntr_ops}, owner) {
  domain.counters.push_back(this);
}

Counter::~Counter() {
  domain.forget(*this);
  if (page_) ::munmap(page_, page_bytes());
}

void Counter::add(std::uint64_t more) {
  success_ = (success_ + more) & kSuccessMax;
  domain.fire(*this);
}

void Counter::add_failures(std::uint64_t more) { set_failures((failure_ + more) & kFailureMax); }

void Counter::set(std::uint64_t value) {
  success_ = value;
  if (value == 0) write_back();
  domain.fire(*this);
}

void Counter::set_failures(std::uint64_t value) {
  const bool first = failure_ == 0 && value != 0;
  failure_ = value;
  if (first || value == 0) write_back();
  domain.fire(*this);
}

void Counter::write_back() const {
  if (writeback_) writeback_->store(kWritten | failure_ << 48 | success_, std::memory_order_release);
}

void Counter::set_writeback(std::atomic<std::uint64_t>* word) {
  writeback_ = word;
  write_back();
}

void* Counter::page() {
  if (page_) return page_;
  void* const memory = ::mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  page_ = static_cast<std::byte*>(memory);
  word(kResetAt) = kNoReset;
  word(kResetFailureAt) = kNoReset;
  return page_;
}

bool Counter::take_stores() {
  const auto taken = [&](std::size_t offset, std::uint64_t nothing) {
    auto& stored = word(offset);
    // Loads first: an exchange would take the cache line from the storing thread every time.
    return stored.load(std::memory_order_relaxed) == nothing ? nothing : stored.exchange(nothing);
  };
  const std::uint64_t reset = taken(kResetAt, kNoReset);
  const std::uint64_t reset_failures = taken(kResetFailureAt, kNoReset);
  const std::uint64_t more = taken(kAddAt, 0);
  const std::uint64_t more_failures = taken(kAddFailureAt, 0);
  if (reset == 0) set(0);
  if (reset_failures == 0) set_failures(0);
  if (more) add(more & kSuccessMax);
  if (more_failures) add_failures(more_failures & kFailureMax);
  return reset == 0 || reset_failures == 0 || more || more_failures;
}

std::atomic<std::uint64_t>& Counter::word(std::size_t offset) const {
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(page_ + offset);
}

int open_counter(fid_domain* domain, fi_cntr_attr* attributes, fid_cntr** counter, void* context) {
  if (attributes && !acceptable(*attributes)) return -FI_ENOSYS;
  auto& owner = *static_cast<Domain*>(domain);
  return owner.locked([&] {
    *counter = new Counter(owner, context);
    return 0;
  });
}

}  // namespace emucxi
