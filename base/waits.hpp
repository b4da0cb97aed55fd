// SPDX-License-Identifier: Apache-2.0
// Waits that sleep: a page that a process shares with sluice-run has a row for each of them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/words.hpp"

namespace sluice::base {

/// A wait is noted once it has lasted so long.
inline constexpr std::chrono::milliseconds kNotedAfter{100};

/// What a wait needs and has not got.
enum class Lack : std::uint8_t {
  opening,     ///< the peer's end of the channel
  put,         ///< a put of the peer
  release,     ///< a release of the peer
  completion,  ///< the end of work of this rank's own: of a put, a release or a copy that is under way
  count,       ///< accesses of peers that raise the counter of a window
  notice,      ///< a notice that matches
  copying,     ///< the end of the peer's part of a copy from this end's memory
  letting_go,  ///< the end of the peer's use of this end's memory
  step,        ///< a step of other ranks, which `text` names
  room         ///< room in the queue of a host stream
};

/// How far an end of a channel has come, as its rank reports it to a peer that waits for it.
struct EndCounts {
  std::uint64_t enqueued = 0;   ///< puts of a sender, waits of a receiver
  std::uint64_t completed = 0;  ///< of those
  std::uint64_t released = 0;   ///< a receiver's enqueued releases; a sender: releases that have reached it
  std::uint64_t depth = 0;      ///< slots at the receiver; 0: not connected
};

/// Text of at most N - 1 characters; longer text is cut off.
template <std::size_t N>
class ShortText {
 public:
  ShortText() = default;
  ShortText(std::string_view text) noexcept { *this = text; }  // NOLINT(google-explicit-constructor): it is text
  ShortText& operator=(std::string_view text) noexcept {
    const std::size_t size = text.copy(text_.data(), N - 1);
    text_[size] = '\0';
    return *this;
  }
  std::string_view view() const noexcept { return {text_.data()}; }

 private:
  std::array<char, N> text_{};
};

/// One wait.
struct WaitRecord {
  int rank = -1;  ///< of the job; -1: not known
  int peer = -1;  ///< of the job; -1: it waits for no peer
  std::uint32_t tag = 0;
  bool sends = false;     ///< its end is a sender's
  bool reached = true;    ///< if an opening lacks: there is a connection to the peer
  bool answered = false;  ///< `counts`, or the `text` of an opening, are known
  Lack lack = Lack::put;
  std::uint64_t epoch = 0;    ///< the put or release that lacks, the capacity of a queue
  const void* end = nullptr;  ///< its end, in the process of `rank`; null: it waits for no peer
  Clock::time_point since{};
  Clock::time_point polled{};  ///< last look, of a wait that the program repeats; the clock's beginning: it sleeps
  EndCounts counts;            ///< of the peer's end
  ShortText<16> verb;
  ShortText<40> name;    ///< of the channel
  ShortText<40> stream;  ///< where it waits
  /// If an opening lacks: unmatched ends that the peer has opened towards `rank`. If a step lacks: what has not
  /// happened, and at which rank.
  ShortText<160> text;
};
static_assert(std::is_trivially_copyable_v<WaitRecord>);

/// The waits of one process. Other processes may read it at any time, also after the death of this one. Zeros are a
/// page without waits.
struct WaitPage {
  struct Row {
    std::uint64_t version;  ///< odd while the record is being written
    std::uint64_t used;     ///< 1: there is such a wait
    std::array<std::byte, sizeof(WaitRecord)> record;
  };
  static constexpr std::size_t kRows = 256;  ///< more waits of a process are not noted

  std::atomic<std::uint32_t> rows_touched{0};  ///< the others are zeros, and need no memory
  std::array<Row, kRows> rows;
};

/// From now on this process notes its waits in `page`, which sluice-run reads. `page` is never unmapped.
void share_waits(WaitPage& page);
/// True if sluice-run reads the waits of this process, and tells of them.
bool waits_are_shared() noexcept;

/// Returns the waits in a page, which another process may be writing.
std::vector<WaitRecord> waits_in(const WaitPage& page);
/// Returns the waits of this process.
std::vector<WaitRecord> waits_here();

/// Notes in the waits of this end, if there are any left, what its peer has answered.
void note_answer(const void* end, const EndCounts& counts) noexcept;
/// Notes what the peer of an end that is not connected has opened. `reached`: there is a connection to the peer.
void note_openings(const void* end, std::string_view openings, bool reached) noexcept;

/// The rank that this thread runs; -1: none.
int rank_of_thread() noexcept;
/// Returns the one before.
int set_rank_of_thread(int rank) noexcept;

/// A row of the page for one wait, while it lasts. Does nothing until `write`.
class WaitNote {
 public:
  /// @param stream  text that outlives the note
  explicit WaitNote(Clock::time_point since = {}, const char* stream = "host") noexcept
      : since_(since), stream_(stream) {}
  WaitNote(WaitNote&& other) noexcept { *this = std::move(other); }
  WaitNote& operator=(WaitNote&& other) noexcept {
    std::swap(row_, other.row_);
    std::swap(since_, other.since_);
    std::swap(next_, other.next_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~WaitNote() { end(); }

  bool begun() const noexcept { return row_ != kNone; }
  /// Time at which the wait is to be noted next, so that the peer is asked anew: the rarer the longer it lasts.
  /// @param first  how long after its begin for the first time
  Clock::time_point next(Clock::duration first) const noexcept { return std::max(since_ + first, next_); }
  /// True if that time has come; the next one then begins.
  bool due(Clock::time_point now, Clock::duration first) noexcept;
  /// Begins or updates the row; an answer to the same question stays. Without a free row it does nothing.
  void write(WaitRecord record) noexcept;
  /// The program has looked, and will come back.
  void polled() const noexcept {
    if (begun()) set_polled(Clock::now());
  }
  /// It has come back, and sleeps.
  void sleeps_again() const noexcept {
    if (begun()) set_polled({});
  }
  void end() noexcept {
    if (begun()) give_back();
  }

 private:
  [[gnu::cold]] void give_back() noexcept;
  [[gnu::cold]] void set_polled(Clock::time_point when) const noexcept;

  static constexpr std::size_t kNone = WaitPage::kRows;
  std::size_t row_ = kNone;
  Clock::time_point since_{};
  Clock::time_point next_{};
  const char* stream_ = "";
};

}  // namespace sluice::base
