// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/domain.hpp"

#include <poll.h>
#include <rdma/fi_errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "tests/chaos/counter.hpp"
#include "tests/chaos/queue.hpp"
#include "tests/layer/tables.hpp"

namespace chaos {
namespace {

using layer::object;

int control(fid* handle, int command, void* argument) {
  auto& domain = object<Domain>(handle);
  if (command != FI_QUEUE_WORK || !domain.settings.counters) return -FI_ENOSYS;
  return domain.locked([&] { return queue_work(domain.settings, *static_cast<const fi_deferred_work*>(argument)); });
}

int open_addresses(fid_domain* handle, fi_av_attr* attributes, fid_av** addresses, void* context) {
  return fi_av_open(static_cast<Domain*>(handle)->inner, attributes, addresses, context);
}

int reg(fid* handle, const void* memory, std::size_t bytes, std::uint64_t access, std::uint64_t offset,
        std::uint64_t key, std::uint64_t flags, fid_mr** region, void* context) {
  auto& domain = object<Domain>(handle);
  if (key >> Keys::kBits) return -FI_EKEYREJECTED;
  return domain.locked([&] {
    fid_mr* inner = nullptr;
    int bad = fi_mr_reg(domain.inner, memory, bytes, access, offset, key, flags & ~FI_RMA_EVENT, &inner, nullptr);
    if (bad) return bad;
    auto opened = std::make_unique<Region>(domain, inner, context);
    bad = domain.keys.open(key);
    if (!bad) *region = opened.release();
    return bad;
  });
}

fi_ops domain_fid_ops = layer::calls<fi_ops>([](fi_ops& has) {
  has.close = layer::close<Domain>;
  has.control = control;
});
fi_ops_domain domain_ops = layer::calls<fi_ops_domain>([](fi_ops_domain& has) {
  has.av_open = open_addresses;
  has.cq_open = open_queue;
  has.endpoint = open_endpoint;
  has.cntr_open = open_counter;
});
fi_ops_mr region_ops = layer::calls<fi_ops_mr>([](fi_ops_mr& has) { has.reg = reg; });

/// So that two domains of a process do not draw the same random numbers.
std::uint64_t domains_so_far() {
  static std::atomic<std::uint64_t> count = 0;
  return count++;
}

}  // namespace

Domain::Domain(layer::Fabric& owner, const Settings& set, fid_domain* wrapped, void* context)
    : layer::Domain(owner, wrapped, {{FI_CLASS_DOMAIN, context, &domain_fid_ops}, &domain_ops, &region_ops}),
      settings(set), random(set.seed + domains_so_far()), stirred_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  thread_ = std::thread([this] { play(); });
}

Domain::~Domain() {
  locked([this] { return ending_ = true; });
  stir();
  thread_.join();
  ::close(stirred_);
}

Clock::duration Domain::delay() {
  const double thrown = std::uniform_real_distribution(0.0, 1.0)(random);
  const auto longest = std::chrono::duration_cast<std::chrono::nanoseconds>(settings.longest);
  return std::chrono::nanoseconds(static_cast<std::int64_t>(static_cast<double>(longest.count()) * thrown * thrown));
}

void Domain::turn() {
  for (Queue* const queue : queues) queue->poll();
  for (Endpoint* const endpoint : endpoints) endpoint->turn();
}

void Domain::stir() const { ::eventfd_write(stirred_, 1); }

void Domain::complete(void* context, int error) {
  for (Endpoint* const endpoint : endpoints) {
    if (endpoint->complete(context, error)) return;
  }
}

void Domain::count(std::uint64_t key) {
  for (Region* const region : regions) {
    if (fi_mr_key(region) == key) region->landed();
  }
}

void Domain::forget(const Counter& counter) {
  for (Region* const region : regions) {
    if (region->counter == &counter) region->counter = nullptr;
  }
}

Clock::duration Domain::nap() const {
  Clock::duration nap = std::chrono::seconds(1);
  const auto now = Clock::now();
  for (const Endpoint* const endpoint : endpoints) {
    if (const auto next = endpoint->next()) nap = std::min(nap, *next - now);
    if (endpoint->in_flight()) nap = std::min<Clock::duration>(nap, std::chrono::milliseconds(1));
  }
  // The queues below remember endpoints that are closed.
  if (endpoints.empty()) return nap;
  for (const Queue* const queue : queues) {
    struct fid* below = &queue->inner->fid;
    if (fi_trywait(fabric.inner, &below, 1) != 0) return {};
  }
  // A step that is due already waits for room in the network below.
  return std::max<Clock::duration>(nap, std::chrono::microseconds(50));
}

void Domain::play() {
  for (;;) {
    std::vector<pollfd> watched = {{stirred_, POLLIN, 0}};
    Clock::duration rest{};
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return;
      turn();
      for (const Queue* const queue : queues) watched.push_back({queue->inner_descriptor, POLLIN, 0});
      rest = nap();
    }
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(rest).count();
    const timespec limit = {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    ::ppoll(watched.data(), watched.size(), &limit, nullptr);
    eventfd_t ignored = 0;
    ::eventfd_read(stirred_, &ignored);
  }
}

int open_domain(fid_fabric* fabric, fi_info*, fid_domain** domain, void* context) {
  const auto settings = settings_from_environment();
  if (!settings) return -FI_EINVAL;
  auto& owner = *static_cast<layer::Fabric*>(fabric);
  fid_domain* inner = nullptr;
  if (const int bad = fi_domain(owner.inner, owner.inner_info.get(), &inner, nullptr)) return bad;
  *domain = new Domain(owner, *settings, inner, context);
  return 0;
}

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
  auto& owner = *static_cast<Domain*>(domain);
  fid_ep* inner = nullptr;
  if (const int bad = fi_endpoint(owner.inner, owner.fabric.inner_info.get(), &inner, nullptr)) return bad;
  const bool ordered = (info->tx_attr->msg_order & (FI_ORDER_WAW | FI_ORDER_RMA_WAW)) != 0;
  return owner.locked([&] {
    *endpoint = new Endpoint(owner, ordered, inner, context);
    return 0;
  });
}

}  // namespace chaos
