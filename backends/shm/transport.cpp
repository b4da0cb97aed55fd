// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/transport.hpp"

#include <unistd.h>

#include <set>
#include <stdexcept>

#include "backends/on_host.hpp"
#include "backends/shm/access.hpp"
#include "backends/shm/bounce.hpp"
#include "backends/shm/keys.hpp"
#include "base/log.hpp"
#include "base/process.hpp"

namespace sluice::backends::shm {
namespace {

struct Address {
  std::int64_t pid = 0;
  /// The address at which peers read the token, to learn whether the kernel lets them reach into this process, and that
  /// it is this one.
  std::uint64_t token_at = 0;
  std::uint64_t token = 0;
};

Address own_address() {
  const auto& token = base::process_token();
  return {getpid(), reinterpret_cast<std::uintptr_t>(&token), token};
}

bool kernel_lets_us_reach(const Address& peer) {
  std::uint64_t seen = 0;
  const iovec local{&seen, sizeof seen};
  const iovec remote{reinterpret_cast<void*>(peer.token_at), sizeof seen};
  return process_vm_readv(static_cast<pid_t>(peer.pid), &local, 1, &remote, 1, 0) == sizeof seen && seen == peer.token;
}

class ShmLink final : public OnHostLink {
 public:
  ShmLink(Rank rank, const Address& peer, const Settings& settings)
      : rank_(rank), pid_(kernel_lets_us_reach(peer) ? static_cast<pid_t>(peer.pid) : 0), settings_(settings),
        own_(peer.token == base::process_token()), mappings_(own_) {}

  Landed land(const Slots& target, std::span<const Signal> signals) override {
    const Signal& signal = signals.front();
    if (target.slot_bytes != 0 && target.memory.segment == nullptr)
      return land_around(target, signal, Landing::Way::around, pid_, sent_);
    if (target.slot_bytes != 0 && target.memory.driver != nullptr && !own_) {
      try {
        return land_around(target, signal, Landing::Way::undecided, pid_, sent_);
      } catch (const std::exception& reason) {  // so many bytes the host may not have
        base::log(base::LogLevel::info, std::string("no way around a GPU's memory: ") + reason.what());
      }
    }
    const device::Segment* const slots = target.memory.segment;
    return {std::make_unique<Landing>(kLandsInTarget),
            pack(direct_target(target, signal),
                 {slots == signal.memory.segment ? nullptr : slots, signal.memory.segment}, sent_)};
  }

  void arrived(Key& key) override { mappings_.keep(key); }

  std::unique_ptr<Put> prepare(const Slots& source, device::Watch& watch, Key key) override {
    const auto target = value_in<Target>(key.bytes);
    Mapped mapped;
    const Signal signal{reinterpret_cast<base::Word*>(mappings_.find(target.word, key, mapped)),
                        reinterpret_cast<base::Parking*>(mappings_.find(target.parking, key, mapped)),
                        {}};
    Slots slots{{}, target.stride, target.depth};
    const bool offered = target.detour.segment != 0;
    auto obstacle = offered ? std::optional<std::string>("") : std::nullopt;
    try {
      slots.memory.data = mappings_.find(target.slots, key, mapped, &slots.memory.driver);
    } catch (const std::runtime_error& reason) {
      if (!offered) throw;
      obstacle = reason.what();
      tell(target.slots.segment, *obstacle);
      slots.memory.data = mappings_.find(target.detour, key, mapped);
      slots.slot_bytes = target.detour_stride;
    }
    if (target.bounced || !obstacle.value_or("").empty()) {
      return std::make_unique<BouncePut>(source, slots, target.slot_bytes, signal, watch, std::move(mapped),
                                         CrossMemory{target.address == 0 ? 0 : pid_, target.address},
                                         settings_.bounce_max, ways_, std::move(obstacle));
    }
    return std::make_unique<MappedPut>(source, slots, signal, watch, std::move(mapped),
                                       "shm: copied by the stream into the target, which is mapped",
                                       std::move(obstacle));
  }
  Offer offer(const device::Extent& memory, const device::Extent& counters) override {
    return offer_memory(memory, counters, sent_);
  }
  std::unique_ptr<Access> access(int, device::Watch& watch, Key key) override {
    return open_access(pid_, mappings_, watch, std::move(key));
  }

 private:
  /// Once a segment, however many channels use it.
  void tell(std::uint64_t segment, const std::string& obstacle) {
    if (!told_.insert(segment).second) return;
    base::log(base::LogLevel::info, "shm: memory of rank " + std::to_string(rank_) +
                                        "'s GPU cannot be mapped, so puts go through host memory: " + obstacle);
  }

  Rank rank_;
  pid_t pid_;
  Settings settings_;
  bool own_;  // the peer is in this process, where its memory needs no mapping
  Mappings mappings_;
  std::shared_ptr<FasterWay> ways_ = std::make_shared<FasterWay>();
  Sent sent_;
  std::set<std::uint64_t> told_;  // segments that cannot be mapped
};

class ShmTransport final : public OnHostTransport {
 public:
  explicit ShmTransport(const Settings& settings)
      : OnHostTransport(bytes_of(own_address()), Maps::host), settings_(settings) {}

  bool reaches(const Blob& peer, bool here) const override {
    return here && peer.size() == sizeof(Address);  // to other hosts no descriptors travel
  }
  std::unique_ptr<Link> connect(Rank rank, const Blob& peer, bool) override {
    return std::make_unique<ShmLink>(rank, value_of<Address>(peer), settings_);
  }

 private:
  Settings settings_;
};

}  // namespace

std::unique_ptr<Transport> open(const Settings& settings) { return std::make_unique<ShmTransport>(settings); }

}  // namespace sluice::backends::shm
