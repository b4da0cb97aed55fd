// SPDX-License-Identifier: Apache-2.0
// THE seam: what a backend implements. Nothing here is optional, and nothing has a default.
#pragma once

#include <sluice/types.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
  /// Whether puts into it may be left armed, so that the peer must hear when its key is closed.
  virtual bool closing_awaited() const noexcept = 0;
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
  /// Asked once nothing more will be enqueued and all that was is over here: whether it is over at the peer too, so
  /// that its memory may go. Asked again until it is.
  virtual bool settled() = 0;
  /// After that: whether nothing is left that was armed and never fired. It can be disposed of once `key_closed`:
  /// nothing of the peer can be written through the key of this put any more. Asked again until it is so.
  virtual bool disarmed(bool key_closed) = 0;
  virtual std::string describe() const = 0;
};

/// A path to one peer.
class Link {
 public:
  virtual ~Link() = default;
  /// How many signals a landing of `target` needs: each rail that its puts are striped over raises its own.
  virtual std::size_t rails(const Slots& target) const = 0;
  /// `signals`: one a rail. All of them rise with every epoch.
  virtual std::unique_ptr<Landing> land(const Slots& target, std::span<const Signal> signals) = 0;
  /// A key has come from the peer, in the order in which its landings gave them, and may wait long for its `prepare`.
  virtual void arrived(Key& key) = 0;
  /// @throws std::exception if the peer's memory cannot be reached.
  virtual std::unique_ptr<Put> prepare(const Slots& source, device::Watch& watch, Key key) = 0;
  /// The peer is dead: puts to it that are under way may never be heard of again, and must be over all the same.
  virtual void lost() = 0;
};

/// What the engine may sleep for, or how long.
struct Rest {
  static constexpr int kNoLimit = -1;
  int fd = -1;             ///< readable when there is something to poll for; -1: none
  int at_most = kNoLimit;  ///< milliseconds
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
  /// Nothing is under way: what the engine waits for before it polls again. Only who has the engine's turn calls it.
  virtual Rest rest() = 0;
};

/// What the user may set for all backends.
struct Settings {
  std::size_t bounce_max = 0;
  int level = 4;            ///< support level: no more of the provider is used than this
  int trigger_entries = 0;  ///< how many of the NIC's trigger entries this rank may take
  int rails = 0;            ///< of a channel; 0: chosen by size
  std::string domains;      ///< network devices that may be used, best first; empty: chosen by locality
  int node_size = 1;        ///< ranks on this host
  bool one_host = true;     ///< all ranks of the job are on this host
};

/// Where a backend's ranks may be, and so when it is chosen without being named.
enum class Reach : std::uint8_t {
  host,     ///< this host: always open
  network,  ///< other hosts: the first of these is open if there are any
  named     ///< what SLUICE_BACKENDS names only
};

/// A row of the table of backends.
struct Backend {
  std::string name;
  Reach reach = Reach::named;
  int level = 0;        ///< support level: 4 is the best, no thread has to poll
  std::string why_not;  ///< empty: usable here
  std::function<std::unique_ptr<Transport>(const Settings&)> open;
};

/// All, best first. Looks for network providers, which may take a while.
std::vector<Backend> backends();

/// The one of this name, if there is one. Looks for network providers only if no other has it.
std::optional<Backend> find_backend(std::string_view name);

/// What a job opens that names none: all for this host, and the best of those for others if it has `other_hosts`.
std::vector<Backend> default_backends(bool other_hosts);

/// Adds a row before the others, for tests that wrap a backend. Not thread-safe: before any context.
void register_backend(Backend backend);

}  // namespace sluice::backends
