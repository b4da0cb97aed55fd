// SPDX-License-Identifier: Apache-2.0
// THE seam: the functions that a backend implements. Constants of a class are data, which its constructor gives to its
// base. Backends whose peers share memory have more in common: on_host.hpp. docs/porting.md tells how to write one.
//
// Threads: the thread with the engine's turn, one at a time and any of the process, calls what says so, and the posts
// of EnginePut and EngineAccess. All else comes from threads without the turn, at the same time: a backend with
// anything under way needs a mutex of its own. It may call Watch::fail, and wake a Parking, with that mutex. A turn
// throws nothing, so what is called in it must not.
#pragma once

#include <sluice/ops.hpp>
#include <sluice/types.hpp>

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/facts.hpp"
#include "base/fd.hpp"
#include "base/words.hpp"
#include "device/gpu.hpp"
#include "device/memory.hpp"

namespace sluice::backends {

using Blob = std::vector<std::byte>;

template <class Value>
requires std::is_trivially_copyable_v<Value> Blob bytes_of(const Value& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}
/// The value whose bytes begin at `at`. @throws std::runtime_error if the blob ends before it does.
template <class Value>
requires std::is_trivially_copyable_v<Value> Value value_in(const Blob& blob, std::size_t at = 0) {
  Value value;
  if (at > blob.size() || blob.size() - at < sizeof value)
    throw std::runtime_error("a message of the backend that is too short");
  std::memcpy(&value, blob.data() + at, sizeof value);
  return value;
}
/// The value whose bytes the blob is. @throws std::runtime_error for another size.
template <class Value>
Value value_of(const Blob& blob) {
  if (blob.size() != sizeof(Value)) throw std::runtime_error("a message of the backend of the wrong size");
  return value_in<Value>(blob);
}

/// This machine gives no way to a peer's memory.
class Unreachable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Lets a peer reach something of ours. Descriptors are borrowed when sent, and owned when received.
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

/// Mappings of a peer's memory, which stays mapped as long as they live.
using Mapped = std::vector<std::shared_ptr<device::Mapping>>;

/// Mappings of a peer's memory, and the parts of it that GPUs' drivers were given.
struct Held {
  Mapped mapped;
  device::Reached reached;  // last: taken back before it is unmapped
};

/// The receiving side of one direction: where a peer's puts land. This class is for bytes that land in the target
/// itself, so that nothing is left to do; derived classes do more. It lives until the peer's put has settled, or the
/// peer is lost. The peer is at most `depth` epochs ahead of what has landed.
class Landing {
 public:
  enum class Way : std::uint8_t {
    direct,    ///< bytes land in the target itself
    around,    ///< they land elsewhere, and `take` brings them into the target
    undecided  ///< one of the two: the peer finds out whether it reaches the target, and `decide` is called
  };

  explicit Landing(std::string how, Way way = Way::direct) : way_(way), how_(std::move(how)) {}
  virtual ~Landing() = default;
  Way way() const noexcept { return way_; }
  const std::string& describe() const noexcept { return how_; }
  /// Takes the `Put::obstacle` of the peer's put.
  virtual void decide(const std::string& /*obstacle*/) {}
  /// From now on `take` may be on streams of the driver's GPUs. Once decided. @throws device::GpuError
  virtual void reach_from(device::Driver& /*driver*/) {}
  /// After a CPU has seen that `epoch` has arrived: in the lane's order moves what landed elsewhere into the target, or
  /// fails the watch.
  virtual void take(device::Lane /*lane*/, device::Watch& /*watch*/, std::uint64_t /*epoch*/) {}
  /// `arrived` may find an epoch before its signal has risen.
  virtual bool shows_epochs() const noexcept { return false; }
  /// The bytes of `epoch` have arrived, so its signal has risen or is about to. False: look at the signal. `way` is
  /// around.
  virtual bool arrived(std::uint64_t /*epoch*/) const noexcept { return false; }
  /// A thread waits for the signal of `epoch`, and has nothing else to do: does a part of the peer's put, if it can.
  /// `way` is around.
  virtual void help(std::uint64_t /*epoch*/) noexcept {}
  /// The peer writes no more: closes the key that armed puts may still be fired at. Returns whether it did so now, so
  /// that the peer must be told.
  virtual bool close() { return false; }

 protected:
  Way way_;
  std::string how_;
};

/// A landing, and the key for the peer's `Link::prepare`.
struct Landed {
  std::unique_ptr<Landing> landing;
  Key key;
};

/// The words that a kernel writes when it does a put itself.
struct ByKernel {
  Slots target;                      ///< as mapped here, unless the kernel rings a doorbell
  base::Word* raised = nullptr;      ///< the peer's signal; or a doorbell, whose listener moves the bytes
  std::uint64_t ahead = 0;           ///< the kernel stores the epoch plus this to `raised`
  bool rings = false;                ///< `raised` is a doorbell, whose listener raises `watch.done`
  bool armed = false;                ///< the doorbell fires whole slots that were armed, and checks nothing
  std::uint64_t* counter = nullptr;  ///< of a NIC: the kernel stores 1 to it for each ring, then to `raised`
  std::uint64_t* parts = nullptr;    ///< where the kernel writes offset and bytes of an epoch, for the listener
  std::uint64_t kept = 0;            ///< how many epochs `parts` has room for: epoch k is at index k mod `kept`
};

enum class Fired : std::uint8_t { by_stream, by_nic, by_engine };

class EngineAccess;
class MappedAccess;
class MappedPut;
class RungPut;

/// The sending side of one direction, made ready once and fired many times. A credit is a put of no bytes.
class Put {
 public:
  virtual ~Put() = default;

  const Fired fired_by;
  /// This put, if a bell fires it; else null.
  RungPut* const by_bell;
  /// This put, if a stream copies into mapped memory; else null.
  MappedPut* const by_stores;
  /// For a landing that was undecided: why its target cannot be reached here; empty: it is. Nothing: it was not.
  const std::optional<std::string> obstacle;

  /// In the lane's order: moves `part` of the slot of `epoch`, then raises the signal to `epoch`, then `watch.done`.
  /// Moves nothing if the watch is shut. Epochs come in order.
  virtual void enqueue(device::Lane lane, std::uint64_t epoch, Range part) = 0;
  /// Like `enqueue` of the whole slot of each epoch from `first` to `last`, but the signal and `watch.done` may rise
  /// once, to `last`, when all of them have moved.
  virtual void enqueue_all(device::Lane lane, std::uint64_t first, std::uint64_t last) = 0;
  /// From now on it is enqueued on streams of the driver's GPUs. @throws device::GpuError
  virtual void reach_from(device::Driver& driver) = 0;
  /// From now on kernels may do what `enqueue` does, on the driver's GPUs (null: on the host). They wake no thread that
  /// sleeps for a word. Nothing: no kernel can. @throws device::GpuError
  virtual std::optional<ByKernel> by_kernel(device::Driver* driver) = 0;
  /// True once all epochs up to this one, which has completed here, are visible at the peer. Called again until then,
  /// when `watch.done_parking` is woken, by the backend too once it knows more.
  virtual bool landed(std::uint64_t epoch) = 0;
  /// True once every write is visible at the peer, whose memory may then be freed. Called again until then, and only
  /// after all that was enqueued has completed here, with the watch shut: epochs that follow move nothing. Epochs that
  /// completed with the watch shut have moved nothing either, so the peer will never have them.
  virtual bool settled() = 0;
  /// The memory of the peer will be unmapped, and is not touched from now on. Enqueued epochs move nothing. Returns the
  /// mappings, for the caller to destroy.
  virtual Held forget_peer() noexcept = 0;
  /// Puts and accesses with the same `in_order`, not null, arrive at the peer in the order in which the engine posts
  /// them. Null: they may arrive in any order.
  virtual const void* in_order() const noexcept { return nullptr; }
  /// True once no armed put remains. One that nothing has fired can be disposed of once the peer has closed its key
  /// (`key_closed`), so that it writes nothing. Called again until then, and only when no epoch can follow.
  virtual bool disarmed(bool key_closed) = 0;
  virtual std::string describe() const = 0;

 protected:
  explicit Put(Fired by, RungPut* rung = nullptr, std::optional<std::string> why = std::nullopt,
               MappedPut* stored = nullptr)
      : fired_by(by), by_bell(rung), by_stores(stored), obstacle(std::move(why)) {}
};

/// A request to memory that a peer offers. An atomic changes one word of 8 bytes, whose old value goes to `local`; but
/// `accumulate` changes numbers one by one, by those in `local`.
struct Request {
  /// none: nothing is moved, and the epoch completes, shut or not
  enum class Kind : std::uint8_t { none, put, get, fetch_add, swap, compare_swap, accumulate };

  Kind kind = Kind::get;
  std::uint64_t offset = 0;    ///< in the offered memory; of an atomic, a multiple of 8
  std::span<std::byte> local;  ///< ours, pinned, until the request has completed
  std::uint64_t operand = 0;   ///< what an atomic adds or stores
  std::uint64_t compare = 0;   ///< compare_swap stores only where it finds this
  Op op = Op::sum;             ///< of accumulate
  Number number{};             ///< of accumulate
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t counter = kNone;   ///< of the peer's counters, the one to raise by 1 afterwards
  device::Driver* gpus = nullptr;  ///< driver of the GPU whose memory `local` is; null: the processor's

  bool atomic() const noexcept { return kind > Kind::get; }
};

/// Memory of ours that a peer reads and changes without us.
struct Offer {
  Key key;  ///< for the peer's `Link::access`
  std::string how;
  std::shared_ptr<const void> kept;  ///< outlives the peer's access
  bool counted_in_turns = false;     ///< turns of our engine raise the counters
};

/// Memory that a peer offers, as we reach it.
///
/// Atomics are the processor's instructions, on memory that is mapped and not a GPU's. They are not atomic with puts.
class Access {
 public:
  virtual ~Access() = default;

  const Fired fired_by;
  /// This access, if the engine posts it; else null.
  EngineAccess* const posted;
  /// This access, if the peer's memory is mapped here; else null.
  MappedAccess* const by_mapping;
  /// Requests may name counters.
  const bool counts;
  const std::string how;
  /// The order of puts, as in Put.
  virtual const void* in_order() const noexcept { return nullptr; }

  /// In the lane's order: carries the request out, then raises `watch.done` to `epoch`. By then what was got, or the
  /// old value, is in our memory, what was put is in the peer's, and its counter has risen, or does in the next turn of
  /// the peer's engine. Moves nothing if the watch is shut. Epochs come in order; those that have not completed may be
  /// carried out in any.
  ///
  /// A refused request moves nothing and fails the watch: a request that reaches beyond the peer's memory or counters,
  /// or is not aligned, with `misuse`; an atomic where `how` says that there are none, or memory of a GPU where only
  /// the processor reaches the peer, with `unsupported`; a request that comes when the watch is shut, with `closed`. Of
  /// a request that travels in several messages a part may have moved when the watch is shut.
  virtual void enqueue(device::Lane lane, std::uint64_t epoch, const Request& request) = 0;
  /// From now on it is enqueued on streams of the driver's GPUs, if it is fired by streams. @throws device::GpuError
  virtual void reach_from(device::Driver& driver) = 0;
  /// The memory of the peer will be unmapped, and is not touched from now on. Returns the mappings, for the caller to
  /// destroy.
  virtual Held forget_peer() noexcept = 0;

 protected:
  Access(Fired by, std::string text, bool may_count, EngineAccess* same = nullptr, MappedAccess* maps = nullptr)
      : fired_by(by), posted(same), by_mapping(maps), counts(may_count), how(std::move(text)) {}
};

/// Finds the paths to one peer, and watches them. Only the thread that serves the sockets calls it.
class PathFinder {
 public:
  virtual ~PathFinder() = default;
  /// Tries the paths: before anything else is sent, and now and then later. Adds to `words` messages for `heard` of the
  /// peer's link. Returns the time of the next call; a message from the peer makes it earlier.
  virtual base::Clock::time_point tend(base::Clock::time_point now, std::vector<Blob>& words) = 0;
  /// Takes a message of the peer's link.
  virtual void heard(const Blob& word) = 0;
  /// Nothing: not known yet. Else the reason why the peer is not reached; empty: it is.
  virtual std::optional<std::string> verdict() const = 0;
};

/// A path to one peer.
class Link {
 public:
  virtual ~Link() = default;
  /// How many signals a landing of `target` needs: each rail that its puts are striped over raises its own.
  virtual std::size_t rails(const Slots& target) const = 0;
  /// `signals`: one a rail. All of them rise with every epoch.
  virtual Landed land(const Slots& target, std::span<const Signal> signals) = 0;
  /// A key has arrived from the peer, in the order in which its landings and offers gave them, and may wait long for
  /// its `prepare` or `access`.
  virtual void arrived(Key& key) = 0;
  /// @throws std::exception if the peer's memory cannot be reached.
  virtual std::unique_ptr<Put> prepare(const Slots& source, device::Watch& watch, Key key) = 0;
  /// Lets the peer read and change `memory`, which begins at a multiple of 8 bytes, and raise `counters`, an array of
  /// base::Progress or nothing. That the peer does not reach memory of a GPU, its `access` throws.
  /// @throws std::exception
  virtual Offer offer(const device::Extent& memory, const device::Extent& counters) = 0;
  /// No more than `depth` requests are under way at a time.
  /// @throws std::exception if the peer's memory cannot be reached, or not be read.
  virtual std::unique_ptr<Access> access(int depth, device::Watch& watch, Key key) = 0;
  /// The peer is dead: puts to it that are under way may get no answer, and must complete all the same, in a later
  /// turn. The watches of its ends fail, by others.
  virtual void lost() = 0;

  /// Null: the link works at once. Nothing above is called before its verdict.
  PathFinder* paths = nullptr;
  bool ready() const { return paths == nullptr || paths->verdict(); }
  std::string obstacle() const { return paths == nullptr ? "" : paths->verdict().value_or(""); }
};

/// The state after a turn of the engine.
/// nothing: the engine may sleep until it is woken.
/// words: it must poll words that GPUs' streams or kernels change without waking it; no such word has changed.
/// work: an operation is in progress, or such a word has changed.
enum class AfterTurn : std::uint8_t { nothing, words, work };

/// One backend, open, in one rank.
class Transport {
 public:
  virtual ~Transport() = default;
  /// For the peers' `reaches` and `connect`.
  const Blob& address() const noexcept { return address_; }
  /// Symmetric, no side effects. `here`: the peer is on this host.
  virtual bool reaches(const Blob& address, bool here) const = 0;
  /// Makes memory ready; undone with the last owner. Null: there is nothing to be done.
  virtual std::shared_ptr<const void> pin(const device::Extent& memory) = 0;
  /// `here`: as for `reaches`.
  virtual std::unique_ptr<Link> connect(Rank peer, const Blob& address, bool here) = 0;
  /// Streams of the driver's current GPU will fire puts. Tries out, once, what takes seconds for that. Any thread may
  /// call it, and only its caller waits.
  virtual void try_out(device::Driver& driver) = 0;
  /// Advances the operations under way. `work` while something is, an answer of a peer's too, that nothing tells of.
  /// Called within the engine's turn only.
  virtual AfterTurn poll() = 0;
  /// Nothing is under way: adds descriptors that become readable when there is something to poll for. Returns how many
  /// milliseconds the engine may sleep at most. Called within the engine's turn only.
  virtual int rest(std::vector<pollfd>& tellers) = 0;
  static constexpr int kNoLimit = -1;

  /// Which peers it reaches by mapping memory that Sluice has allocated.
  enum class Maps : std::uint8_t { nothing, process, host };
  const Maps maps;

 protected:
  explicit Transport(Blob address = {}, Maps which = Maps::nothing) : maps(which), address_(std::move(address)) {}

  Blob address_;  // set by the constructor
};

/// Settings for all backends, which the user may change.
struct Settings {
  std::size_t bounce_max = 0;
  int level = 4;                       ///< support level: no more of the provider is used than this
  std::optional<int> trigger_entries;  ///< how many of the NIC's this rank may take, at most; none: its share
  int rails = 0;                       ///< of a channel; 0: chosen by size
  bool stage_all = false;              ///< memory of the user's is staged, as if no network reached it
  std::string domains;                 ///< network devices that may be used, best first; empty: chosen by locality
  std::string interface;               ///< where `domains` is empty: the interface, by name or address; empty: any
  int ip_version = 0;                  ///< of the addresses by which other hosts know this one; 0: there are none
  int node_size = 1;                   ///< ranks on this host
  int node_rank = 0;                   ///< among them
  bool one_host = true;                ///< all ranks of the job are on this host
  std::chrono::nanoseconds patience = std::chrono::seconds(30);  ///< with a peer that cannot be reached
};

/// How far a backend reaches, and so when it is chosen without being named.
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

/// The backends of a job that names none: all for this host, and the best of those for others if it has `other_hosts`.
std::vector<Backend> default_backends(bool other_hosts);

/// A network provider as sluice-info shows it. Facts are shown in their order; one without a value is not known.
struct Report {
  using Facts = base::Facts;

  std::string name;  ///< of its backend, if it can be one
  int level = 0;
  std::string why_not;  ///< empty: usable here
  Facts facts;
  std::vector<Facts> devices;
};

/// All providers, those too that cannot be used. Opens them for a look, which may take a while.
std::vector<Report> reports();

/// Removes files that killed processes of this user have left behind, if no process uses them. Quick:
/// loads no library.
void remove_leftovers() noexcept;

/// Adds a row before the others, for tests that wrap a backend. Not thread-safe: before any context.
void register_backend(const Backend& backend);

/// The open transports of a rank, by name of their backend.
using Transports = std::vector<std::pair<std::string, std::unique_ptr<Transport>>>;

}  // namespace sluice::backends
