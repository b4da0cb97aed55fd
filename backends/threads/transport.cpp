// SPDX-License-Identifier: Apache-2.0
#include "backends/threads/transport.hpp"

#include "backends/access.hpp"
#include "backends/on_host.hpp"
#include "base/process.hpp"

namespace sluice::backends::threads {
namespace {

/// A landing as the peer gets to know it: in one address space, by pointers.
struct Place {
  Slots target;
  Signal signal;
};

/// Offered memory, and counters.
struct Offered {
  device::Extent memory;
  device::Extent counters;
};

class ThreadLink final : public OnHostLink {
 public:
  Landed land(const Slots& target, std::span<const Signal> signals) override {
    return {std::make_unique<Landing>("threads: lands in the target itself"),
            {bytes_of(Place{target, signals.front()}), {}, {}}};
  }
  std::unique_ptr<Put> prepare(const Slots& source, device::Watch& watch, Key key) override {
    const auto place = value_of<Place>(key.bytes);
    return std::make_unique<MappedPut>(source, place.target, place.signal, watch, Mapped{},
                                       "threads: copied by the stream into the peer's memory");
  }
  Offer offer(const device::Extent& memory, const device::Extent& counters) override {
    check_offered(memory);
    return {{bytes_of(Offered{memory, counters}), {}, {}}, "threads: offered in place", nullptr};
  }
  std::unique_ptr<Access> access(int, device::Watch& watch, Key key) override {
    const auto offered = value_of<Offered>(key.bytes);
    return std::make_unique<MappedAccess>(offered.memory, counters_at(offered.counters.data, offered.counters.bytes),
                                          watch, Mapped{}, "threads: carried out by the stream in the peer's memory");
  }
};

class ThreadTransport final : public OnHostTransport {
 public:
  ThreadTransport() : OnHostTransport(bytes_of(base::process_token()), Maps::process) {}
  bool reaches(const Blob& peer, bool) const override { return peer == address(); }
  std::unique_ptr<Link> connect(Rank, const Blob&, bool) override { return std::make_unique<ThreadLink>(); }
};

}  // namespace

std::unique_ptr<Transport> open(const Settings&) { return std::make_unique<ThreadTransport>(); }

}  // namespace sluice::backends::threads
