// SPDX-License-Identifier: Apache-2.0
// What a rank has open at one provider, and what ranks tell each other of it.
#pragma once

#include <rdma/fi_trigger.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <string>

#include "backends/ofi/arrivals.hpp"
#include "backends/ofi/rail.hpp"
#include "backends/put.hpp"

namespace sluice::backends::ofi {

/// What an epoch of deferred work needs until it is over; libfabric keeps pointers into it.
struct Work {
  fi_deferred_work deferred{};
  fi_op_rma write{};
  iovec from{};
  fi_rma_iov to{};
  std::uint64_t word = 0;  // the operand of a credit
  void* desc = nullptr;
};

/// A request under way; libfabric keeps pointers into it.
struct Flight {
  Operation operation;
  std::uint64_t operand = 0;
  std::uint64_t compare = 0;
};

/// Who has something to do between posts.
class Attended {
 public:
  virtual ~Attended() = default;
  /// Returns whether something is left. Who has the mutex calls it.
  virtual bool attend() = 0;
};

/// End of the text of a failure that another device may mend.
inline constexpr const char* kChosenBy = "SLUICE_NICS and SLUICE_INTERFACE choose devices";

/// How long the better reason for a failure is waited for, and the end of what is under way to a dead peer.
constexpr auto kMoment = std::chrono::seconds(1);

/// Why something failed, until it is known whether the peer is alive: what goes to a peer that has died fails before
/// its death is noticed. So the failure of the watch waits a moment for the better reason.
class Suspicion {
 public:
  bool none() const noexcept { return why_.empty(); }
  void raise(const std::string& why) {
    why_ = why;
    verdict_ = base::Clock::now() + kMoment;
  }
  /// Fails the watch once the moment is over.
  void judge(device::Watch& watch) const {
    if (base::Clock::now() >= verdict_) watch.fail(Code::transport, why_);
  }

 private:
  std::string why_;
  base::Clock::time_point verdict_{};
};

/// Since when the network refuses what is posted. Nothing has left then, and it is tried again: a link may be down for
/// a while.
class Refusals {
 public:
  void end() noexcept { since_ = {}; }
  /// One more: whether there was nothing else for so long.
  bool last(std::chrono::nanoseconds patience) noexcept {
    const auto now = base::Clock::now();
    if (since_ == base::Clock::time_point()) since_ = now;
    return now - since_ >= patience;
  }

 private:
  base::Clock::time_point since_{};
};

/// Whether the peer is lost, and what is under way over all the same.
class Loss {
 public:
  void raise() noexcept { over_ = base::Clock::now() + kMoment; }
  bool raised() const noexcept { return over_ != base::Clock::time_point::max(); }
  bool over() const noexcept { return raised() && base::Clock::now() >= over_; }

 private:
  base::Clock::time_point over_ = base::Clock::time_point::max();
};

class ArmedWork;
class CountedLanding;
class TickBell;
class TriggeredPut;

/// A word that the peer writes itself: nobody else wakes who sleeps for it.
struct WrittenWord {
  const Signal* signal = nullptr;
  std::uint64_t seen = 0;
};

/// Who rings a NIC's page for a GPU: stores to it, or has the engine do so, by a word.
enum class Ringer : std::uint8_t { stream, kernel, host_function, engine };

/// The first of these that was seen to work, for streams, which give such a kernel to themselves; and whether kernels
/// that hold channels, or are part of a graph, store to it.
struct Ringers {
  Ringer for_streams = Ringer::engine;
  bool kernels = false;
};

/// What a rank has open. Puts and landings use it under its mutex; operations end with the mutex held.
struct Station {
  Station();
  ~Station();
  /// From now on, until it is gone.
  void attend_to(Attended& one) {
    if (std::find(attended.begin(), attended.end(), &one) == attended.end()) attended.push_back(&one);
  }

  std::mutex mutex;
  std::string provider;
  std::chrono::nanoseconds patience{};  ///< with writes that are refused
  // What was under way to a peer that is lost: it may end at any time, or never.
  std::vector<std::unique_ptr<Operation>> orphans;
  std::vector<std::vector<Flight>> orphaned_flights;
  std::vector<std::unique_ptr<Rail>> rails;
  std::vector<std::shared_ptr<void>> orphaned_memory;  // which that reads
  Manner manner;
  Arrivals arrivals{manner};
  std::vector<WrittenWord> written_words;
  std::vector<Attended*> attended;
  std::vector<CountedLanding*> counted;
  std::vector<TickBell*> bells;
  std::set<std::string> left_out;  // devices that the log has named because some peer is not reached by them
  std::optional<Ringers> ringers;  // of pages, for GPUs; once it is known
  std::vector<TriggeredPut*> triggered;
  bool rings_by_page = false;  ///< counters have a page that a stream can store to
  int entries_left = 0;        // of the NIC's trigger entries, those that this rank may still take
  std::vector<std::unique_ptr<ArmedWork>> left_work;  // of puts that are gone; last: it uses all the others
};

/// Memory that stays registered on rails; null where a rail does not reach it.
struct Pin {
  explicit Pin(Station& of) : station(of) {}
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  ~Pin() {
    const std::lock_guard lock(station.mutex);
    memory.clear();
  }

  Station& station;
  std::vector<std::shared_ptr<Registration>> memory;
};

/// How an endpoint of a peer is reached.
struct Route {
  Rail* rail = nullptr;  ///< null: it is not
  fid_ep* from = nullptr;
  fi_addr_t address = FI_ADDR_UNSPEC;
  std::uint64_t flushes = 0;  ///< remote address and key of unused bytes
  std::uint64_t flushes_key = 0;
  std::string text;  ///< from where to where, for people
};

/// Who moves something to or from a peer.
class Mover {
 public:
  virtual ~Mover() = default;
  /// The peer is dead. The provider has a moment to tell how what is under way has ended; then it is over all the same.
  virtual void peer_lost() = 0;
  /// The route carries nothing any more, and the peer is alive. Fails the watch if this mover uses the route.
  virtual void path_lost(const Route& route, const std::string& why) = 0;
  /// Bytes that are under way, or a few more.
  virtual std::size_t bytes_under_way() const = 0;
};

class RmaPut;

/// A peer: the routes to its endpoints, and who uses them.
struct Destination {
  std::vector<Route> routes;  // by endpoint; they stay where they are
  std::vector<Mover*> movers;
  std::vector<RmaPut*> riders;  ///< which may go with others' puts

  /// @throws std::runtime_error if there is none.
  const Route& route(std::size_t endpoint) const;
  void know(Mover& mover) { movers.push_back(&mover); }
  void forget(Mover& mover) { std::erase(movers, &mover); }
};

/// Where puts of one direction land, as the peer gets to know it.
struct Place {
  struct OfRail {
    std::uint32_t endpoint = 0;
    std::uint64_t slots = 0;  ///< remote address and key, of the slots and of the word
    std::uint64_t slots_key = 0;
    std::uint64_t word = 0;
    std::uint64_t word_key = 0;
  };
  static constexpr std::size_t kMostRails = 8;

  std::uint64_t index = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t stride = 0;  ///< from one slot's remote address to the next one's
  std::int32_t depth = 1;
  std::uint32_t rails = 1;
  Notice notice = Notice::data;
  bool staged = false;  ///< the slots begin with a StageHeader
  std::array<OfRail, kMostRails> rail{};

  std::uint64_t slot(std::uint64_t epoch) const noexcept { return epoch % static_cast<std::uint64_t>(depth); }
};

/// A place, and where each of its slots is registered apart, their keys: by rail, then by slot.
struct Target : Place {
  std::vector<std::uint64_t> keys;

  std::uint64_t address(std::size_t index_of_rail, std::uint64_t epoch) const noexcept {
    return rail[index_of_rail].slots + stride * slot(epoch);
  }
  std::uint64_t key(std::size_t index_of_rail, std::uint64_t epoch) const noexcept {
    if (keys.empty()) return rail[index_of_rail].slots_key;
    return keys[index_of_rail * static_cast<std::size_t>(depth) + slot(epoch)];
  }
};

Key key_of(const Target& target);
/// @throws std::runtime_error if it makes no sense.
Target target_of(const Key& key);

}  // namespace sluice::backends::ofi
