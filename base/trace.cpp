// SPDX-License-Identifier: Apache-2.0
#include "base/trace.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "base/fd.hpp"
#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/process.hpp"
#include "base/text.hpp"

namespace sluice::base::trace {
namespace {

using Nanoseconds = std::chrono::nanoseconds;

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

/// A point of time by both clocks, and where the steady one is valid.
struct Moment {
  std::string of_boot;
  Nanoseconds steady{};
  Nanoseconds since_1970{};

  static std::string boot() {
    const std::string known = this_host().boot.data();
    return known.empty() ? "unknown" : known;
  }
  static Moment now() {
    return {boot(), Clock::now().time_since_epoch(), std::chrono::system_clock::now().time_since_epoch()};
  }
  /// What our steady clock showed then.
  Nanoseconds here() const {
    const Moment here = now();
    return of_boot == here.of_boot ? steady : since_1970 - (here.since_1970 - here.steady);
  }
};

[[noreturn]] void refuse(const std::string& file) {
  throw std::invalid_argument("environment variable SLUICE_TRACE=" + file + ": " +
                              std::generic_category().message(errno));
}

Fd open_file(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  struct stat what {};
  if (!fd || ::fstat(fd.get(), &what) != 0) refuse(path);
  if (!S_ISREG(what.st_mode)) throw std::invalid_argument("environment variable SLUICE_TRACE=" + path + ": no file");
  return fd;
}

std::string microseconds(Nanoseconds time) { return decimal(static_cast<double>(time.count()) / 1e3, 3); }

/// A timeline of one job, which one process writes to at a time. It is whole, and valid JSON, after each `append`, also
/// after one that fails. After one that was killed the next one removes half a line.
class File {
 public:
  /// Empties a file of another job. @param began  the origin of times in a file that is new
  File(const std::string& path, const std::string& job, const Moment& began) : path_(path), fd_(open_file(path)) {
    if (!is_of(job)) begin(job, began);
  }

  /// The origin of its times.
  const Moment& began() const noexcept { return began_; }

  /// @param events  of lines that end with ",\n", but for the last
  void append(const std::string& events) const {
    if (events.empty()) return;
    const auto end = end_of_events();
    if (::ftruncate(fd_.get(), end) != 0) refuse();
    try {
      write_at(end, (end > head_ ? ",\n" : "") + events + std::string(kLast));
    } catch (...) {
      // Its last line was there before: there is room for it.
      write_at(end, kLast);
      static_cast<void>(::ftruncate(fd_.get(), end + std::ssize(kLast)));
      throw;
    }
  }

  /// All events in it.
  std::string events() const {
    std::string text(static_cast<std::size_t>(end_of_events() - head_), ' ');
    for (std::size_t got = 0; got < text.size();) {
      const auto more = ::pread(fd_.get(), &text[got], text.size() - got, head_ + static_cast<off_t>(got));
      if (more < 0 && errno != EINTR) refuse();
      if (more == 0) text.resize(got);
      got += static_cast<std::size_t>(std::max<ssize_t>(more, 0));
    }
    return text;
  }

 private:
  static constexpr std::string_view kLast = "\n]}\n";

  [[noreturn]] void refuse() const { trace::refuse(path_); }

  bool is_of(const std::string& job) {
    std::array<char, 512> head{};
    const auto got = ::pread(fd_.get(), head.data(), head.size() - 1, 0);
    if (got < 0) refuse();
    std::array<char, 64> its_job{};
    std::array<char, 64> boot{};
    long long steady = 0;
    long long since_1970 = 0;
    int length = 0;
    const int read = std::sscanf(head.data(), kHead, its_job.data(), boot.data(), &steady, &since_1970, &length);
    began_ = {boot.data(), Nanoseconds(steady), Nanoseconds(since_1970)};
    head_ = length;
    return read == 4 && job == its_job.data();
  }

  /// Behind the last whole line of them.
  off_t end_of_events() const {
    off_t end = ::lseek(fd_.get(), -static_cast<off_t>(kLast.size()), SEEK_END);
    std::string last(kLast.size(), ' ');
    if (end >= head_ && ::pread(fd_.get(), last.data(), last.size(), end) == static_cast<ssize_t>(last.size()) &&
        last == kLast)
      return end;
    char byte = ' ';
    for (end = ::lseek(fd_.get(), 0, SEEK_END); end > head_; --end) {
      if (::pread(fd_.get(), &byte, 1, end) == 1 && byte == '\n') break;
    }
    // Of a line that was followed by another the comma goes.
    if (end > head_ && ::pread(fd_.get(), &byte, 1, end - 1) == 1 && byte == ',') --end;
    return std::max(end, head_);
  }

  void begin(const std::string& job, const Moment& began) {
    began_ = began;
    const std::string head = R"({"displayTimeUnit":"ns","otherData":{"job":")" + job + R"(","boot":")" +
                             began_.of_boot + R"(","steady_ns":")" + std::to_string(began_.steady.count()) +
                             R"(","unix_ns":")" + std::to_string(began_.since_1970.count()) + R"("},"traceEvents":[)";
    head_ = std::ssize(head);
    if (::ftruncate(fd_.get(), 0) != 0) refuse();
    write_at(0, head + std::string(kLast));
  }

  void write_at(off_t place, std::string_view text) const {
    if (::lseek(fd_.get(), place, SEEK_SET) < 0) refuse();
    write_all(fd_.get(), text, path_);
  }

  // The line that `begin` writes.
  static constexpr const char* kHead =
      R"({"displayTimeUnit":"ns","otherData":{"job":"%63[^"]","boot":"%63[^"]","steady_ns":"%lld","unix_ns":"%lld"},"traceEvents":[%n)";

  std::string path_;
  Fd fd_;
  Moment began_;
  off_t head_ = 0;  // where the events begin
};

/// Adds `by` to the time of each event. Quotes in names are escaped, so that "ts": is found nowhere else.
std::string later(const std::string& events, Nanoseconds by) {
  static constexpr std::string_view kTime = "\"ts\":";
  std::string all;
  std::size_t done = 0;
  for (std::size_t at = 0; (at = events.find(kTime, done)) != std::string::npos;) {
    all.append(events, done, at + kTime.size() - done);
    std::string digits;  // three of them behind the point
    for (done = at + kTime.size(); done < events.size() && events[done] != ','; ++done) {
      if (events[done] != '.') digits += events[done];
    }
    std::int64_t nanoseconds = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), nanoseconds);
    all += microseconds(Nanoseconds(nanoseconds) + by);
  }
  return all.append(events, done);
}

/// Processes of a job write timelines of their own into a folder beside the file, and one process at a time merges
/// those that are there. Locks of the file system are not used: on networks they may be missing, or do nothing. The
/// process that creates the file `merging` merges.
///
/// Every part is merged: a process that cannot create `merging` has put its part there before, and the one that removes
/// it looks for parts again after that.
class Parts {
 public:
  Parts(const std::string& file, const std::string& job)
      : file_(file), job_(job), folder_(file + '.' + job + ".parts"), merging_(folder_ / "merging") {}

  void add(const std::string& name, const Moment& began, const std::string& events) const {
    const std::filesystem::path unready = folder_ / ('.' + name);
    // The process that merged the last part removes the folder.
    while (::mkdir(folder_.c_str(), 0777) == 0 || errno == EEXIST) {
      if (Fd(::open(unready.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666))) {
        File(unready, job_, began).append(events);
        if (::rename(unready.c_str(), (folder_ / name).c_str()) != 0) break;
        return merge();
      }
      if (errno != ENOENT) break;
    }
    refuse(file_);
  }

  /// Returns when no part is left, or another process is about to merge those that are.
  void merge() const {
    while (!ready().empty() && Fd(::open(merging_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666))) {
      const Merging here{*this};
      for (auto parts = ready(); !parts.empty(); parts = ready()) {
        for (const auto& part : parts) merge(part);
      }
    }
  }

  /// Merges parts of processes that were killed.
  /// @param alone  no process of the job is left, so that `merging` is of one that was killed
  /// @throws std::runtime_error if parts are left
  void merge_the_rest(bool alone) const {
    if (alone) ::unlink(merging_.c_str());
    merge();
    if (!ready().empty()) throw std::runtime_error("parts of it are left in " + folder_.string());
    if (alone) std::filesystem::remove_all(folder_);  // with what was being written
  }

 private:
  /// While it lives, this process merges.
  struct Merging {
    const Parts& parts;
    ~Merging() {
      ::unlink(parts.merging_.c_str());
      ::rmdir(parts.folder_.c_str());
    }
  };

  std::vector<std::filesystem::path> ready() const {
    std::vector<std::filesystem::path> all;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder_, none)) {
      const auto name = entry.path().filename().string();
      if (entry.path() != merging_ && name.front() != '.') all.push_back(entry.path());
    }
    std::ranges::sort(all);
    return all;
  }

  void merge(const std::filesystem::path& path) const {
    const File part(path, job_, {});
    // Ranks begin at about the same time, in any order: none began before the file, as times below 0 are not shown.
    constexpr Nanoseconds kBefore = std::chrono::hours(24);
    const Moment& began = part.began();
    const File whole(file_, job_, {began.of_boot, began.steady - kBefore, began.since_1970 - kBefore});
    whole.append(later(part.events(), began.here() - whole.began().here()));
    if (::unlink(path.c_str()) != 0) refuse(path);
  }

  std::string file_;
  std::string job_;
  std::filesystem::path folder_;
  std::filesystem::path merging_;
};

// A child of fork has a timeline of its own, beside that of its parent, whose job and tracks are others.
std::atomic<bool> g_recorded{false};  // here, or in a parent

/// All that the process has recorded. It is never destroyed: threads may outlive main.
class Recorder {
 public:
  void start(const std::string& file, const std::string& job) {
    const std::lock_guard lock(file_mutex_);
    if (!file_.empty()) return;
    const std::string name = g_recorded.exchange(true) ? file + "." + std::to_string(::getpid()) : file;
    check(name);
    const std::string whole = std::filesystem::absolute(name);  // a program may change its folder
    began_ = Moment::now();
    Parts(whole, job).add(part_name(), began_, "");
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
    if (!events.empty()) Parts(file_, job_).add(part_name(), began_, text_of(events));
  }

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

  /// The number of the process too, as children of fork have their parent's token.
  std::string part_name() {
    return hexadecimal(process_token(), 16) + '.' + std::to_string(::getpid()) + '.' + std::to_string(++parts_);
  }

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

void record(const Event& event) noexcept {
  if (!g_recorder->recording()) return;
  try {
    Thread& here = thread();
    if (here.events == nullptr) here.events = g_recorder->take_events();
    here.events->add(event);
  } catch (const std::bad_alloc&) {  // a timeline is not worth a program
    g_recorder->give_up();
  }
}

std::atomic<bool> g_lost{false};

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

void check(const std::string& file) {
  if (file.empty()) return;
  open_file(file);
  const auto folder = std::filesystem::absolute(file).parent_path();  // where the parts are
  if (::access(folder.c_str(), W_OK | X_OK) != 0) refuse(file);
}

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
    if (!g_lost.exchange(true)) log(LogLevel::error, std::string("the timeline lacks events: ") + reason.what());
  }
}

bool lost() noexcept { return g_lost.load(); }

void merge_the_rest(const std::string& file, const std::string& job, bool alone) {
  Parts(file, job).merge_the_rest(alone);
}

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

void OnTrack::enter(Track track) noexcept { before_ = std::exchange(thread().now, track); }

void OnTrack::leave() const noexcept { thread().now = before_; }

const char* kept(std::string_view text) { return g_recorder->kept(text); }

int count(std::string_view text) { return g_recorder->count(text); }

void add(const Slice& slice) noexcept { record(slice); }

void add(const ArrowAt& arrow, const Slice& slice) noexcept {
  record(More{arrow, slice.track, slice.begin, slice.end});
}

/// Both ends come to the same; numbers of 52 bits survive every reader.
ArrowAt arrow_of(Arrow arrow, const Channel& channel, std::uint64_t epoch) noexcept {
  return {arrow, (channel.arrows + epoch) & ((std::uint64_t{1} << 52) - 1)};
}

void mark(const char* name, const Channel& channel, std::string_view why) noexcept {
  if (g_listener.mark != nullptr) g_listener.mark(said(name, channel.label).data());
  try {
    record(Mark{name, channel.label, kept(why), current(), Clock::now()});
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
  record(*slice_);
}

}  // namespace sluice::base::trace
