// SPDX-License-Identifier: Apache-2.0
#include "backends/threads/transport.hpp"

#include <cstring>
#include <stdexcept>

#include "backends/put.hpp"
#include "base/process.hpp"

namespace sluice::backends::threads {
namespace {

/// Where a rank's puts land: in one address space, pointers are all there is to say.
struct Place {
  Slots target;
  Signal signal;
};

class ThreadLanding final : public Landing {
 public:
  explicit ThreadLanding(const Place& place) : place_(place) {}
  Key key() const override {
    Key key;
    key.bytes.resize(sizeof place_);
    std::memcpy(key.bytes.data(), &place_, sizeof place_);
    return key;
  }
  bool direct() const noexcept override { return true; }
  bool closing_awaited() const noexcept override { return false; }
  void take(device::Lane, std::uint64_t) override {}
  std::string describe() const override { return "threads: lands in the target itself"; }

 private:
  Place place_;
};

class ThreadLink final : public Link {
 public:
  std::size_t rails(const Slots&) const override { return 1; }
  std::unique_ptr<Landing> land(const Slots& target, std::span<const Signal> signals) override {
    return std::make_unique<ThreadLanding>(Place{target, signals.front()});
  }
  void arrived(Key&) override {}
  void lost() override {}
  std::unique_ptr<Put> prepare(const Slots& source, device::Watch& watch, Key key) override {
    Place place;
    if (key.bytes.size() != sizeof place) throw std::runtime_error("a key of the wrong size");
    std::memcpy(&place, key.bytes.data(), sizeof place);
    return std::make_unique<MappedPut>(source, place.target, place.signal, watch, Mapped{},
                                       "threads: copied by the stream into the peer's memory");
  }
};

class ThreadPin final : public Pin {};

class ThreadTransport final : public Transport {
 public:
  Blob address() const override {
    const std::uint64_t token = base::process_token();
    Blob address(sizeof token);
    std::memcpy(address.data(), &token, sizeof token);
    return address;
  }
  bool reaches(const Blob& peer) const override { return peer == address(); }
  std::unique_ptr<Pin> pin(const device::Extent&) override { return std::make_unique<ThreadPin>(); }
  std::unique_ptr<Link> connect(Rank, const Blob&) override { return std::make_unique<ThreadLink>(); }
  bool poll() override { return false; }
  Rest rest() override { return {}; }
};

}  // namespace

std::unique_ptr<Transport> open(const Settings&) { return std::make_unique<ThreadTransport>(); }

}  // namespace sluice::backends::threads
