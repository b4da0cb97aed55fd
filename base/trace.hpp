// SPDX-License-Identifier: Apache-2.0
// The timeline of SLUICE_TRACE, in the trace format of Chrome and Perfetto. A slice is an operation with its begin and
// end. It lies on a track: a stream, a thread or an engine of a rank. An arrow leads from a put to the wait for it.
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

/// Most events of one thread that are kept: the last ones.
inline constexpr std::size_t kMost = 1 << 17;

/// True if slices go to the timeline or to a listener.
inline std::atomic<bool> enabled{false};
inline bool on() noexcept { return enabled.load(std::memory_order_relaxed); }
/// True if slices go to the timeline.
bool recording() noexcept;

/// Functions of a profiler. The thread that makes a slice or a mark calls them at once.
struct Listener {
  void (*begin)(const char* text) = nullptr;
  void (*end)() = nullptr;
  void (*mark)(const char* text) = nullptr;
};

/// Sets the listener of this process. Call it before `start`; only the first call has an effect.
void listen(const Listener& listener);

/// Starts recording. `flush` adds the events to `file`, as does the end of the process. Only the first call that
/// succeeds has an effect. Processes of the job share the file as timeline_file.hpp describes.
/// @throws std::invalid_argument as check_timeline, std::system_error if the file cannot be written
void start(const std::string& file, const std::string& job);

/// Adds the recorded events to the file, and forgets them. Logs the first failure of the process.
void flush() noexcept;

/// True once a flush of this process has failed to write an event.
bool lost() noexcept;

using Track = std::uint32_t;
inline constexpr Track kNone = 0;

Track new_track(int rank, std::string_view name);
/// Returns the track that the calling thread's rank has for this key.
Track track_of(std::string_view key, std::string_view name);
/// Returns the track of the stream whose work the calling thread runs, else the thread's own track.
Track current();
/// Makes the calling thread one of this rank. Threads without a call belong to the rank of the last call.
void set_rank(int rank);
/// Returns the rank of the calling thread.
int rank();

/// While it lives, slices of the calling thread lie on a stream's track. kNone: has no effect.
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

/// Returns a copy of the text that lives for ever.
const char* kept(std::string_view text);

/// Counts the calls of this process with this text, this one too.
int count(std::string_view text);

/// One end of a channel.
struct Channel {
  const char* label = "";
  std::uint64_t arrows = 0;  ///< first number of its arrows, the same at both ends
  Track engine = kNone;      ///< track of its rank's engine
  bool sends = false;
};

/// Place of a slice on the arrow of its epoch.
enum class Arrow : std::uint8_t { none, begins, passes, ends };

/// An arrow at a slice.
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
/// Adds one more arrow to a slice that was added.
void add(const ArrowAt& arrow, const Slice& slice) noexcept;
/// Adds a point of time to the calling thread's track.
void mark(const char* name, const Channel& channel, std::string_view why) noexcept;

/// Calls the listener, if any, at the begin and the end of a slice. `channel`: "" for a slice of none.
[[gnu::cold]] void begin_range(const char* name, const char* channel = "") noexcept;
[[gnu::cold]] void end_range() noexcept;

/// A range of the listener, as long as this lives.
class Range {
 public:
  Range(const char* name, const char* channel) noexcept { begin_range(name, channel); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  ~Range() { end_range(); }
};

/// A slice from the constructor to the destructor; does nothing unless `on()`. An arrow lies at the begin of the slice,
/// or ends at its end. `track`: kNone for the calling thread's.
class Span {
 public:
  explicit Span(const char* name, const Channel& channel = {}, std::uint64_t epoch = 0, std::uint64_t bytes = 0,
                Arrow arrow = Arrow::none, Track track = kNone) {
    if (on()) [[unlikely]]
      begin(name, channel, epoch, bytes, arrow, track);
  }
  ~Span() {
    if (slice_) [[unlikely]]
      end();
  }
  /// Discards the slice; the listener was already called.
  void forget() noexcept {
    slice_.reset();
    range_.reset();
  }

 private:
  [[gnu::cold]] void begin(const char* name, const Channel& channel, std::uint64_t epoch, std::uint64_t bytes,
                           Arrow arrow, Track track);
  [[gnu::cold]] void end() noexcept;
  std::optional<Range> range_;
  std::optional<Slice> slice_;
};

}  // namespace sluice::base::trace
