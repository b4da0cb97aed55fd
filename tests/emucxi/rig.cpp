// SPDX-License-Identifier: Apache-2.0
#include "tests/emucxi/rig.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace emucxi::test {
namespace {

constexpr auto kPoison = std::byte{0xee};
constexpr std::uint64_t kScratchKey = 999;

void check(int status, const char* what) {
  if (status) throw std::runtime_error(std::string(what) + ": " + fi_strerror(-status));
}

/// One of the fi_*_open calls, as a handle.
template <class T, class Open>
Handle<T> opened(const char* what, Open open) {
  T* handle = nullptr;
  check(open(&handle), what);
  return Handle<T>(handle);
}

std::byte payload_byte(std::size_t index, std::uint64_t stamp) {
  return static_cast<std::byte>((index * 131 + (index >> 8) * 17 + stamp * 29 + 3) & 0x7f);
}

}  // namespace

Setting::Setting(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
Setting::~Setting() { ::unsetenv(name_); }

Info good_hints(const std::string& provider) {
  Info hints(fi_allocinfo());
  hints->caps = FI_RMA | FI_ATOMIC | FI_RMA_EVENT | FI_TRIGGER;
  hints->mode = ~std::uint64_t{0};
  hints->ep_attr->type = FI_EP_RDM;
  hints->fabric_attr->prov_name = ::strdup(provider.c_str());
  hints->tx_attr->msg_order = FI_ORDER_WAW;
  if (provider == kProvider) hints->domain_attr->mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED;
  return hints;
}

int get_info(const Info& hints, Info& info) {
  const bool sockets = std::strcmp(hints->fabric_attr->prov_name, "sockets") == 0;
  fi_info* found = nullptr;
  const int status = fi_getinfo(FI_VERSION(1, 15), sockets ? "127.0.0.1" : nullptr, nullptr, sockets ? FI_SOURCE : 0,
                                hints.get(), &found);
  info.reset(found);
  return status;
}

Rig::Rig(const Info& hints, bool selective) : provider_(hints->fabric_attr->prov_name) {
  check(get_info(hints, info), "fi_getinfo");
  fabric = opened<fid_fabric>("fi_fabric", [&](auto to) { return fi_fabric(info->fabric_attr, to, nullptr); });
  domain = opened<fid_domain>("fi_domain", [&](auto to) { return fi_domain(fabric.get(), info.get(), to, nullptr); });
  fi_av_attr table{};
  table.type = FI_AV_TABLE;
  addresses = opened<fid_av>("fi_av_open", [&](auto to) { return fi_av_open(domain.get(), &table, to, nullptr); });
  fi_cq_attr entries{};
  entries.format = FI_CQ_FORMAT_DATA;
  entries.wait_obj = FI_WAIT_FD;
  queue = opened<fid_cq>("fi_cq_open", [&](auto to) { return fi_cq_open(domain.get(), &entries, to, nullptr); });
  writes = counter();
  endpoint = opened<fid_ep>("fi_endpoint", [&](auto to) { return fi_endpoint(domain.get(), info.get(), to, nullptr); });
  const std::uint64_t both = FI_TRANSMIT | FI_RECV | (selective ? FI_SELECTIVE_COMPLETION : 0);
  check(fi_ep_bind(endpoint.get(), &queue->fid, both), "fi_ep_bind(queue)");
  check(fi_ep_bind(endpoint.get(), &addresses->fid, 0), "fi_ep_bind(addresses)");
  check(fi_ep_bind(endpoint.get(), &writes->fid, FI_WRITE), "fi_ep_bind(counter)");
  check(fi_enable(endpoint.get()), "fi_enable");
  char name[64];
  std::size_t length = sizeof(name);
  check(fi_getname(&endpoint->fid, name, &length), "fi_getname");
  if (fi_av_insert(addresses.get(), name, 1, &self, 0, nullptr) != 1) throw std::runtime_error("fi_av_insert");
  scratch_ = std::make_unique<Target>(*this, sizeof(std::uint64_t), kScratchKey);
}

Handle<fid_cntr> Rig::counter() const {
  fi_cntr_attr attributes{};
  attributes.events = FI_CNTR_EVENTS_COMP;
  return opened<fid_cntr>("fi_cntr_open",
                          [&](auto to) { return fi_cntr_open(domain.get(), &attributes, to, nullptr); });
}

void Rig::barrier() {
  const std::uint64_t before = fi_cntr_read(writes.get());
  const std::uint64_t value = ++barriers_;
  ASSERT_TRUE(eventually([&] {
    read_queue();
    return fi_inject_write(endpoint.get(), &value, sizeof(value), self, 0, scratch_->key()) == 0;
  }));
  EXPECT_TRUE(reaches(writes, before + 1));
  read_queue();
}

Target::Target(const Rig& rig, std::size_t size, std::uint64_t key, fid_cntr* counter) : bytes(size, kPoison) {
  region = opened<fid_mr>("fi_mr_reg", [&](auto to) {
    return fi_mr_reg(rig.domain.get(), bytes.data(), bytes.size(), FI_REMOTE_WRITE | FI_REMOTE_READ, 0, key,
                     rig.info->caps & FI_RMA_EVENT, to, nullptr);
  });
  if (rig.emulated()) check(fi_mr_bind(region.get(), &rig.endpoint->fid, 0), "fi_mr_bind(endpoint)");
  if (counter) check(fi_mr_bind(region.get(), &counter->fid, FI_REMOTE_WRITE), "fi_mr_bind(counter)");
  if (rig.emulated()) check(fi_mr_enable(region.get()), "fi_mr_enable");
}

// --- deferred work ---------------------------------------------------------------------------------------------------

Deferred::Deferred(const Rig& rig, const Handle<fid_cntr>& trigger, std::uint64_t threshold, fid_cntr* completion)
    : domain_(rig.domain.get()) {
  work.threshold = threshold;
  work.triggering_cntr = trigger.get();
  work.completion_cntr = completion;
  rma.ep = atomic_op.ep = fetch_op.ep = compare_op.ep = rig.endpoint.get();
  rma.msg.addr = rig.self;
  rma.msg.context = &work.context;
}

Deferred& Deferred::write(std::span<const std::byte> from, const Target& to, std::uint64_t offset) {
  local = {const_cast<std::byte*>(from.data()), from.size()};
  remote = {offset, from.size(), to.key()};
  rma.msg.msg_iov = &local;
  rma.msg.iov_count = 1;
  rma.msg.rma_iov = &remote;
  rma.msg.rma_iov_count = 1;
  work.op_type = FI_OP_WRITE;
  work.op.rma = &rma;
  return *this;
}

Deferred& Deferred::read(std::span<std::byte> to, const Target& from, std::uint64_t offset) {
  write(to, from, offset);
  work.op_type = FI_OP_READ;
  return *this;
}

fi_msg_atomic Deferred::atomic_message(std::uint64_t& operand, const Target& at, fi_op operation) {
  operand_ = {&operand, 1};
  place_ = {0, 1, at.key()};
  fi_msg_atomic message{};
  message.msg_iov = &operand_;
  message.iov_count = 1;
  message.addr = rma.msg.addr;
  message.rma_iov = &place_;
  message.rma_iov_count = 1;
  message.datatype = FI_UINT64;
  message.op = operation;
  message.context = &work.context;
  return message;
}

Deferred& Deferred::atomic(std::uint64_t& operand, const Target& at, fi_op operation) {
  atomic_op.msg = atomic_message(operand, at, operation);
  work.op_type = FI_OP_ATOMIC;
  work.op.atomic = &atomic_op;
  return *this;
}

Deferred& Deferred::fetch(std::uint64_t& operand, std::uint64_t& result, const Target& at, fi_op operation) {
  fetch_op.msg = atomic_message(operand, at, operation);
  result_ = {&result, 1};
  fetch_op.fetch = {&result_, nullptr, 1};
  work.op_type = FI_OP_FETCH_ATOMIC;
  work.op.fetch_atomic = &fetch_op;
  return *this;
}

Deferred& Deferred::compare(std::uint64_t& operand, std::uint64_t& compared, std::uint64_t& result, const Target& at) {
  compare_op.msg = atomic_message(operand, at, FI_CSWAP);
  compared_ = {&compared, 1};
  result_ = {&result, 1};
  compare_op.compare = {&compared_, nullptr, 1};
  compare_op.fetch = {&result_, nullptr, 1};
  work.op_type = FI_OP_COMPARE_ATOMIC;
  work.op.compare_atomic = &compare_op;
  return *this;
}

Deferred& Deferred::change(fi_op_type how, fid_cntr* counter, std::uint64_t value) {
  counter_op = {counter, value};
  work.op_type = how;
  work.op.cntr = &counter_op;
  return *this;
}

Deferred& Deferred::to(fi_addr_t peer, std::uint64_t key) {
  rma.msg.addr = peer;
  remote.key = key;
  return *this;
}

void Deferred::set_flags(std::uint64_t flags) {
  rma.flags = atomic_op.flags = fetch_op.flags = compare_op.flags = flags;
}

int Deferred::queue() { return fi_control(&domain_->fid, FI_QUEUE_WORK, &work); }

// --- payloads and counts ---------------------------------------------------------------------------------------------

std::vector<std::byte> payload(std::size_t bytes, std::uint64_t stamp) {
  std::vector<std::byte> filled(bytes);
  for (std::size_t i = 0; i < bytes; ++i) filled[i] = payload_byte(i, stamp);
  return filled;
}

void expect_payload(std::span<const std::byte> bytes, std::uint64_t stamp) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(bytes[i], payload_byte(i, stamp)) << "byte " << i << " of " << bytes.size() << ", stamp " << stamp;
  }
}

void expect_poison(std::span<const std::byte> bytes) {
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte one) { return one == kPoison; }));
}

bool reaches(const Handle<fid_cntr>& counter, std::uint64_t value) {
  return eventually([&] { return fi_cntr_read(counter.get()) >= value; });
}

void expect_counts(const Handle<fid_cntr>& counter, std::uint64_t success, std::uint64_t failure) {
  EXPECT_EQ(fi_cntr_read(counter.get()), success);
  EXPECT_EQ(fi_cntr_readerr(counter.get()), failure);
}

}  // namespace emucxi::test
