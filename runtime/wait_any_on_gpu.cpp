// SPDX-License-Identifier: Apache-2.0
// Waits for whichever of several receivers comes first, in the order of a GPU's stream: a thread of ours takes it.
#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.hpp"
#include "runtime/handles.hpp"
#include "runtime/wait_any.hpp"

namespace sluice::detail {

// ---- Memory of tickets.

namespace {

constexpr std::size_t kMappedAtOnce = 256;  // records: several times the most calls that a line holds

}  // namespace

void TicketMemory::map_ahead(std::size_t most) {
  {
    const std::lock_guard lock(mutex_);
    if (free_[most].size() >= kMappedAtOnce / 2) return;
  }
  const std::size_t bytes = sizeof(std::uint64_t) + most * sizeof(DeviceArrival);
  auto pages = std::make_unique<device::Ledger>(&driver_, kMappedAtOnce * bytes);
  Records made;
  for (std::size_t i = 0; i < kMappedAtOnce; ++i)
    made.push_back({pages->take<std::uint64_t>(), pages->take<DeviceArrival>(most), most});
  const std::lock_guard lock(mutex_);
  pages_.push_back(std::move(pages));
  Records& free = free_[most];
  free.splice(free.end(), made);
}

TicketMemory::Records TicketMemory::take(std::size_t most) {
  const std::lock_guard lock(mutex_);
  Records& free = free_[most];
  Records taken;
  if (free.empty()) return taken;
  taken.splice(taken.end(), free, free.begin());
  *taken.front().size = 0;
  return taken;
}

void TicketMemory::drop(Records& record) noexcept {
  const std::lock_guard lock(mutex_);
  dropped_.splice(dropped_.end(), record);
}

TicketMemory::Records TicketMemory::dropped() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(dropped_, {});
}

void TicketMemory::reuse(Records& records) noexcept {
  const std::lock_guard lock(mutex_);
  while (!records.empty()) {
    Records& free = free_.find(records.front().most)->second;
    free.splice(free.begin(), records, records.begin());
  }
}

void TicketMemory::keep() noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& pages : pages_) pages->keep();
}

void AnyTicket::write_for_kernels() noexcept {
  if (memory == nullptr) return;
  const TicketMemory::Record& to = record.front();
  std::ranges::transform(arrivals, to.first, [](const WaitAny::Arrival& one) {
    return DeviceArrival{one.index, one.slot ? one.slot->data() : nullptr, one.slot ? one.slot->bytes() : 0,
                         one.count.value_or(0)};
  });
  *to.size = arrivals.size();
}

// ---- The object.

/// Everything is mapped now, because nothing can be mapped behind a parked stream.
void WaitAnyCore::check_gpu(Stream stream) {
  if (services_ == nullptr)
    throw error(Code::misuse, "a GPU's stream waits for any of several receivers: add them first");
  device::Driver& driver = *device::driver(stream.kind());
  try {
    const auto [gpu, capture] = driver.look_at(stream.handle());
    if (capture != 0)
      throw error(Code::unsupported, "the stream captures a graph, which cannot wait for any of several receivers");
    if (threads_ != nullptr && (driver_ != &driver || gpu_ != gpu))
      throw error(Code::misuse, "streams of another GPU use this WaitAny");
    fate_->check();
    if (driver_ != &driver || gpu_ != gpu) lent_ = 0;  // a call for another GPU has failed before
    driver_ = &driver;
    gpu_ = gpu;
    lend_to_kernels();
  } catch (const Error&) {
    throw;
  } catch (const device::InvalidCapture& reason) {
    throw error(Code::misuse, reason.what());
  } catch (const std::exception& reason) {
    throw error(Code::out_of_resources, reason.what());
  }
}

void WaitAnyCore::lend_to_kernels() {
  for (; lent_ < all_.size(); ++lent_) {  // no stream uses them yet: `add` was refused if one did
    if (all_[lent_] != nullptr) all_[lent_]->lend_to_kernels(*driver_, gpu_);
  }
  if (threads_ == nullptr)
    threads_ = std::make_unique<runtime::StreamThreads>(services_, rank_, "waits for any", fate_);
}

void WaitAnyCore::lend(AnyTicket& ticket, Stream stream) {
  try {
    auto& memory = memory_[stream.handle()];
    if (memory == nullptr) memory = std::make_shared<TicketMemory>(*driver_);
    if (enqueued_ == 0) memory->map_ahead(all_.size());
    ticket.record = memory->take(all_.size());
    if (!ticket.record.empty()) ticket.memory = memory;
  } catch (const std::exception& reason) {
    throw error(Code::out_of_resources, reason.what());
  }
  if (ticket.memory == nullptr)
    throw error(Code::out_of_resources,
                "so many tickets of the stream exist, and nothing can be mapped for more until its waits have ended");
}

/// When the work has its turn, kernels behind older tickets of this stream have run, unless it was ended by force.
void WaitAnyCore::give_to_gpu(Stream stream, std::function<void(device::Lane)> work) {
  const auto found = memory_.find(stream.handle());  // none: there was no wait on this stream
  const auto memory = found == memory_.end() ? nullptr : found->second;
  const auto old = std::make_shared<TicketMemory::Records>();
  if (memory != nullptr) *old = memory->dropped();
  auto run = [this, memory, old, work = std::move(work)](device::Lane lane) {
    if (memory != nullptr && !fate_->failed()) memory->reuse(*old);
    try {
      work(lane);
    } catch (const Error& reason) {
      fate_->fail(reason.code(), reason.what());
    } catch (const std::exception& reason) {
      fate_->fail(Code::out_of_resources, reason.what());
    }
  };
  try {
    threads_->run(stream, std::move(run));
  } catch (...) {
    if (memory != nullptr) memory->drop(*old);
    throw;
  }
}

/// Closing waits until the streams have passed the work that they were given, so waits that have not ended are ended
/// first. False: some have not ended.
bool WaitAnyCore::leave_gpus(base::Limit& limit) noexcept {
  if (on_gpu_ && enqueued_ > 0)
    fate_->fail(Code::aborted, "the WaitAny was destroyed before what a stream had of it had ended");
  const bool ended = !on_gpu_ || await_end(limit, [this] { return enqueued_ == 0; });
  const bool passed = ended && close_threads(limit);
  if (!passed || fate_->failed()) {  // kernels behind a wait that was ended by force may not have run
    for (const auto& [stream, memory] : memory_) memory->keep();
  }
  if (passed) {
    threads_.reset();
  } else {
    base::log(base::LogLevel::warn, "a GPU's stream has not passed the waits of a WaitAny: their words are kept");
    static_cast<void>(threads_.release());
  }
  return ended;
}

bool WaitAnyCore::close_threads(base::Limit& limit) noexcept {
  try {
    return threads_->close(limit) == nullptr;
  } catch (const std::exception& reason) {
    base::log(base::LogLevel::warn, reason.what());
    return false;
  }
}

}  // namespace sluice::detail

namespace sluice {

DeviceArrivals WaitAny::Ticket::on_device() const {
  if (state_ == nullptr) detail::throw_empty();
  if (state_->memory == nullptr)
    throw Error(Code::misuse, -1, -1, 0, 0, "on_device: the ticket is of no wait on a stream of a GPU");
  const auto& record = state_->record.front();
  return {record.size, record.first};
}

}  // namespace sluice
