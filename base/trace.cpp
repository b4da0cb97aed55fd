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
#include "base/slice_file.hpp"
#include "base/text.hpp"
#include "base/timeline_file.hpp"
#include "base/trace_text.hpp"

namespace sluice::base::trace {
namespace {

Row row_of(Track track);
std::unique_ptr<Events> make_events();

/// The events of one thread since the last flush.
class OfThread {
 public:
  void add(const Event& event) {
    const std::lock_guard lock(mutex_);
    if (events_ == nullptr) events_ = make_events();
    events_->add(event, row_of);
  }

  /// Null: there are none.
  std::unique_ptr<Events> take() {
    const std::lock_guard lock(mutex_);
    return std::move(events_);
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<Events> events_;
};

// This process or a parent has a timeline. A child of fork writes another file: it has its own job and tracks.
std::atomic<bool> g_recorded{false};

/// All that the process has recorded. It is never destroyed: threads may outlive main.
struct Recorder {
  const Time made = Clock::now();
  std::atomic<bool> recording{false};
  std::atomic<bool> lost{false};
  std::atomic<int> last_rank{0};  // of threads that are no rank's
  std::atomic<int> files{0};      // of events, so far

  std::mutex mutex;
  std::vector<Row> tracks;
  std::map<Row, int> same;                              // how many tracks of a rank have the same name
  std::map<std::pair<int, std::string>, Track> by_key;  // of a rank
  std::set<std::string> texts;
  std::map<std::string, int> counts;
  std::vector<std::shared_ptr<OfThread>> threads;

  // While one thread writes, others record.
  std::mutex file_mutex;
  std::string file;
  std::string job;
  Moment began;
  int parts = 0;
  Track last_named = kNone;
  std::set<int> ranks_named;

  /// Takes the events of all threads.
  std::vector<std::unique_ptr<Events>> take_all() {
    std::unique_lock lock(mutex);
    const std::vector<std::shared_ptr<OfThread>> all = threads;
    lock.unlock();  // a thread that adds an event locks its own mutex first
    std::vector<std::unique_ptr<Events>> taken;
    for (const auto& thread : all) {
      if (auto events = thread->take()) taken.push_back(std::move(events));
    }
    return taken;
  }

  /// Writes the names of tracks that the timeline lacks, and the events.
  std::string text_of(const std::vector<std::unique_ptr<Events>>& taken) {
    std::vector<Event> all;
    std::uint64_t missing = 0;
    for (const auto& events : taken) missing += events->copy_to(all);
    if (missing > 0) log_lost(file, missing);
    std::unique_lock lock(mutex);
    Rows rows;
    for (const Row& row : tracks) rows.emplace(static_cast<Track>(rows.size() + 1), row);
    lock.unlock();
    std::vector<std::string> lines = lines_of(Rows(rows.upper_bound(last_named), rows.end()), ranks_named);
    if (!rows.empty()) last_named = rows.rbegin()->first;
    for (const Event& event : all) lines.push_back(line_of(event, rows, began.steady));
    return joined(lines);
  }

  /// If this process is killed meanwhile, another one finds in the files of `taken` what the timeline lacks.
  void add_to_file(const std::string& text, const std::vector<std::unique_ptr<Events>>& taken) {
    const std::string name = hexadecimal(process_token(), 16) + '.' + std::to_string(++parts);
    const Part part(file, job, name, began, text);
    for (const auto& events : taken) events->are_in(name);
    part.publish();
    merge_parts(file, job);
    for (const auto& events : taken) events->remove_file();
    ::rmdir(folder_of_parts(file, job).c_str());  // unless there is more
  }
};

OnePerProcess<Recorder> g_recorder;

/// Tracks of the same rank and name are numbered. With the mutex.
Track add_track(int rank, std::string_view name) {
  const int number = ++g_recorder->same[{rank, std::string(name)}];
  g_recorder->tracks.push_back({rank, std::string(name) + (number == 1 ? "" : " " + std::to_string(number))});
  return static_cast<Track>(g_recorder->tracks.size());
}

Row row_of(Track track) {
  const std::lock_guard lock(g_recorder->mutex);
  return g_recorder->tracks.at(track - 1);
}

/// After `start`, which alone writes what this reads.
std::unique_ptr<Events> make_events() {
  Recorder& recorder = *g_recorder;
  const std::string name = hexadecimal(process_token(), 16) + '.' + std::to_string(++recorder.files);
  return std::make_unique<Events>(folder_of_parts(recorder.file, recorder.job), name, recorder.began);
}

/// Returns the events of a thread that has ended, or new ones.
std::shared_ptr<OfThread> take_events() {
  const std::lock_guard lock(g_recorder->mutex);
  auto& all = g_recorder->threads;
  const auto unused = std::ranges::find_if(all, [](const auto& one) { return one.use_count() == 1; });
  return unused == all.end() ? all.emplace_back(std::make_shared<OfThread>()) : *unused;
}

/// State of a thread. A child of fork begins with a new one.
struct Thread {
  Origin origin;
  std::shared_ptr<OfThread> events;
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
  } catch (const std::exception&) {  // a timeline is not worth a program
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
  recorder.file = whole;
  try {
    recorder.add_to_file("", {});
  } catch (...) {
    recorder.file.clear();
    throw;
  }
  g_recorded.store(true);
  recorder.recording.store(true);
  enabled.store(true);
  std::atexit([] { trace::flush(); });
}

bool recording() noexcept { return g_recorder->recording.load(std::memory_order_acquire); }

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
    const auto taken = recorder.take_all();
    if (!taken.empty()) recorder.add_to_file(recorder.text_of(taken), taken);
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
