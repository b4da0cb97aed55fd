// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/transport.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <stdexcept>

#include "backends/shm/access.hpp"
#include "backends/shm/bounce.hpp"
#include "backends/shm/keys.hpp"
#include "base/log.hpp"
#include "base/process.hpp"

namespace sluice::backends::shm {
namespace {

struct Address {
  std::int64_t pid = 0;
  /// Where peers read the token, to learn whether the kernel lets them reach into this process, and that it is this
  /// one.
  std::uint64_t token_at = 0;
  std::uint64_t token = 0;
};

Address own_address() {
  Address address;
  address.pid = getpid();
  address.token_at = reinterpret_cast<std::uintptr_t>(&base::process_token());
  address.token = base::process_token();
  return address;
}

bool kernel_lets_us_reach(const Address& peer) {
  std::uint64_t seen = 0;
  const iovec local{&seen, sizeof seen};
  const iovec remote{reinterpret_cast<void*>(peer.token_at), sizeof seen};
  return process_vm_readv(static_cast<pid_t>(peer.pid), &local, 1, &remote, 1, 0) == sizeof seen && seen == peer.token;
}

/// Lands in the target itself, which the peer maps.
class MappedLanding final : public Landing {
 public:
  MappedLanding(const Slots& target, const Signal& signal, Sent& sent)
      : target_(target), signal_(signal), sent_(sent) {}
  Key key() const override {
    const device::Segment* slots = target_.memory.segment;
    return pack(direct_target(target_, signal_),
                {slots == signal_.memory.segment ? nullptr : slots, signal_.memory.segment}, sent_);
  }
  bool undecided() const noexcept override { return false; }
  void decide(const std::string&) override {}
  bool direct() const noexcept override { return true; }
  bool close() override { return false; }
  void reach_from(device::Driver&) override {}
  void take(device::Lane, device::Watch&, std::uint64_t) override {}
  std::string describe() const override { return kLandsInTarget; }

 private:
  Slots target_;
  Signal signal_;
  Sent& sent_;
};

class ShmLink final : public Link {
 public:
  ShmLink(Rank rank, const Address& peer, const Settings& settings)
      : rank_(rank), pid_(kernel_lets_us_reach(peer) ? static_cast<pid_t>(peer.pid) : 0), settings_(settings),
        own_(peer.token == base::process_token()), mappings_(own_) {}

  std::size_t rails(const Slots&) const override { return 1; }
  std::unique_ptr<Landing> land(const Slots& target, std::span<const Signal> signals) override {
    const Signal& signal = signals.front();
    if (target.slot_bytes != 0 && target.memory.segment == nullptr)
      return std::make_unique<BounceLanding>(target, signal, sent_);
    if (target.slot_bytes != 0 && target.memory.driver != nullptr && !own_) {
      try {
        return std::make_unique<OfferedLanding>(target, signal, sent_);
      } catch (const std::exception& reason) {  // so many bytes the host may not have
        base::log(base::LogLevel::info, std::string("no way around a GPU's memory: ") + reason.what());
      }
    }
    return std::make_unique<MappedLanding>(target, signal, sent_);
  }

  void arrived(Key& key) override { mappings_.keep(key); }
  void lost() override {}

  std::unique_ptr<Put> prepare(const Slots& source, device::Watch& watch, Key key) override {
    const Target target = unpack(key);
    Mapped mapped;
    Signal signal;
    signal.word = reinterpret_cast<base::Word*>(mappings_.find(target.word, key, mapped));
    signal.parking = reinterpret_cast<base::Parking*>(mappings_.find(target.parking, key, mapped));
    Slots slots;
    slots.slot_bytes = target.stride;
    slots.depth = target.depth;
    const bool offered = target.detour.segment != 0;
    std::string obstacle;
    try {
      slots.memory.data = mappings_.find(target.slots, key, mapped, &slots.memory.driver);
    } catch (const std::runtime_error& reason) {
      if (!offered) throw;
      obstacle = reason.what();
      tell(target.slots.segment, obstacle);
      slots.memory.data = mappings_.find(target.detour, key, mapped);
      slots.slot_bytes = target.detour_stride;
    }
    if (target.bounced || !obstacle.empty()) {
      return std::make_unique<BouncePut>(source, slots, target.slot_bytes, signal, watch, std::move(mapped),
                                         CrossMemory{target.address == 0 ? 0 : pid_, target.address},
                                         settings_.bounce_max, std::move(obstacle));
    }
    const char* const how = "shm: copied by the stream into the target, which is mapped";
    if (offered) return std::make_unique<OfferedPut>(source, slots, signal, watch, std::move(mapped), how);
    return std::make_unique<MappedPut>(source, slots, signal, watch, std::move(mapped), how);
  }
  std::unique_ptr<Offer> offer(const device::Extent& memory) override {
    return std::make_unique<ShmOffer>(memory, sent_);
  }
  std::unique_ptr<Access> access(const device::Extent& local, int, device::Watch& watch, Key key) override {
    return open_access(local, pid_, mappings_, watch, std::move(key));
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
  Sent sent_;
  std::set<std::uint64_t> told_;  // segments that cannot be mapped
};

class ShmPin final : public Pin {};

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(const Settings& settings) : settings_(settings), own_(own_address()) {}

  Blob address() const override {
    Blob blob(sizeof own_);
    std::memcpy(blob.data(), &own_, sizeof own_);
    return blob;
  }
  bool reaches(const Blob& peer, bool here) const override {
    return here && peer.size() == sizeof(Address);  // to other hosts no descriptors travel
  }
  std::unique_ptr<Pin> pin(const device::Extent&) override { return std::make_unique<ShmPin>(); }
  void try_out(device::Driver&) override {}
  std::unique_ptr<Link> connect(Rank rank, const Blob& peer, bool) override {
    return std::make_unique<ShmLink>(rank, parse(peer), settings_);
  }
  AfterTurn poll() override { return AfterTurn::nothing; }
  int rest(std::vector<pollfd>&) override { return kNoLimit; }

 private:
  static Address parse(const Blob& blob) {
    Address address;
    std::memcpy(&address, blob.data(), sizeof address);
    return address;
  }

  Settings settings_;
  Address own_;
};

}  // namespace

std::unique_ptr<Transport> open(const Settings& settings) { return std::make_unique<ShmTransport>(settings); }

}  // namespace sluice::backends::shm
