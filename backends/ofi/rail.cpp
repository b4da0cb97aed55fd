// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/rail.hpp"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "backends/ofi/leftovers.hpp"
#include "backends/ofi/provider.hpp"
#include "base/log.hpp"
#include "base/memory_limit.hpp"
#include "base/races.hpp"

namespace sluice::backends::ofi {
namespace {

// cxi keeps client keys below this for memory without remote events; others do not mind.
constexpr std::uint64_t kFirstKey = 100;

/// The device once more, with further capabilities, and exactly this order: rxm has no atomics where more order is
/// wanted.
Info with(const fi_info& device, std::uint64_t order, std::uint64_t caps) {
  const Info hints = wanting(device, caps);
  hints->tx_attr->msg_order = order;
  hints->rx_attr->msg_order = order;
  return ask(hints.get());
}

/// Providers in software copy GPUs' memory in a way that waits for streams (of CUDA the legacy stream): a parked one
/// would hold up what it waits for.
bool is_a_nic(const fi_info& device) {
  const fi_bus_attr* const bus = device.nic == nullptr ? nullptr : device.nic->bus_attr;
  return bus != nullptr && bus->bus_type == FI_BUS_PCI;
}

/// The device with the most that it offers, in this order: deferred work, GPUs' memory, write-after-write order, reads.
Info best_of(const fi_info& device, bool triggers, bool gpus) {
  using Bits = std::initializer_list<std::uint64_t>;
  const std::uint64_t work = triggers ? kTriggerCaps : 0;
  const std::uint64_t memory = gpus ? FI_HMEM : 0;
  for (const std::uint64_t basic : Bits{work | memory, work, memory, 0}) {
    for (const std::uint64_t order : Bits{FI_ORDER_RMA_WAW, 0}) {
      for (const std::uint64_t access : Bits{Rail::kReadCaps, 0}) {
        if (Info info = with(device, order, basic | access)) return info;
      }
    }
  }
  return duplicate(&device);
}

bool is_shm(const fi_info& info) { return std::string_view(info.fabric_attr->prov_name) == "shm"; }

/// ofi_rxm crashes on the error that tcp tells it of an inject, because the peer has died (libfabric 1.17 to 2.6).
bool survives_failed_injects(const fi_info& info) {
  const std::string_view provider = info.fabric_attr->prov_name;
  return !provider.starts_with("tcp") || provider.find("ofi_rxm") == std::string_view::npos;
}

/// libfabric's shm would end this process with SIGBUS or SIGXFSZ.
void check_room_for_endpoint() {
  constexpr std::size_t kFile = 16 << 20;  // a quarter of it is used from the start
  const std::string why = base::why_no_file(kFile);
  if (!why.empty()) throw std::runtime_error(why);
  if (!dev_shm_has_room(kFile / 2))
    throw std::runtime_error("no room for an endpoint of libfabric's shm: " + state_of_dev_shm());
}

/// The message of a write or a read of one piece, for libfabric; it points into itself.
struct OnePiece {
  OnePiece(std::byte* here, std::size_t bytes, void* desc, const Remote& there, Operation& operation)
      : here_{here, bytes}, desc_(desc), there_{there.spot.address, bytes, there.spot.key} {
    message.msg_iov = &here_;
    message.desc = &desc_;
    message.iov_count = 1;
    message.addr = there.peer;
    message.rma_iov = &there_;
    message.rma_iov_count = 1;
    message.context = &operation.context;
  }
  OnePiece(const OnePiece&) = delete;
  OnePiece& operator=(const OnePiece&) = delete;

  fi_msg_rma message{};

 private:
  iovec here_;
  void* desc_;
  fi_rma_iov there_;
};

}  // namespace

Rail::Rail(const fi_info& device, bool triggers, bool stage_all)
    : device_(text(device.domain_attr->name)),
      info_(best_of(device, triggers, is_a_nic(device) && !device::drivers_in_use().empty())),
      injects_(survives_failed_injects(*info_)), next_key_(kFirstKey), stage_all_(stage_all) {
  // When the number of a process comes again, libfabric is busy with what the first has left.
  if (is_shm(*info_)) remove_leftovers();
  fabric_ = opened<fid_fabric>("fi_fabric", library().fabric, info_->fabric_attr);
  domain_ = opened<fid_domain>("fi_domain", fi_domain, fabric_.get(), info_.get());
  open_queue();
  fi_av_attr table{};
  table.type = FI_AV_TABLE;
  addresses_ = opened<fid_av>("fi_av_open", fi_av_open, domain_.get(), &table);
  endpoint_ = open_endpoint();
  flushes_ = registered({flushed_.data(), flushed_.size(), nullptr});
}

Owned<fid_ep> Rail::open_endpoint() const {
  if (is_shm(*info_)) check_room_for_endpoint();
  auto endpoint = opened<fid_ep>("fi_endpoint", fi_endpoint, domain_.get(), info_.get());
  // Apart: sockets would keep the numbers of peers to itself if these were to complete selectively too.
  check(fi_ep_bind(endpoint.get(), &queue_->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION), "fi_ep_bind");
  check(fi_ep_bind(endpoint.get(), &queue_->fid, FI_RECV), "fi_ep_bind");
  check(fi_ep_bind(endpoint.get(), &addresses_->fid, 0), "fi_ep_bind");
  check(fi_enable(endpoint.get()), "fi_enable");
  return endpoint;
}

fid_ep* Rail::endpoint_to_peer() {
  // An endpoint of shm takes the answers of its peers in the order of its requests: all would wait for the dead one.
  if (!is_shm(*info_)) return endpoint_.get();
  endpoints_to_peers_.push_back(open_endpoint());
  return endpoints_to_peers_.back().get();
}

void Rail::open_queue() {
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_DATA;
  attributes.wait_obj = FI_WAIT_FD;
  try {
    queue_ = opened<fid_cq>("fi_cq_open", fi_cq_open, domain_.get(), &attributes);
    // ofi_rxd promises one and has none.
    if (fi_control(&queue_->fid, FI_GETWAIT, &wait_fd_) < 0) wait_fd_ = -1;
  } catch (const std::runtime_error&) {
    attributes.wait_obj = FI_WAIT_NONE;
    queue_ = opened<fid_cq>("fi_cq_open", fi_cq_open, domain_.get(), &attributes);
  }
}

Blob Rail::name(fid_ep* endpoint) const {
  Blob name(256);
  std::size_t bytes = name.size();
  int code = fi_getname(&endpoint->fid, name.data(), &bytes);
  if (code == -FI_ETOOSMALL) {
    name.resize(bytes);
    code = fi_getname(&endpoint->fid, name.data(), &bytes);
  }
  check(code, "fi_getname");
  name.resize(bytes);
  return name;
}

fi_addr_t Rail::add(const Blob& name) {
  fi_addr_t address = FI_ADDR_UNSPEC;
  if (fi_av_insert(addresses_.get(), name.data(), 1, &address, 0, nullptr) != 1)
    throw std::runtime_error("libfabric: fi_av_insert: the peer's address is not understood");
  return address;
}

std::shared_ptr<Registration> Rail::registered(const device::Extent& memory) {
  const bool shared = memory.segment != nullptr && !memory.segment->sparse;
  const device::Extent whole =
      shared ? device::Extent{memory.segment->data, memory.segment->bytes, memory.segment, memory.driver} : memory;
  std::erase_if(registrations_, [](const auto& one) { return one.expired(); });
  for (const auto& one : registrations_) {
    if (auto registration = one.lock(); registration != nullptr && registration->holds(whole.data, whole.bytes))
      return registration;
  }
  if (whole.driver != nullptr && (info_->caps & FI_HMEM) == 0)
    throw std::runtime_error("the provider reaches no memory of GPUs");
  auto mr = register_memory(whole, FI_WRITE | FI_REMOTE_WRITE | (reads() ? kReadCaps : 0), 0);
  if (binds_memory()) {
    check(fi_mr_bind(mr.get(), &endpoint_->fid, 0), "fi_mr_bind");
    check(fi_mr_enable(mr.get()), "fi_mr_enable");
  }
  auto registration = std::make_shared<Registration>(
      Registration{std::move(mr), whole.data, whole.bytes, by_offset(), whole.driver != nullptr});
  registrations_.push_back(registration);
  if (shared && memory.segment->shared) kept_.push_back(registration);
  return registration;
}

Owned<fid_mr> Rail::register_memory(const device::Extent& memory, std::uint64_t access, std::uint64_t flags) {
  const std::uint64_t key = next_key_++;
  if (memory.driver == nullptr)
    return opened<fid_mr>("fi_mr_reg", fi_mr_reg, domain_.get(), memory.data, memory.bytes, access, 0, key, flags);
  const auto gpu = memory.driver->find(memory.data);
  if (!gpu || !memory.driver->orders_writes_of_others(gpu->device))
    throw std::runtime_error("writes of a NIC into this GPU's memory may be seen after their signal");
  const iovec whole{memory.data, memory.bytes};
  fi_mr_attr attributes{};
  attributes.mr_iov = &whole;
  attributes.iov_count = 1;
  attributes.access = access;
  attributes.requested_key = key;
  attributes.iface = memory.driver->kind() == Stream::Kind::cuda ? FI_HMEM_CUDA : FI_HMEM_ROCR;
  attributes.device.cuda = gpu->device;
  fid_mr* mr = nullptr;
  check(fi_mr_regattr(domain_.get(), &attributes, flags, &mr), "fi_mr_regattr");
  return Owned<fid_mr>(mr);
}

std::shared_ptr<Registration> Rail::registered_if_reached(const device::Extent& memory) {
  const bool users = memory.segment == nullptr || memory.segment->sparse || memory.driver != nullptr;
  if (users && stage_all_) return nullptr;
  try {
    return registered(memory);
  } catch (const std::runtime_error& reason) {
    if (!users) throw;
    base::log(base::LogLevel::info, std::string("memory is staged: ") + reason.what());
    return nullptr;
  }
}

void Rail::disown(const Registration& registration) {
  const auto is = [&](const auto& kept) { return kept.get() == &registration; };
  if (std::ranges::any_of(kept_, is)) return;  // its memory stays
  std::erase_if(registrations_, [&](const auto& one) { return one.lock().get() == &registration; });
}

void Rail::close_endpoints() {
  if (binds_memory()) return;
  endpoints_to_peers_.clear();
  endpoint_.reset();
}

Posted Rail::write(const Local& from, const Remote& to, std::optional<std::uint64_t> number, bool delivered,
                   Operation& operation) {
  const base::races::Unseen libfabric;
  if (injects_ && !delivered && !from.of_gpu && from.bytes <= info_->tx_attr->inject_size) {
    const ssize_t code =
        number ? fi_inject_writedata(to.from, from.data, from.bytes, *number, to.peer, to.spot.address, to.spot.key)
               : fi_inject_write(to.from, from.data, from.bytes, to.peer, to.spot.address, to.spot.key);
    if (code == -FI_EAGAIN) return Posted::busy;
    check(code, "fi_inject_write");
    return Posted::over;
  }
  OnePiece piece(const_cast<std::byte*>(from.data), from.bytes, from.desc, to, operation);
  piece.message.data = number.value_or(0);
  const std::uint64_t flags = FI_COMPLETION | (number ? FI_REMOTE_CQ_DATA : 0) | (delivered ? FI_DELIVERY_COMPLETE : 0);
  return posted(fi_writemsg(to.from, &piece.message, flags), "fi_writemsg", operation);
}

Posted Rail::read(std::byte* to, std::size_t bytes, void* desc, const Remote& from, Operation& operation) {
  const base::races::Unseen libfabric;
  const OnePiece piece(to, bytes, desc, from, operation);
  return posted(fi_readmsg(from.from, &piece.message, FI_COMPLETION), "fi_readmsg", operation);
}

Posted Rail::posted(ssize_t code, const char* what, Operation& operation) {
  if (code == -FI_EAGAIN) return Posted::busy;
  check(code, what);
  ++under_way_;
  operation.posted = true;
  return Posted::under_way;
}

void Rail::end(Operation& operation, const std::string& why_not) {
  if (operation.owner == nullptr) return;  // given up
  --under_way_;
  operation.posted = false;
  operation.owner->ended(operation, why_not);
}

void Rail::know(Operation& operation, Owner& owner) {
  operation.owner = &owner;
  operations_[&owner].push_back(&operation);
}

void Rail::give_up(Operation& operation) {
  --under_way_;
  std::erase(operations_[operation.owner], &operation);
  operation.owner = nullptr;
}

void Rail::tell_of_broken_queue(ssize_t code, const char* what) {
  if (std::exchange(told_of_broken_queue_, true)) return;
  base::log(base::LogLevel::warn,
            "libfabric: a completion queue of " + device_ + " is broken: " + what + ": " + text_of(-code));
}

bool Rail::end_failed() {
  fi_cq_err_entry error{};
  const ssize_t count = [&] {
    const base::races::Unseen libfabric;
    return fi_cq_readerr(queue_.get(), &error, 0);
  }();
  if (count == -FI_EAGAIN) return true;
  if (count < 0) {
    tell_of_broken_queue(count, "fi_cq_readerr");
    return false;
  }
  const std::string why = text_of(error.err);
  base::log(base::LogLevel::info, "libfabric: an operation has failed: " + why);
  // An inject has no context, so the error of a failed one may have any, which is compared and not used. The death of
  // such a write's peer is noticed otherwise.
  const auto is = [&](const Operation* one) {
    return one->armed == nullptr ? one->posted && &one->context == error.op_context : one->armed == error.op_context;
  };
  for (const auto& [owner, operations] : operations_) {
    const auto failed = std::ranges::find_if(operations, is);
    if (failed == operations.end()) continue;
    (*failed)->armed == nullptr ? end(**failed, why) : owner->ended(**failed, why);
    break;
  }
  return true;
}

bool Rail::may_sleep() const {
  const base::races::Unseen libfabric;  // which moves bytes here too
  fid* queue = &queue_->fid;
  return fi_trywait(fabric_.get(), &queue, 1) == FI_SUCCESS;
}

}  // namespace sluice::backends::ofi
