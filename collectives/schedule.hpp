// SPDX-License-Identifier: Apache-2.0
// A schedule has the messages of one rank for a collective, and its steps in their order. Each algorithm is a function
// that makes one.
#pragma once

#include <sluice/collectives.hpp>
#include <sluice/memory.hpp>
#include <sluice/ops.hpp>
#include <sluice/types.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sluice::collectives {

/// Messages of up to so many bytes land in memory of the collective, which has room for three: the sender need not wait
/// until the receiver has started. Longer ones land in their place, once the receiver has said that it is ready.
inline constexpr std::size_t kEager = 8192;

/// So many messages that land in memory of the collective have room there.
inline constexpr int kLandings = 3;

/// Up to so many bytes a lane combines in rounds (lanes.cpp).
inline constexpr std::size_t kLaneInRounds = 16384;

/// The tag of the first message of an algorithm between two ranks: so that ranks which have chosen differently find it
/// out, by its contents.
inline constexpr Tag kFirst = 1;

/// A piece of memory, by what it belongs to.
struct Place {
  enum class Of : std::uint8_t {
    user,     ///< a slice of the program's
    scratch,  ///< memory of the collective
    message   ///< where the last message of a channel has landed
  };
  Of of = Of::user;
  std::uint32_t index = 0;  ///< which slice or channel
  std::size_t offset = 0;
  Place operator+(std::size_t bytes) const noexcept { return {of, index, offset + bytes}; }
};

/// One end of a channel.
struct Message {
  bool sends = false;
  Rank peer = -1;
  Tag tag = 0;
  std::size_t bytes = 0;
  Place at = {};       ///< source, or where it lands; Place::Of::message: in memory of its own, which has three slots
  bool ready = false;  ///< says that a long message may come
  bool lands_aside() const noexcept { return at.of == Place::Of::message; }
};

struct Step {
  enum class Kind : std::uint8_t {
    put,
    wait,
    release,
    acquire,  ///< waits until the source may be changed
    copy,
    combine,  ///< to = first op second
    widen,    ///< float16 or bfloat16 to float32
    narrow    ///< the reverse
  };
  Kind kind;
  std::uint32_t message = 0;  ///< for the first four
  Place to = {};
  Place first = {};
  Place second = {};
  std::size_t bytes = 0;  ///< of the result of a step; of float32, for `widen` and `narrow`
};

/// Made step by step. Steps before `finish` belong to `start`, the others to `wait`.
class Schedule {
 public:
  Schedule(Rank of, int ranks) : rank(of), size(ranks), whole_{of, ranks} {}

  Rank rank;              ///< of this rank, in the group that was entered last
  int size;               ///< of that group
  std::string algorithm;  ///< and why it was chosen
  std::string contents;   ///< what the ranks must agree on, in words
  Op op = Op::sum;
  Number number = Number::uint64;
  Combiner function = {};  ///< in place of the two, if it is set

  /// Later steps are among these ranks of the context, of which this rank is one: ranks are places in `group`. No
  /// ranks: all are meant again. `stage`: its tags are those of this stage; 0: of the context.
  void enter(std::vector<Rank> group, int stage);

  Place user(const Slice& slice);
  Place scratch(std::size_t bytes);

  // Messages. The slots of the two ends have the same number of bytes.
  std::uint32_t send(Rank peer, Tag tag, Place from, std::size_t bytes);
  /// Lands in memory of its own.
  std::uint32_t receive(Rank peer, Tag tag, std::size_t bytes);
  /// Lands in `to`, as soon as the sender has it: for what needs something of this rank first.
  std::uint32_t receive_in(Rank peer, Tag tag, Place to, std::size_t bytes);

  // Long messages. The receiver's steps to open one belong to `start`, the sender's to put it to `wait`.
  struct Long {
    std::uint32_t ready;
    std::uint32_t message;
  };
  Long send_long(Rank peer, Tag tag, Place from, std::size_t bytes);
  void put(const Long& message);
  /// Says that it may come. `aside`: lands in memory of its own.
  std::uint32_t receive_long(Rank peer, Tag tag, Place to, std::size_t bytes, bool aside = false);
  static Place landed(std::uint32_t message) noexcept { return {Place::Of::message, message, 0}; }

  void put(std::uint32_t message) { steps.push_back({.kind = Step::Kind::put, .message = message}); }
  void wait(std::uint32_t message) { steps.push_back({.kind = Step::Kind::wait, .message = message}); }
  void release(std::uint32_t message) { steps.push_back({.kind = Step::Kind::release, .message = message}); }
  void acquire(std::uint32_t message) { steps.push_back({.kind = Step::Kind::acquire, .message = message}); }
  void copy(Place to, Place from, std::size_t bytes);
  /// Of equal numbers, or of NaNs, the result may depend on which is first.
  void combine(Place to, Place first, Place second, std::size_t bytes);
  void widen(Place to, Place from, std::size_t bytes);
  void narrow(Place to, Place from, std::size_t bytes);

  /// The steps from here on belong to `wait`, unless they do so already.
  void finish() {
    if (!finished_) begin_of_wait = steps.size();
    finished_ = true;
  }
  /// What was sent may be changed from here on.
  void acquire_all();

  std::vector<Slice> slices;
  std::vector<std::size_t> scratches;
  std::vector<Message> messages;
  std::vector<Step> steps;
  std::size_t begin_of_wait = 0;

 private:
  Rank in_context(Rank peer) const { return group_.empty() ? peer : group_[static_cast<std::size_t>(peer)]; }

  std::pair<Rank, int> whole_;  // rank and size in the context
  std::vector<Rank> group_;     // empty: the context
  Tag tags_ = 0;                // those of the group begin here
  bool finished_ = false;
};

}  // namespace sluice::collectives
