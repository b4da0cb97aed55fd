// SPDX-License-Identifier: Apache-2.0
// What a rank has open at one provider, and what ranks tell each other of it.
#pragma once

#include <rdma/fi_trigger.h>

#include <array>
#include <mutex>

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

class CountedLanding;
class RmaPut;
class TickBell;
class TriggeredPut;

/// A word that the peer writes itself: nobody else wakes who sleeps for it.
struct WrittenWord {
  const Signal* signal = nullptr;
  std::uint64_t seen = 0;
};

/// What a rank has open. Puts and landings use it under its mutex; operations end with the mutex held.
struct Station {
  std::mutex mutex;
  std::string provider;
  // What was under way to a peer that is lost: it may end at any time, or never.
  std::vector<std::unique_ptr<WordWrite>> orphans;
  std::vector<std::vector<Work>> orphaned_work;
  std::vector<std::unique_ptr<Rail>> rails;
  std::vector<Owned<fid_cntr>> orphaned_counters;
  Manner manner;
  Arrivals arrivals{manner};
  std::vector<WrittenWord> written_words;
  std::vector<RmaPut*> attended;  // puts with something to do between posts
  std::vector<CountedLanding*> counted;
  std::vector<TickBell*> bells;
  std::vector<TriggeredPut*> triggered;
  bool rings_by_page = false;  ///< counters have a page that a stream can store to
  int entries_left = 0;        // of the NIC's trigger entries, those that this rank may still take
};

/// A peer as our rails reach it: for each of its endpoints the rail to use and its address there.
struct Route {
  Rail* rail = nullptr;
  fi_addr_t address = FI_ADDR_UNSPEC;
};
using Routes = std::vector<Route>;

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
  std::int32_t depth = 1;
  std::uint32_t rails = 1;
  Notice notice = Notice::data;
  std::array<OfRail, kMostRails> rail{};
};

}  // namespace sluice::backends::ofi
