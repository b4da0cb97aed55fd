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
#include <variant>
#include <vector>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "base/timeline_file.hpp"

namespace sluice::base::trace {
namespace {

/// An arrow of a slice that has another.
struct More {
  ArrowAt arrow;
  Track track;
  Time begin;
  Time end;
};

struct Mark {
  const char* name;
  const char* channel;
  const char* why;
  Track track;
  Time at;
};

using Event = std::variant<Slice, More, Mark>;

/// What one thread has recorded: the last kMost events.
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

// This process or a parent has a timeline. A child of fork writes another file: it has its own job and tracks.
std::atomic<bool> g_recorded{false};

/// All that the process has recorded. It is never destroyed: threads may outlive main.
class Recorder {
 public:
  void start(const std::string& file, const std::string& job) {
    const std::lock_guard lock(file_mutex_);
    if (!file_.empty()) return;
    const std::string name = g_recorded.load() ? file + "." + std::to_string(::getpid()) : file;
    TimelineFile::check(name);
    const std::string whole = std::filesystem::absolute(name);  // a program may change its folder
    began_ = Moment::now();
    TimelineFile(whole, job).add(part_name(), began_, "");
    g_recorded.store(true);
    file_ = whole;
    job_ = job;
    recording_.store(true);
    heard.store(true);
    std::atexit([] { trace::flush(); });
  }

  bool recording() const noexcept { return recording_.load(std::memory_order_relaxed); }
  void give_up() noexcept { recording_.store(false); }

  void flush() {
    const std::lock_guard lock(file_mutex_);
    if (file_.empty()) return;
    const std::vector<Event> events = take_all();
    if (!events.empty()) TimelineFile(file_, job_).add(part_name(), began_, text_of(events));
  }

  /// True for the first call.
  bool lose() noexcept { return !lost_.exchange(true); }
  bool lost() const noexcept { return lost_.load(); }

  /// False for what a parent began: its tracks are others.
  bool knows(Time begin) const noexcept { return begin >= made_; }

  Track new_track(int rank, std::string_view name) {
    const std::lock_guard lock(mutex_);
    return add_track(rank, name);
  }

  Track track_of(std::string_view what, int rank, std::string_view name) {
    const std::lock_guard lock(mutex_);
    Track& track = named_[std::to_string(rank) + ' ' + std::string(what)];
    if (track == kNone) track = add_track(rank, name);
    return track;
  }

  const char* kept(std::string_view text) {
    const std::lock_guard lock(mutex_);
    auto it = texts_.find(text);
    if (it == texts_.end()) it = texts_.emplace(text).first;
    return it->c_str();
  }

  int count(std::string_view text) {
    const std::lock_guard lock(mutex_);
    return ++counts_[std::string(text)];
  }

  Events* take_events() {
    const std::lock_guard lock(mutex_);
    if (unused_.empty()) return events_.emplace_back(std::make_unique<Events>()).get();
    Events* const events = unused_.back();
    unused_.pop_back();
    return events;
  }

  void give_back(Events* events) {
    const std::lock_guard lock(mutex_);
    unused_.push_back(events);
  }

  std::atomic<int> last_rank{0};  // of threads that are no rank's

 private:
  struct Row {
    int rank;
    std::string name;
  };

  /// Of the same name and rank they are numbered.
  Track add_track(int rank, std::string_view name) {
    const int number = ++numbers_[{rank, std::string(name)}];
    tracks_.push_back({rank, std::string(name) + (number == 1 ? "" : " " + std::to_string(number))});
    return static_cast<Track>(tracks_.size());
  }

  std::string part_name() { return hexadecimal(process_token(), 16) + '.' + std::to_string(++parts_); }

  std::string place(Track track, Time at) const {
    const int rank = track == kNone ? 0 : rows_[track - 1].rank;
    return "\"pid\":" + std::to_string(rank) + ",\"tid\":" + std::to_string(track) +
           ",\"ts\":" + microseconds(at.time_since_epoch() - began_.steady);
  }

  static std::string arguments(const char* channel, std::uint64_t epoch, std::uint64_t bytes) {
    std::string text;
    if (*channel != '\0') text += ",\"channel\":" + json_text(channel);
    if (epoch != 0) text += ",\"epoch\":" + std::to_string(epoch);
    if (bytes != 0) text += ",\"bytes\":" + std::to_string(bytes);
    return text.empty() ? "" : ",\"args\":{" + text.substr(1) + "}";
  }

  std::string text(const Slice& slice) const {
    return "{\"ph\":\"X\"," + place(slice.track, slice.begin) + ",\"dur\":" + microseconds(slice.end - slice.begin) +
           ",\"cat\":\"sluice\",\"name\":" + json_text(slice.name) +
           arguments(slice.channel, slice.epoch, slice.bytes) + "}" +
           (slice.arrow.arrow == Arrow::none ? "" : ",\n" + text(slice.arrow, slice.track, slice.begin, slice.end));
  }
  std::string text(const More& more) const { return text(more.arrow, more.track, more.begin, more.end); }
  /// It is drawn to or from the slice in which its point of time lies.
  std::string text(const ArrowAt& arrow, Track track, Time begin, Time end) const {
    static constexpr std::array<const char*, 4> kPhases = {"", "s", "t", "f"};
    return std::string("{\"ph\":\"") + kPhases.at(static_cast<std::size_t>(arrow.arrow)) +
           (arrow.arrow == Arrow::begins ? "\"," : "\",\"bp\":\"e\",") +
           place(track, arrow.arrow == Arrow::ends ? end : begin) + ",\"id\":\"0x" + hexadecimal(arrow.id) +
           R"(","cat":"sluice","name":"message"})";
  }
  std::string text(const Mark& mark) const {
    return R"({"ph":"i","s":"t",)" + place(mark.track, mark.at) +
           ",\"cat\":\"sluice\",\"name\":" + json_text(mark.name) +
           ",\"args\":{\"channel\":" + json_text(mark.channel) + ",\"why\":" + json_text(mark.why) + "}}";
  }

  std::vector<Event> take_all() {
    const std::lock_guard lock(mutex_);
    std::vector<Event> events;
    std::uint64_t lost = 0;
    for (const auto& one : events_) lost += one->take(events);
    if (lost > 0) {
      log(LogLevel::warn, file_ + " lacks the first " + std::to_string(lost) + " events: of a thread the last " +
                              std::to_string(kMost) + " are kept");
    }
    rows_ = tracks_;
    return events;
  }

  /// The names of tracks that the file has not, and the events.
  std::string text_of(const std::vector<Event>& events) {
    std::string all;
    const auto line = [&all](const std::string& text) { all += (all.empty() ? "" : ",\n") + text; };
    const auto name = [&](const char* what, int rank, std::size_t track, const std::string& value) {
      line(std::string("{\"ph\":\"M\",\"name\":\"") + what + "\",\"pid\":" + std::to_string(rank) +
           ",\"tid\":" + std::to_string(track) + ",\"args\":{" + value + "}}");
    };
    for (; rows_said_ < rows_.size(); ++rows_said_) {
      const auto& [rank, text] = rows_[rows_said_];
      if (ranks_said_.insert(rank).second) {
        name("process_name", rank, 0, "\"name\":\"rank " + std::to_string(rank) + "\"");
        name("process_sort_index", rank, 0, "\"sort_index\":" + std::to_string(rank));
      }
      name("thread_name", rank, rows_said_ + 1, "\"name\":" + json_text(text));
    }
    for (const Event& event : events) line(std::visit([&](const auto& what) { return text(what); }, event));
    return all;
  }

  const Time made_ = Clock::now();
  std::atomic<bool> lost_{false};

  // While one thread writes, others record.
  std::mutex file_mutex_;
  std::string file_;
  std::string job_;
  std::atomic<bool> recording_{false};
  Moment began_;
  int parts_ = 0;
  std::vector<Row> rows_;  // tracks, as they were when it began to write
  std::size_t rows_said_ = 0;
  std::set<int> ranks_said_;

  std::mutex mutex_;
  std::vector<Row> tracks_;
  std::map<std::pair<int, std::string>, int> numbers_;
  std::map<std::string, Track> named_;
  std::set<std::string, std::less<>> texts_;
  std::map<std::string, int> counts_;
  std::vector<std::unique_ptr<Events>> events_;
  std::vector<Events*> unused_;
};

OnePerProcess<Recorder> g_recorder;

/// What the recorder knows of a thread.
struct Thread {
  Origin origin;
  Events* events = nullptr;
  Track own = kNone;
  Track now = kNone;
  std::optional<int> rank;
};

struct ThreadUntilItEnds {
  ThreadUntilItEnds() = default;
  ThreadUntilItEnds(const ThreadUntilItEnds&) = delete;
  ThreadUntilItEnds& operator=(const ThreadUntilItEnds&) = delete;
  ~ThreadUntilItEnds() {
    if (known.events != nullptr && known.origin.here()) g_recorder->give_back(known.events);
  }
  Thread known;
};

/// The calling one.
Thread& thread() {
  static thread_local ThreadUntilItEnds mine;
  if (!mine.known.origin.here()) mine.known = Thread();
  return mine.known;
}

void record(const Event& event, Time begin) noexcept {
  if (!g_recorder->recording() || !g_recorder->knows(begin)) return;
  try {
    Thread& here = thread();
    if (here.events == nullptr) here.events = g_recorder->take_events();
    here.events->add(event);
  } catch (const std::bad_alloc&) {  // a timeline is not worth a program
    g_recorder->give_up();
  }
}

// Set before anybody hears of slices.
std::once_flag g_told_whom;
Listener g_listener;

/// "put halo, to 1", cut off where it is long.
std::array<char, 160> said(const char* name, const char* channel) noexcept {
  std::array<char, 160> text{};
  auto* end = text.begin();
  for (const std::string_view part :
       {std::string_view(name), std::string_view(*channel == '\0' ? "" : " "), std::string_view(channel)})
    end = std::copy_n(part.begin(), std::min<std::ptrdiff_t>(std::ssize(part), text.end() - 1 - end), end);
  return text;
}

}  // namespace

void start(const std::string& file, const std::string& job) { g_recorder->start(file, job); }

bool recording() noexcept { return g_recorder->recording(); }

void tell(const Listener& listener) {
  std::call_once(g_told_whom, [&] {
    g_listener = listener;
    heard.store(true);
  });
}

void tell_begin(const char* name, const char* channel) noexcept {
  if (g_listener.begin != nullptr) g_listener.begin(said(name, channel).data());
}

void tell_end() noexcept {
  if (g_listener.end != nullptr) g_listener.end();
}

void flush() noexcept {
  try {
    g_recorder->flush();
  } catch (const std::exception& reason) {
    if (g_recorder->lose()) log(LogLevel::error, std::string("the timeline lacks events: ") + reason.what());
  }
}

bool lost() noexcept { return g_recorder->lost(); }

Track new_track(int rank, std::string_view name) { return g_recorder->new_track(rank, name); }

Track track_of(std::string_view key, std::string_view name) { return g_recorder->track_of(key, rank(), name); }

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
  if (here.now == track_) here.now = before_;  // not in a child that was forked meanwhile
}

const char* kept(std::string_view text) { return g_recorder->kept(text); }

int count(std::string_view text) { return g_recorder->count(text); }

void add(const Slice& slice) noexcept { record(slice, slice.begin); }

void add(const ArrowAt& arrow, const Slice& slice) noexcept {
  record(More{arrow, slice.track, slice.begin, slice.end}, slice.begin);
}

/// Both ends come to the same; numbers of 52 bits survive every reader.
ArrowAt arrow_of(Arrow arrow, const Channel& channel, std::uint64_t epoch) noexcept {
  return {arrow, (channel.arrows + epoch) & ((std::uint64_t{1} << 52) - 1)};
}

void mark(const char* name, const Channel& channel, std::string_view why) noexcept {
  if (g_listener.mark != nullptr) g_listener.mark(said(name, channel.label).data());
  try {
    const Time now = Clock::now();
    record(Mark{name, channel.label, kept(why), current(), now}, now);
  } catch (const std::bad_alloc&) {
    g_recorder->give_up();
  }
}

void Span::begin(Track track, const char* name, const Channel& channel, std::uint64_t epoch, std::uint64_t bytes,
                 Arrow arrow) {
  told_.emplace(name, channel.label);
  slice_.emplace(Slice{name,
                       channel.label,
                       epoch,
                       bytes,
                       arrow_of(arrow, channel, epoch),
                       track == kNone ? current() : track,
                       Clock::now(),
                       {}});
}

void Span::end() noexcept {
  slice_->end = Clock::now();
  record(*slice_, slice_->begin);
}

}  // namespace sluice::base::trace
