// SPDX-License-Identifier: Apache-2.0
#include "base/trace.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "base/timeline_file.hpp"

namespace sluice::base::trace {
namespace {

/// A slice; or a mark, which has no end; or one more arrow of a slice that has an arrow already.
struct Event {
  Slice slice;                // without a name: the arrow alone
  const char* why = nullptr;  // set for a mark
};

/// The last kMost events of one thread.
class Events {
 public:
  void add(const Event& event) {
    const std::lock_guard lock(mutex_);
    if (kept_.size() < kMost) {
      kept_.push_back(event);
    } else {
      kept_[added_ % kMost] = event;
    }
    ++added_;
  }

  /// Returns how many were lost.
  std::uint64_t take(std::vector<Event>& all) {
    const std::lock_guard lock(mutex_);
    all.insert(all.end(), kept_.begin(), kept_.end());
    const std::uint64_t lost = added_ - kept_.size();
    kept_.clear();
    added_ = 0;
    return lost;
  }

 private:
  std::mutex mutex_;
  std::vector<Event> kept_;
  std::uint64_t added_ = 0;
};

using Row = std::pair<int, std::string>;  // of a track: its rank, and its name

/// Writes events as JSON.
struct Text {
  const std::vector<Row>& tracks;
  Nanoseconds began;

  std::string operator()(const Event& event) const {
    const Slice& slice = event.slice;
    if (slice.name == nullptr) return arrow(slice);
    const std::string what = ",\"name\":" + json_text(slice.name) + arguments(event);
    if (event.why != nullptr) return entry("i", slice.track, slice.begin, ",\"s\":\"t\"" + what);
    const std::string duration = ",\"dur\":" + microseconds(slice.end - slice.begin);
    return entry("X", slice.track, slice.begin, duration + what) +
           (slice.arrow.arrow == Arrow::none ? "" : ",\n" + arrow(slice));
  }

 private:
  std::string entry(const char* phase, Track track, Time at, const std::string& rest) const {
    const int rank = track == kNone ? 0 : tracks[track - 1].first;
    return std::string("{\"ph\":\"") + phase + "\",\"pid\":" + std::to_string(rank) +
           ",\"tid\":" + std::to_string(track) + ",\"ts\":" + microseconds(at.time_since_epoch() - began) +
           ",\"cat\":\"sluice\"" + rest + "}";
  }

  /// Viewers draw an arrow to or from the slice in which its point of time lies.
  std::string arrow(const Slice& slice) const {
    static constexpr std::array<const char*, 4> kPhases = {"", "s", "t", "f"};
    const auto [kind, id] = slice.arrow;
    const std::string binding = kind == Arrow::begins ? "" : R"(,"bp":"e")";
    return entry(kPhases.at(static_cast<std::size_t>(kind)), slice.track, kind == Arrow::ends ? slice.end : slice.begin,
                 binding + R"(,"name":"message","id":"0x)" + hexadecimal(id) + '"');
  }

  static std::string arguments(const Event& event) {
    const Slice& slice = event.slice;
    std::string text;
    if (*slice.channel != '\0') text += ",\"channel\":" + json_text(slice.channel);
    if (slice.epoch != 0) text += ",\"epoch\":" + std::to_string(slice.epoch);
    if (slice.bytes != 0) text += ",\"bytes\":" + std::to_string(slice.bytes);
    if (event.why != nullptr) text += ",\"why\":" + json_text(event.why);
    return text.empty() ? "" : ",\"args\":{" + text.substr(1) + "}";
  }
};

// This process or a parent has a timeline. A child of fork writes another file: it has its own job and tracks.
std::atomic<bool> g_recorded{false};

/// All that the process has recorded. It is never destroyed: threads may outlive main.
struct Recorder {
  const Time made = Clock::now();
  std::atomic<bool> recording{false};
  std::atomic<bool> lost{false};
  std::atomic<int> last_rank{0};  // of threads that are no rank's

  std::mutex mutex;
  std::vector<Row> tracks;
  std::map<Row, int> same;                              // how many tracks of a rank have the same name
  std::map<std::pair<int, std::string>, Track> by_key;  // of a rank
  std::set<std::string> texts;
  std::map<std::string, int> counts;
  std::vector<std::shared_ptr<Events>> events;

  // While one thread writes, others record.
  std::mutex file_mutex;
  std::string file;
  std::string job;
  Moment began;
  int parts = 0;
  std::size_t rows_written = 0;
  std::set<int> ranks_written;

  void add_to_file(const std::string& path, const std::string& text) {
    const std::string part = hexadecimal(process_token(), 16) + '.' + std::to_string(++parts);
    add_to_timeline(path, job, part, began, text);
  }

  /// Takes the events of all threads. With the mutex.
  std::vector<Event> take_all() {
    std::vector<Event> all;
    std::uint64_t missing = 0;
    for (const auto& one : events) missing += one->take(all);
    if (missing > 0) {
      log(LogLevel::warn, file + " lacks the first " + std::to_string(missing) + " events: of a thread the last " +
                              std::to_string(kMost) + " are kept");
    }
    return all;
  }

  /// Writes the names of tracks that the file lacks, and the events.
  std::string text_of(const std::vector<Row>& rows, const std::vector<Event>& all) {
    std::string text;
    const auto line = [&text](const std::string& event) { text += (text.empty() ? "" : ",\n") + event; };
    const auto name = [&](const char* what, int rank, std::size_t track, const std::string& value) {
      line(std::string("{\"ph\":\"M\",\"name\":\"") + what + "\",\"pid\":" + std::to_string(rank) +
           ",\"tid\":" + std::to_string(track) + ",\"args\":{" + value + "}}");
    };
    for (; rows_written < rows.size(); ++rows_written) {
      const auto& [rank, track] = rows[rows_written];
      if (ranks_written.insert(rank).second) {
        name("process_name", rank, 0, "\"name\":\"rank " + std::to_string(rank) + "\"");
        name("process_sort_index", rank, 0, "\"sort_index\":" + std::to_string(rank));
      }
      name("thread_name", rank, rows_written + 1, "\"name\":" + json_text(track));
    }
    const Text text_of_event{rows, began.steady};
    for (const Event& event : all) line(text_of_event(event));
    return text;
  }
};

OnePerProcess<Recorder> g_recorder;

/// Tracks of the same rank and name are numbered. With the mutex.
Track add_track(int rank, std::string_view name) {
  const int number = ++g_recorder->same[{rank, std::string(name)}];
  g_recorder->tracks.push_back({rank, std::string(name) + (number == 1 ? "" : " " + std::to_string(number))});
  return static_cast<Track>(g_recorder->tracks.size());
}

/// Returns the events of a thread that has ended, or new ones.
std::shared_ptr<Events> take_events() {
  const std::lock_guard lock(g_recorder->mutex);
  auto& all = g_recorder->events;
  const auto unused = std::ranges::find_if(all, [](const auto& one) { return one.use_count() == 1; });
  return unused == all.end() ? all.emplace_back(std::make_shared<Events>()) : *unused;
}

/// State of a thread. A child of fork begins with a new one.
struct Thread {
  Origin origin;
  std::shared_ptr<Events> events;
  Track own = kNone;
  Track now = kNone;
  std::optional<int> rank;
};

/// Returns the state of the calling thread.
Thread& thread() {
  static thread_local Thread mine;
  if (!mine.origin.here()) mine = Thread();
  return mine;
}

void record(const Event& event) noexcept {
  // Tracks of a parent are none of this process.
  if (!recording() || event.slice.begin < g_recorder->made) return;
  try {
    Thread& here = thread();
    if (here.events == nullptr) here.events = take_events();
    here.events->add(event);
  } catch (const std::bad_alloc&) {  // a timeline is not worth a program
    g_recorder->recording.store(false);
  }
}

// Set before slices are reported.
std::once_flag g_listener_set;
Listener g_listener;

/// "put halo, to 1", cut off where it is long.
std::array<char, 160> text_of(const char* name, const char* channel) noexcept {
  std::array<char, 160> text{};
  auto* end = text.begin();
  for (const std::string_view part :
       {std::string_view(name), std::string_view(*channel == '\0' ? "" : " "), std::string_view(channel)})
    end = std::copy_n(part.begin(), std::min<std::ptrdiff_t>(std::ssize(part), text.end() - 1 - end), end);
  return text;
}

}  // namespace

void start(const std::string& file, const std::string& job) {
  Recorder& recorder = *g_recorder;
  const std::lock_guard lock(recorder.file_mutex);
  if (!recorder.file.empty()) return;
  const std::string name = g_recorded.load() ? file + "." + std::to_string(::getpid()) : file;
  check_timeline(name);
  const std::string whole = std::filesystem::absolute(name);  // a program may change its folder
  recorder.began = Moment::now();
  recorder.job = job;
  recorder.add_to_file(whole, "");
  g_recorded.store(true);
  recorder.file = whole;
  recorder.recording.store(true);
  enabled.store(true);
  std::atexit([] { trace::flush(); });
}

bool recording() noexcept { return g_recorder->recording.load(std::memory_order_relaxed); }

void listen(const Listener& listener) {
  std::call_once(g_listener_set, [&] {
    g_listener = listener;
    enabled.store(true);
  });
}

void begin_range(const char* name, const char* channel) noexcept {
  if (g_listener.begin != nullptr) g_listener.begin(text_of(name, channel).data());
}

void end_range() noexcept {
  if (g_listener.end != nullptr) g_listener.end();
}

void flush() noexcept {
  Recorder& recorder = *g_recorder;
  try {
    const std::lock_guard lock(recorder.file_mutex);
    if (recorder.file.empty()) return;
    std::unique_lock recorded(recorder.mutex);
    const std::vector<Event> events = recorder.take_all();
    const std::vector<Row> rows = recorder.tracks;
    recorded.unlock();
    if (!events.empty()) recorder.add_to_file(recorder.file, recorder.text_of(rows, events));
  } catch (const std::exception& reason) {
    if (!recorder.lost.exchange(true)) log(LogLevel::error, std::string("the timeline lacks events: ") + reason.what());
  }
}

bool lost() noexcept { return g_recorder->lost.load(); }

Track new_track(int rank, std::string_view name) {
  const std::lock_guard lock(g_recorder->mutex);
  return add_track(rank, name);
}

Track track_of(std::string_view key, std::string_view name) {
  const std::lock_guard lock(g_recorder->mutex);
  Track& track = g_recorder->by_key[{rank(), std::string(key)}];
  if (track == kNone) track = add_track(rank(), name);
  return track;
}

Track current() {
  Thread& here = thread();
  if (here.now != kNone) return here.now;
  if (here.own == kNone) here.own = new_track(rank(), here.rank ? "host" : "thread");
  return here.own;
}

void set_rank(int rank) {
  Thread& here = thread();
  if (here.rank != rank) here.own = kNone;
  here.rank = rank;
  g_recorder->last_rank.store(rank);
}

int rank() { return thread().rank.value_or(g_recorder->last_rank.load()); }

void OnTrack::enter() noexcept { before_ = std::exchange(thread().now, track_); }

void OnTrack::leave() const noexcept {
  Thread& here = thread();
  if (here.now == track_) here.now = before_;  // false in a child that was forked meanwhile
}

const char* kept(std::string_view text) {
  const std::lock_guard lock(g_recorder->mutex);
  return g_recorder->texts.emplace(text).first->c_str();
}

int count(std::string_view text) {
  const std::lock_guard lock(g_recorder->mutex);
  return ++g_recorder->counts[std::string(text)];
}

void add(const Slice& slice) noexcept { record({slice}); }

void add(const ArrowAt& arrow, const Slice& slice) noexcept {
  record({{nullptr, nullptr, 0, 0, arrow, slice.track, slice.begin, slice.end}});
}

/// Both ends compute the same number. It has 52 bits, which every reader of JSON keeps.
ArrowAt arrow_of(Arrow arrow, const Channel& channel, std::uint64_t epoch) noexcept {
  return {arrow, (channel.arrows + epoch) & ((std::uint64_t{1} << 52) - 1)};
}

void mark(const char* name, const Channel& channel, std::string_view why) noexcept {
  if (g_listener.mark != nullptr) g_listener.mark(text_of(name, channel.label).data());
  try {
    record({{name, channel.label, 0, 0, {}, current(), Clock::now(), {}}, kept(why)});
  } catch (const std::bad_alloc&) {
    g_recorder->recording.store(false);
  }
}

void Span::begin(const char* name, const Channel& channel, std::uint64_t epoch, std::uint64_t bytes, Arrow arrow,
                 Track track) {
  range_.emplace(name, channel.label);
  const Track where = track == kNone ? current() : track;
  slice_ = {name, channel.label, epoch, bytes, arrow_of(arrow, channel, epoch), where, Clock::now(), {}};
}

void Span::end() noexcept {
  slice_->end = Clock::now();
  add(*slice_);
}

}  // namespace sluice::base::trace
