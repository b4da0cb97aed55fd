// SPDX-License-Identifier: Apache-2.0
// THE seam: what a backend implements. Nothing here is optional, and nothing has a default.
#pragma once

#include <sluice/types.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "base/words.hpp"
#include "device/gpu.hpp"
#include "device/memory.hpp"

namespace sluice::backends {

using Blob = std::vector<std::byte>;

/// What a peer needs to reach something of ours. Descriptors are borrowed when sent, and owned when received.
struct Key {
  Blob bytes;
  std::vector<int> sent;
  std::vector<base::Fd> received;
};

/// A part of a slot.
struct Range {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// Slots of equal size, one after another; epoch k uses slot k mod depth. No slots: only a signal is raised.
struct Slots {
  device::Extent memory;
  std::size_t slot_bytes = 0;
  int depth = 1;

  std::uint64_t index(std::uint64_t epoch) const noexcept {
    const auto slots = static_cast<std::uint64_t>(depth);
    return (slots & (slots - 1)) == 0 ? epoch & (slots - 1) : epoch % slots;  // a division costs as much as a small put
  }
  std::byte* at(std::uint64_t epoch) const noexcept { return memory.data + index(epoch) * slot_bytes; }
};

/// A word that rises with each epoch, where waiters sleep for it, and the memory that holds both.
struct Signal {
  base::Word* word = nullptr;
  base::Parking* parking = nullptr;
  device::Extent memory;
};

/// Memory made ready for one transport; undone by the destructor.
class Pin {
 public:
  virtual ~Pin() = default;
};

/// The receiving side of one direction: where a peer's puts land.
class Landing {
 public:
  virtual ~Landing() = default;
  /// For the peer's `Link::prepare`.
  virtual Key key() const = 0;
  /// Whether bytes land in the target itself. If not, `take` brings them there.
  virtual bool direct() const noexcept = 0;
  /// On the lane, after the signal of `epoch` was seen: moves what landed elsewhere into the target.
  virtual void take(device::Lane lane, std::uint64_t epoch) = 0;
  virtual std::string describe() const = 0;
};

enum class Fired : std::uint8_t { by_stream, by_nic, by_engine };

/// The sending side of one direction, made ready once and fired many times. A credit is a put of no bytes.
class Put {
 public:
  virtual ~Put() = default;
  virtual Fired fired() const noexcept = 0;
  /// In the lane's order: moves `part` of the slot of `epoch`, then raises the signal to `epoch`, then `watch.done`.
  /// Moves nothing if the watch is shut. Epochs come in order.
  virtual void enqueue(device::Lane lane, std::uint64_t epoch, Range part) = 0;
  virtual std::string describe() const = 0;
};

/// A path to one peer.
class Link {
 public:
  virtual ~Link() = default;
  virtual std::unique_ptr<Landing> land(const Slots& target, const Signal& signal) = 0;
  /// A key has come from the peer, in the order in which its landings gave them, and may wait long for its `prepare`.
  virtual void arrived(Key& key) = 0;
  /// @throws std::exception if the peer's memory cannot be reached.
  virtual std::unique_ptr<Put> prepare(const Slots& source, device::Watch& watch, Key key) = 0;
};

/// One backend, open, in one rank.
class Transport {
 public:
  virtual ~Transport() = default;
  /// For the peers' `reaches` and `connect`.
  virtual Blob address() const = 0;
  /// Symmetric, no side effects.
  virtual bool reaches(const Blob& address) const = 0;
  virtual std::unique_ptr<Pin> pin(const device::Extent& memory) = 0;
  virtual std::unique_ptr<Link> connect(Rank peer, const Blob& address) = 0;
  /// Moves what is under way; only who has the engine's turn calls it. Returns whether anything is still under way.
  virtual bool poll() = 0;
};

/// What the user may set for all backends.
struct Settings {
  std::size_t bounce_max = 0;
};

/// A row of the table of backends.
struct Backend {
  std::string name;
  bool only_when_named = false;  ///< for tests: not chosen unless SLUICE_BACKENDS says so
  int level = 0;                 ///< support level: 4 is the best, no thread has to poll
  std::string (*why_not)();      ///< empty: usable here
  std::unique_ptr<Transport> (*open)(const Settings&);
};

/// Best first.
std::span<const Backend> backends();

/// Adds a row before the others, for tests that wrap a backend. Not thread-safe: before any context.
void register_backend(Backend backend);

}  // namespace sluice::backends
