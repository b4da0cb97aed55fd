// SPDX-License-Identifier: Apache-2.0
// The open rails of a rank at one provider, its peers, and the keys that ranks exchange.
#pragma once

#include <rdma/fi_trigger.h>

#include <algorithm>
#include <array>
#include <list>
#include <mutex>
#include <set>
#include <string>
#include <unordered_set>

#include "backends/ofi/by_number.hpp"
#include "backends/ofi/by_word.hpp"
#include "backends/ofi/rail.hpp"
#include "backends/put.hpp"

namespace sluice::backends::ofi {

/// One epoch of deferred work. libfabric keeps pointers into it until the work has completed.
struct Work {
  Operation operation;  // its failure
  fi_deferred_work deferred{};
  fi_op_rma write{};
  iovec from{};
  fi_rma_iov to{};
  std::uint64_t word = 0;  // the operand of a credit
  void* desc = nullptr;
};

/// End of the text of a failure that another device may mend.
inline constexpr const char* kChosenBy = "SLUICE_NICS and SLUICE_INTERFACE choose devices";

/// How long the better reason for a failure is waited for, and the end of what is under way to a dead peer.
constexpr auto kMoment = std::chrono::seconds(1);

/// Since when the network refuses what is posted. Nothing has left then, and it is tried again: a link may be down for
/// a while.
class Refusals {
 public:
  void end() noexcept { since_ = {}; }
  /// One more refusal. Returns whether there was nothing else for so long.
  bool last(std::chrono::nanoseconds patience) noexcept {
    const auto now = base::Clock::now();
    if (since_ == base::Clock::time_point()) since_ = now;
    return now - since_ >= patience;
  }

 private:
  base::Clock::time_point since_{};
};

class ArmedWork;
class CountedLanding;
class Mover;
class RmaPut;
class TickBell;
class TriggeredPut;

/// Rings a NIC's page for a GPU; or the engine does, for a word.
enum class Ringer : std::uint8_t { stream, kernel, host_function, engine };

/// The ringers that were seen to work. `for_streams`: the first of them, for streams, which launch a kernel of one
/// thread themselves. `kernels`: kernels that hold channels, or are part of a graph, can store to the page.
struct Ringers {
  Ringer for_streams = Ringer::engine;
  bool kernels = false;
};

/// The rails of a rank, and all that uses them. Puts and landings use it under its mutex; `Owner::ended` is called with
/// the mutex held.
struct Station {
  Station();
  ~Station();
  /// `attend` is called in each turn from now on, until the mover rests.
  void attend_to(Mover& mover);
  /// Returns whether some mover has something left to do.
  bool attend();

  std::mutex mutex;
  std::string provider;
  std::chrono::nanoseconds patience{};  ///< with writes that are refused
  // Operations under way to a peer that is lost, which may end at any time, or never.
  std::vector<std::unique_ptr<Operation>> orphans;
  std::vector<std::vector<Flight>> orphaned_flights;
  std::vector<std::unique_ptr<Rail>> rails;
  std::vector<std::shared_ptr<void>> orphaned_memory;  // which those operations read
  Manner manner;
  Arrivals arrivals{manner};
  WrittenWords written_words;
  std::vector<Mover*> attended;
  std::vector<CountedLanding*> counted;
  std::vector<TickBell*> bells;
  std::set<std::string> left_out;  // devices that the log has named because some peer is not reached by them
  std::optional<Ringers> ringers;  // of pages, for GPUs; set once they were tried out
  std::vector<TriggeredPut*> triggered;
  bool rings_by_page = false;  ///< counters have a page that a stream can store to
  int entries_left = 0;        // of the NIC's trigger entries, those that this rank may still take
  std::vector<std::unique_ptr<ArmedWork>> left_work;  // of destroyed puts; last: it uses all the others
};

/// Registrations of the same memory, by rail; null where a rail does not reach it.
using Pin = std::vector<std::shared_ptr<Registration>>;
/// Releases them with the station's mutex.
std::shared_ptr<Pin> new_pin(Station& station);

/// How an endpoint of a peer is reached.
struct Route {
  Rail* rail = nullptr;  ///< null: it is not
  fid_ep* from = nullptr;
  fi_addr_t address = FI_ADDR_UNSPEC;
  Spot flushes;      ///< unused bytes
  std::string text;  ///< from where to where, for people
};

/// A peer: the routes to its endpoints, and the puts and accesses that use them.
struct Destination {
  std::vector<Route> routes;  // by endpoint; their addresses do not change
  std::unordered_set<Mover*> movers;
  std::unordered_set<RmaPut*> riders;  ///< credits that may travel with other puts
  std::list<RmaPut*> due;              ///< of the riders, those whose bells were rung; the next to look at first
  /// The peer or a path to it was lost, so that what it has posted may arrive at any time, or never.
  std::shared_ptr<bool> lost = std::make_shared<bool>(false);

  /// @throws std::runtime_error if there is none.
  const Route& route(std::size_t endpoint) const;
};

/// Moves something to or from one peer: a put or an access. Every call is under the station's mutex.
class Mover : public Owner {
 public:
  /// `what` it does, for people.
  Mover(Station& station, Destination& there, device::Watch& watch, std::string what)
      : station_(station), there_(there), fails_(watch), what_(std::move(what)) {}
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  /// In each turn of the engine, between posts. Returns whether something is left to do.
  virtual bool attend() { return false; }
  /// True, after `attend`, if the mover needs no turn until `attend_to` is called again. So a turn looks at no idle
  /// mover.
  virtual bool rests() const { return false; }
  bool attended = false;  ///< for the station: by its turns
  /// The peer is dead. The provider has a moment to report how the operations under way have ended; then they count as
  /// completed.
  void peer_lost();
  /// The route carries nothing any more, and the peer is alive. Fails the watch if this mover uses the route.
  void path_lost(const Route& route, const std::string& why);
  /// Bytes that are under way, or a few more.
  virtual std::size_t bytes_under_way() const = 0;

 protected:
  /// The station and the peer know this mover between `join` and `leave`.
  void join() { there_.movers.insert(this); }
  void leave();

  /// Something has failed. A peer that has died makes writes fail before its death is noticed, so the failure of the
  /// watch waits a moment for the better reason.
  void suspect(const std::string& why);
  std::string failure_of(const Route& route, const std::string& why) const;
  /// Returns the result of `post`, which is whether it has posted. Refused for too long, it has failed.
  template <class Post>
  bool attempt(Refusals& refused, const Route& route, Post post) {
    try {
      const bool posted = post();
      if (posted) refused.end();
      return posted;
    } catch (const std::runtime_error& reason) {
      if (refused.last(station_.patience)) suspect(failure_of(route, reason.what()));
      return false;
    }
  }
  bool suspicious() const noexcept { return !suspicion_.empty(); }
  /// Fails the watch when the moment is up.
  void judge();
  bool lost() const noexcept { return given_up_at_ != base::Clock::time_point::max(); }
  /// The peer was lost a moment ago: nothing more is waited for.
  bool gives_up() const noexcept { return lost() && base::Clock::now() >= given_up_at_; }

  Station& station_;
  Destination& there_;

 private:
  virtual bool uses(const Route& route) const noexcept = 0;

  device::Watch& fails_;
  const std::string what_;
  std::string suspicion_;
  base::Clock::time_point verdict_{};
  base::Clock::time_point given_up_at_ = base::Clock::time_point::max();
};

/// A landing as the peer gets to know it.
struct Place {
  struct OfRail {
    std::uint32_t endpoint = 0;
    Spot slots;
    Spot word;
  };
  static constexpr std::size_t kMostRails = 8;

  std::uint64_t index = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t stride = 0;  ///< from one slot's remote address to the next one's
  std::int32_t depth = 1;
  std::uint32_t rails = 1;
  Notice notice = Notice::number;
  bool staged = false;  ///< the slots begin with a StageHeader
  std::array<OfRail, kMostRails> rail{};
};

/// A place; and the keys of slots that are registered one by one, by rail, then by slot.
struct Target : Place {
  std::vector<std::uint64_t> keys;

  Spot slot_of(std::uint64_t epoch, std::size_t index_of_rail) const noexcept {
    const std::uint64_t slot = epoch % static_cast<std::uint64_t>(depth);
    const auto& [address, key] = rail[index_of_rail].slots;
    return {address + stride * slot, keys.empty() ? key : keys[index_of_rail * static_cast<std::size_t>(depth) + slot]};
  }
};

/// Makes the place of a landing, without its notice, rails and keys. Its index is in use until the last owner is
/// destroyed, and for ever if the peer at `there` was lost by then. Takes the station's mutex.
std::shared_ptr<Target> new_place(Station& station, const Destination& there, const Endpoints& endpoints,
                                  const Slots& target, std::span<const Signal> signals);

Key key_of(const Target& target);
/// @throws std::runtime_error if it makes no sense.
Target target_of(const Key& key);

}  // namespace sluice::backends::ofi
