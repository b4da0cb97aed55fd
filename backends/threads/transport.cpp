// SPDX-License-Identifier: Apache-2.0
#include "backends/threads/transport.hpp"

#include <cstring>
#include <stdexcept>

#include "backends/access.hpp"
#include "backends/on_host.hpp"
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

class ThreadLink final : public OnHostLink {
 public:
  Landed land(const Slots& target, std::span<const Signal> signals) override {
    return {std::make_unique<DirectLanding>("threads: lands in the target itself"),
            key_of(Place{target, signals.front()})};
  }
  std::unique_ptr<Put> prepare(const Slots& source, device::Watch& watch, Key key) override {
    const auto place = read<Place>(key);
    return std::make_unique<MappedPut>(source, place.target, place.signal, watch, Mapped{},
                                       "threads: copied by the stream into the peer's memory");
  }
  Offer offer(const device::Extent& memory) override {
    check_offered(memory);
    return {key_of(memory), "threads: offered in place", nullptr};
  }
  std::unique_ptr<Access> access(const device::Extent& local, int, device::Watch& watch, Key key) override {
    return std::make_unique<MappedAccess>(local, read<device::Extent>(key), watch, Mapped{},
                                          "threads: carried out by the stream in the peer's memory");
  }
};

class ThreadTransport final : public OnHostTransport {
 public:
  ThreadTransport() : OnHostTransport(key_of(base::process_token()).bytes) {}
  bool reaches(const Blob& peer, bool) const override { return peer == address(); }
  std::unique_ptr<Link> connect(Rank, const Blob&, bool) override { return std::make_unique<ThreadLink>(); }
};

}  // namespace

std::unique_ptr<Transport> open(const Settings&) { return std::make_unique<ThreadTransport>(); }

}  // namespace sluice::backends::threads
