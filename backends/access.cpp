// SPDX-License-Identifier: Apache-2.0
#include "backends/access.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>

#include "device/copy.hpp"

namespace sluice::backends {
namespace {

using Kind = Request::Kind;

constexpr std::size_t kWord = sizeof(std::uint64_t);

bool within(std::uint64_t offset, std::size_t bytes, std::size_t all) noexcept {
  return offset <= all && bytes <= all - offset;
}

std::string text_of(std::uint64_t offset, std::size_t bytes) {
  return std::to_string(bytes) + " bytes at offset " + std::to_string(offset);
}

/// The text of the error; empty: there is none.
std::string misuse(const Request& request, const Bounds& bounds) {
  const bool numbers = request.kind == Kind::accumulate;
  const std::size_t size = numbers ? size_of(request.number) : kWord;
  if (request.atomic() && !numbers && request.local.size() != kWord) {
    return "the old value of an atomic takes 8 bytes, not " + std::to_string(request.local.size());
  }
  if (numbers && request.local.size() % size != 0)
    return std::to_string(request.local.size()) + " bytes are no numbers of " + std::to_string(size);
  if (request.atomic() && request.offset % size != 0) {
    return "an atomic at offset " + std::to_string(request.offset) + ", which is not a multiple of " +
           std::to_string(size);
  }
  if (request.counter != Request::kNone && request.counter >= bounds.counters) {
    return "counter " + std::to_string(request.counter) + " of a window that has " + std::to_string(bounds.counters);
  }
  if (!within(request.offset, request.local.size(), bounds.offered)) {
    return text_of(request.offset, request.local.size()) + " are beyond the peer's memory of " +
           std::to_string(bounds.offered) + " bytes";
  }
  return {};
}

device::ChangeArgs::What what_of(Kind kind) {
  using What = device::ChangeArgs::What;
  switch (kind) {
    case Kind::fetch_add: return What::fetch_add;
    case Kind::swap: return What::swap;
    case Kind::compare_swap: return What::compare_swap;
    default: return What::accumulate;
  }
}

void change_by_kernel(device::GpuCall& call, std::byte* there, const Request& request) {
  constexpr std::size_t kThreads = 256;     // of a block
  constexpr std::size_t kMostBlocks = 512;  // then each thread changes more numbers than one
  const std::size_t count = request.kind == Kind::accumulate ? request.local.size() / size_of(request.number) : 1;
  device::ChangeArgs args{there, request.local.data(),  request.operand, request.compare,
                          count, what_of(request.kind), request.op,      request.number};
  const std::size_t blocks = std::min((count + kThreads - 1) / kThreads, kMostBlocks);
  call.launch(
      {device::Kernel::change, &args, device::threads_for(std::min(count, kThreads)), static_cast<unsigned>(blocks)});
}

}  // namespace

void change(std::byte* at, const Request& request) noexcept {
  if (request.kind != Kind::accumulate) {
    const std::uint64_t old = change_word(at, request.kind, request.operand, request.compare);
    std::memcpy(request.local.data(), &old, sizeof old);
    return;
  }
  change_numbers(at, request.op, request.number, request.local);
}

Bounds mapped_bounds(const device::Extent& offered) {
  Bounds bounds;
  bounds.offered = offered.bytes;
  bounds.gpus = offered.driver;
  if (bounds.gpus != nullptr) bounds.no_atomics = kNotByProcessors;
  return bounds;
}

Bounds unmapped_bounds(std::size_t bytes, std::size_t counters) {
  constexpr const char* kNotMapped = "it is not mapped";
  return {.offered = bytes, .counters = counters, .no_atomics = kNotMapped, .no_gpus = kNotMapped};
}

void check_offered(const device::Extent& memory) {
  if (reinterpret_cast<std::uintptr_t>(memory.data) % kWord != 0)
    throw std::invalid_argument("offered memory must begin at a multiple of 8 bytes");
}

void fail_shut(device::Watch& watch) noexcept {
  watch.fail(Code::closed, "the peer has closed its memory, and later accesses move nothing");
}

bool taken(const Request& request, const Bounds& bounds, device::Watch& watch, bool on_gpu) {
  if (request.kind == Kind::none) return true;
  if (watch.shut()) {
    fail_shut(watch);
    return false;
  }
  if (const std::string why = misuse(request, bounds); !why.empty()) {
    watch.fail(Code::misuse, why);
    return false;
  }
  const bool by_kernel = on_gpu && bounds.gpus != nullptr;
  if (request.atomic() && !by_kernel && !bounds.no_atomics.empty()) {
    watch.fail(Code::unsupported, "an atomic on the peer's memory: " + bounds.no_atomics);
    return false;
  }
  if (request.gpus != nullptr && !bounds.no_gpus.empty()) {
    watch.fail(Code::unsupported, "not from or to memory of a GPU: " + bounds.no_gpus);
    return false;
  }
  return true;
}

Counters counters_at(std::byte* data, std::size_t bytes) noexcept {
  return {reinterpret_cast<base::Progress*>(data), bytes / sizeof(base::Progress)};
}

void StreamAccess::enqueue(device::Lane lane, std::uint64_t epoch, const Request& request) {
  if (taken(request, bounds_, watch_, lane.gpu != nullptr)) {
    if (lane.gpu != nullptr) {
      enqueue_on_gpu(lane, request);
    } else {
      carry_out_and_count(lane, request);
    }
  }
  device::raise(lane, watch_.done, epoch, watch_.done_parking);
}

void StreamAccess::carry_out_and_count(device::Lane lane, const Request& request) {
  if (watch_.failed()) return;  // meanwhile, on the stream of a GPU
  carry_out(lane, request);
  if (request.counter == Request::kNone || watch_.failed()) return;
  base::Progress& counter = counters_[request.counter];
  base::add_one(counter.word, counter.parking);
}

/// If either side is a GPU's memory, the stream copies, or a kernel changes it. The processor does the rest in a host
/// function of the stream: GPUs need not be atomic with processors, and a copy between two places of the processor's
/// memory by CUDA's driver would make the host wait until the stream reaches it.
void StreamAccess::enqueue_on_gpu(device::Lane lane, const Request& request) {
  struct Later {
    StreamAccess& access;
    Request request;
  };
  constexpr auto carry_out_now = [](void* held) {
    const std::unique_ptr<Later> later(static_cast<Later*>(held));
    later->access.carry_out_and_count({}, later->request);
  };
  Request rest = request;
  if (gpus_of(request) != nullptr) {
    carry_out(lane, request);
    if (request.counter == Request::kNone) return;
    rest.local = {};
    rest.gpus = nullptr;
  }
  std::unique_ptr<Later> later(new (std::nothrow) Later{*this, rest});
  if (later == nullptr) throw device::GpuError("no memory for an access by the host");
  lane.gpu->call(carry_out_now, later.get());
  static_cast<void>(later.release());
}

/// Memory of GPUs is copied by their streams, which need the memory of the peer for that.
void MappedAccess::reach_from(device::Driver& driver) {
  try {
    for (const auto& mapping : mapped_) mapping->reach_from(driver);
    const device::Reached pages = device::reach(driver, offered_);
    reached_.insert(reached_.end(), pages.begin(), pages.end());
  } catch (const device::StalePages& reason) {
    bounds_.no_gpus = reason.what();
  }
}

void MappedAccess::take_turns(Rank rank) noexcept {
  turns_ = {counters_.back().word, rank};
  counters_ = counters_.first(counters_.size() - 1);
  bounds_.counters = counters_.size();
}

/// The owner may read the word meanwhile: it has the old value or the new one.
std::optional<std::uint64_t> MappedAccess::change_in_turn(device::Lane lane, std::byte* at, Request::Kind kind,
                                                          std::uint64_t operand, std::uint64_t compare,
                                                          Timeout limit) noexcept {
  const std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(at));
  std::uint64_t old = 0;
  const bool changed = turns_.take(lane, watch_, limit, [&] {
    old = word.load(std::memory_order_relaxed);
    if (kind == Kind::compare_swap && old != compare) return;
    word.store(kind == Kind::fetch_add ? old + operand : operand, std::memory_order_release);
  });
  return changed ? std::optional(old) : std::nullopt;
}

/// Many numbers in several turns, so that other ranks wait no longer than for one.
void MappedAccess::accumulate_in_turn(device::Lane lane, std::byte* at, Op op, Number number,
                                      std::span<const std::byte> operands) noexcept {
  constexpr std::size_t kInOneTurn = std::size_t{64} * 1024;
  const ChangeAlone by_vectors = change_alone(op, number);  // first: what the lock waits for to be stored delays it
  bool good = true;
  for (std::size_t done = 0; good && done < operands.size(); done += kInOneTurn) {
    const std::size_t part = std::min(kInOneTurn, operands.size() - done);
    good =
        turns_.take(lane, watch_, kForever, [=, from = operands.data()] { by_vectors(at + done, from + done, part); });
  }
}

void MappedAccess::change(device::Lane lane, const Request& request) noexcept {
  if (request.kind == Kind::accumulate)
    return accumulate_now(lane, request.op, request.number, request.offset, request.local);
  const auto old = change_now(lane, request.kind, request.offset, request.operand, request.compare, kForever);
  if (old) std::memcpy(request.local.data(), &*old, sizeof *old);
}

void MappedAccess::carry_out(device::Lane lane, const Request& request) {
  if (request.local.empty()) return;
  std::byte* const here = request.local.data();
  std::byte* const there = offered_.data + request.offset;
  if (request.atomic() && lane.gpu != nullptr && offered_.driver != nullptr) {
    change_by_kernel(*lane.gpu, there, request);
  } else if (request.atomic()) {
    change(lane, request);
  } else {
    const bool get = request.kind == Kind::get;
    device::copy(lane, watch_, get ? here : there, get ? there : here, request.local.size(), gpus_of(request));
  }
}

void EngineAccess::left_out(std::uint64_t epoch) noexcept {
  if (requests_[epoch % requests_.size()].kind != Kind::none) fail_shut(watch_);
  base::raise(sent, epoch, watch_.done_parking);
}

void EngineAccess::enqueue(device::Lane lane, std::uint64_t epoch, const Request& request) {
  // Once the watch has failed, requests under way are still read, so they stay as they are. New ones are not posted.
  if (taken(request, bounds_, watch_)) requests_[epoch % requests_.size()] = request;
  // One that moves nothing completes in the next turn, as credits do.
  const bool moves = !request.local.empty() || request.counter != Request::kNone;
  if (bell_.entry() != nullptr) bell_.entry()->haste = moves ? Haste::now : Haste::soon;
  bell_.ring(lane);
}

}  // namespace sluice::backends
