// SPDX-License-Identifier: Apache-2.0
#include "backends/threads/transport.hpp"

#include <cstring>
#include <stdexcept>

#include "backends/access.hpp"
#include "base/process.hpp"

namespace sluice::backends::threads {
namespace {

/// Where a rank's puts land: in one address space, pointers are all there is to say.
struct Place {
  Slots target;
  Signal signal;
};

template <class T>
Key key_of(const T& what) {
  Key key;
  key.bytes.resize(sizeof what);
  std::memcpy(key.bytes.data(), &what, sizeof what);
  return key;
}

template <class T>
T read(const Key& key) {
  T what;
  if (key.bytes.size() != sizeof what) throw std::runtime_error("a key of the wrong size");
  std::memcpy(&what, key.bytes.data(), sizeof what);
  return what;
}

class ThreadLanding final : public Landing {
 public:
  explicit ThreadLanding(const Place& place) : place_(place) {}
  Key key() const override { return key_of(place_); }
  bool undecided() const noexcept override { return false; }
  void decide(const std::string&) override {}
  bool direct() const noexcept override { return true; }
  bool close() override { return false; }
  void reach_from(device::Driver&) override {}
  void take(device::Lane, device::Watch&, std::uint64_t) override {}
  std::string describe() const override { return "threads: lands in the target itself"; }

 private:
  Place place_;
};

class ThreadOffer final : public Offer {
 public:
  explicit ThreadOffer(const device::Extent& memory) : memory_(memory) { check_offered(memory); }
  Key key() const override { return key_of(memory_); }
  std::string describe() const override { return "threads: offered in place"; }

 private:
  device::Extent memory_;
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
    const auto place = read<Place>(key);
    return std::make_unique<MappedPut>(source, place.target, place.signal, watch, Mapped{},
                                       "threads: copied by the stream into the peer's memory");
  }
  std::unique_ptr<Offer> offer(const device::Extent& memory) override { return std::make_unique<ThreadOffer>(memory); }
  std::unique_ptr<Access> access(const device::Extent& local, int, device::Watch& watch, Key key) override {
    return std::make_unique<MappedAccess>(local, read<device::Extent>(key), watch, Mapped{},
                                          "threads: carried out by the stream in the peer's memory");
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
  bool reaches(const Blob& peer, bool) const override { return peer == address(); }
  std::unique_ptr<Pin> pin(const device::Extent&) override { return std::make_unique<ThreadPin>(); }
  std::unique_ptr<Link> connect(Rank, const Blob&, bool) override { return std::make_unique<ThreadLink>(); }
  void try_out(device::Driver&) override {}
  AfterTurn poll() override { return AfterTurn::nothing; }
  int rest(std::vector<pollfd>&) override { return kNoLimit; }
};

}  // namespace

std::unique_ptr<Transport> open(const Settings&) { return std::make_unique<ThreadTransport>(); }

}  // namespace sluice::backends::threads
