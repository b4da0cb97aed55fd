// SPDX-License-Identifier: Apache-2.0
#include "backends/access.hpp"

#include <atomic>
#include <cstring>
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
  if (request.atomic() && request.local.size() != kWord) {
    return "the old value of an atomic takes 8 bytes, not " + std::to_string(request.local.size());
  }
  if (request.atomic() && request.offset % kWord != 0)
    return "an atomic at offset " + std::to_string(request.offset) + ", which is not a multiple of 8";
  if (!within(request.offset, request.local.size(), bounds.offered)) {
    return text_of(request.offset, request.local.size()) + " are beyond the peer's memory of " +
           std::to_string(bounds.offered) + " bytes";
  }
  return {};
}

/// Changes the word in one step; returns what it was.
std::uint64_t change(std::byte* at, const Request& request) noexcept {
  const std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(at));
  if (request.kind == Kind::fetch_add) return word.fetch_add(request.operand);
  if (request.kind == Kind::swap) return word.exchange(request.operand);
  std::uint64_t found = request.compare;
  word.compare_exchange_strong(found, request.operand);
  return found;
}

}  // namespace

void check_offered(const device::Extent& memory) {
  if (reinterpret_cast<std::uintptr_t>(memory.data) % kWord != 0)
    throw std::invalid_argument("offered memory must begin at a multiple of 8 bytes");
  if (memory.driver != nullptr) throw std::invalid_argument("memory of a GPU cannot be offered");
}

void fail_shut(device::Watch& watch) noexcept {
  watch.fail(Code::closed, "the peer has closed its memory, and later accesses move nothing");
}

bool taken(const Request& request, const Bounds& bounds, device::Watch& watch) {
  if (watch.shut()) {
    fail_shut(watch);
    return false;
  }
  if (const std::string why = misuse(request, bounds); !why.empty()) {
    watch.fail(Code::misuse, why);
    return false;
  }
  if (request.atomic() && !bounds.no_atomics.empty()) {
    watch.fail(Code::unsupported, "no atomics on the peer's memory: " + bounds.no_atomics);
    return false;
  }
  if (request.local.size() > bounds.at_once) {
    watch.fail(Code::unsupported, std::to_string(request.local.size()) + " bytes are more than the " +
                                      std::to_string(bounds.at_once) + " that one message may have");
    return false;
  }
  return true;
}

void StreamAccess::enqueue(device::Lane lane, std::uint64_t epoch, const Request& request) {
  if (taken(request, bounds_, watch_)) carry_out(lane, request);
  base::raise(watch_.done, epoch, watch_.done_parking);
}

void MappedAccess::carry_out(device::Lane lane, const Request& request) {
  std::byte* const here = request.local.data();
  std::byte* const there = offered_.data + request.offset;
  if (request.atomic()) {
    const std::uint64_t old = change(there, request);
    std::memcpy(here, &old, sizeof old);
  } else if (!request.local.empty()) {
    const bool get = request.kind == Kind::get;
    device::copy(lane, get ? here : there, get ? there : here, request.local.size());
  }
}

void EngineAccess::enqueue(device::Lane lane, std::uint64_t epoch, const Request& request) {
  // Once the watch has failed, requests under way are still read, so they stay as they are. New ones are not posted.
  if (taken(request, bounds_, watch_)) requests_[epoch % requests_.size()] = request;
  bell_.ring(lane);
}

}  // namespace sluice::backends
