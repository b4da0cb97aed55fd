// SPDX-License-Identifier: Apache-2.0
// The timeline that SLUICE_TRACE asks for: what was done when, in the trace format of Chrome and Perfetto. A slice lies
// on a track, which is a stream, a thread or an engine of a rank; an arrow leads from the put to who waits for it.
#pragma once

#include "base/words.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::base::trace {

using Time = Clock::time_point;

/// Of each thread the last so many slices and arrows are kept.
inline constexpr std::size_t kMost = 1 << 17;

/// Whether anybody hears of slices: the timeline, or a listener.
inline std::atomic<bool> heard{false};
inline bool on() noexcept { return heard.load(std::memory_order_relaxed); }
/// Whether the timeline does.
bool recording() noexcept;

/// Who else hears of slices and marks, at once and on the thread that makes them: a profiler.
struct Listener {
  void (*begin)(const char* text) = nullptr;
  void (*end)() = nullptr;
  void (*mark)(const char* text) = nullptr;
};

/// From now on this process tells it. Before `start`; only the first call does anything.
void tell(const Listener& listener);

/// From now on this process records, and adds what it has to `file` in `flush` and at its end. Only the first call of a
/// process that succeeds does anything. How processes of the job share the file: see TimelineFile.
/// @throws std::invalid_argument as TimelineFile::check, std::system_error if the file cannot be written
void start(const std::string& file, const std::string& job);

/// Adds to the file what was recorded, and forgets it. Logs the first failure of the process.
void flush() noexcept;

/// True once a flush of this process has failed to write an event.
bool lost() noexcept;

using Track = std::uint32_t;
inline constexpr Track kNone = 0;

Track new_track(int rank, std::string_view name);
/// The calling thread's rank has one track for what has this key.
Track track_of(std::string_view key, std::string_view name);
/// That of the stream whose work the thread runs, else the thread's own.
Track current();
/// The calling thread is a rank's. Others belong to the rank that said so last.
void set_rank(int rank);
/// Whose the calling thread is.
int rank();

/// The thread runs a stream's work while this lives. kNone: nothing changes.
class OnTrack {
 public:
  explicit OnTrack(Track track) noexcept : track_(track) {
    if (track_ != kNone) [[unlikely]]
      enter();
  }
  OnTrack(const OnTrack&) = delete;
  OnTrack& operator=(const OnTrack&) = delete;
  ~OnTrack() {
    if (track_ != kNone) [[unlikely]]
      leave();
  }

 private:
  [[gnu::cold]] void enter() noexcept;
  [[gnu::cold]] void leave() const noexcept;
  Track track_;
  Track before_ = kNone;
};

/// The text as it lives for ever.
const char* kept(std::string_view text);

/// How often this process has asked for this text, with this call.
int count(std::string_view text);

/// One end of a channel.
struct Channel {
  const char* label = "";
  std::uint64_t arrows = 0;  ///< the same at both ends
  Track engine = kNone;      ///< of its rank
  bool sends = false;
};

/// What the arrow of an epoch has to do with a slice.
enum class Arrow : std::uint8_t { none, begins, passes, ends };

/// An arrow that has to do with a slice of a track.
struct ArrowAt {
  Arrow arrow = Arrow::none;
  std::uint64_t id = 0;
};
ArrowAt arrow_of(Arrow arrow, const Channel& channel, std::uint64_t epoch) noexcept;

struct Slice {
  const char* name = "";  ///< lives for ever, as does `channel`
  const char* channel = "";
  std::uint64_t epoch = 0;
  std::uint64_t bytes = 0;
  ArrowAt arrow{};
  Track track = kNone;
  Time begin{};
  Time end{};
};

void add(const Slice& slice) noexcept;
/// One more, of a slice that was added.
void add(const ArrowAt& arrow, const Slice& slice) noexcept;
/// A point of time on the calling thread's track.
void mark(const char* name, const Channel& channel, std::string_view why) noexcept;

/// What the listener, if there is one, hears of a slice: of a channel, or of none, which is "".
[[gnu::cold]] void tell_begin(const char* name, const char* channel = "") noexcept;
[[gnu::cold]] void tell_end() noexcept;

/// From its making to its end.
class Told {
 public:
  Told(const char* name, const char* channel) noexcept { tell_begin(name, channel); }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;
  ~Told() { tell_end(); }
};

/// A slice from its making to its end; where nobody hears of it, nothing. An arrow lies at its begin, or ends at its
/// end.
class Span {
 public:
  explicit Span(const char* name, const Channel& channel = {}, std::uint64_t epoch = 0, std::uint64_t bytes = 0,
                Arrow arrow = Arrow::none) {
    if (on()) [[unlikely]]
      begin(kNone, name, channel, epoch, bytes, arrow);
  }
  Span(Track track, const char* name, const Channel& channel, std::uint64_t epoch, Arrow arrow) {
    if (on()) [[unlikely]]
      begin(track, name, channel, epoch, 0, arrow);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() {
    if (slice_) [[unlikely]]
      end();
  }
  /// It was nothing. The listener has heard of it.
  void forget() noexcept {
    slice_.reset();
    told_.reset();
  }

 private:
  [[gnu::cold]] void begin(Track track, const char* name, const Channel& channel, std::uint64_t epoch,
                           std::uint64_t bytes, Arrow arrow);
  [[gnu::cold]] void end() noexcept;
  std::optional<Told> told_;
  std::optional<Slice> slice_;
};

}  // namespace sluice::base::trace
