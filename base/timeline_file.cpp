// SPDX-License-Identifier: Apache-2.0
#include "base/timeline_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "base/log.hpp"
#include "base/process.hpp"
#include "base/slice_file.hpp"
#include "base/text.hpp"
#include "base/trace_text.hpp"
#include "base/words.hpp"

namespace sluice::base::trace {
namespace {

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw std::invalid_argument("environment variable SLUICE_TRACE=" + file + ": " + why);
}

Fd open_to_write(const std::string& path) { return Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)); }

/// Creates a file. Returns an empty Fd if another process has created it.
Fd create(const std::string& path) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  // ENOENT: another process has merged all, and removed the folder.
  if (!fd && errno != EEXIST && errno != ENOENT) throw_errno("cannot create " + path);
  return fd;
}

/// Returns the text of a file; "" if there is none.
std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A timeline of one job, which one process writes at a time. Its head tells the end of the events, and the part that
/// was added last. So nothing is lost or added twice if a process is killed while it adds a part: the next process adds
/// the part again at the same place, or finds that it was added. The file is valid JSON after each `append`, even after
/// a failed one.
class File {
 public:
  /// @param began  the origin of times in a new file. A file of another job is emptied.
  /// @throws std::runtime_error if the file is of another job and `began` is empty: the file is only read
  File(Fd fd, std::string path, const std::string& job, const std::optional<Moment>& began = {})
      : path_(std::move(path)), fd_(std::move(fd)) {
    if (!fd_) throw_errno("cannot open " + path_);
    if (is_of(job)) return;
    if (!began) throw std::runtime_error(path_ + " is no part of the timeline");
    head_ = {job, *began};
    if (::ftruncate(fd_.get(), 0) != 0) throw_errno("cannot write to " + path_);
    write_head();
    end_with("");
  }

  /// Returns the origin of its times.
  const Moment& began() const noexcept { return head_.began; }

  /// Returns the name of the part that was added last.
  const std::string& last_part() const noexcept { return head_.part; }

  /// Returns once the events are on disk.
  void append(const std::string& events, const std::string& part) {
    const Head before = head_;
    try {
      if (!events.empty()) end_with((head_.end > kHeadSize ? ",\n" : "") + events);
      head_.part = part;
      write_head();
      // Some network file systems report only now that there is no room.
      if (::fsync(fd_.get()) != 0) throw_errno("cannot write to " + path_);
    } catch (...) {
      head_ = before;
      write_head();
      end_with("");  // there was room for it before
      throw;
    }
  }

  /// Returns all events.
  std::string events() const {
    std::string text(static_cast<std::size_t>(head_.end - kHeadSize), ' ');
    for (std::size_t got = 0; got < text.size();) {
      const auto more = ::pread(fd_.get(), &text[got], text.size() - got, kHeadSize + static_cast<off_t>(got));
      if (more < 0 && errno != EINTR) throw_errno("cannot read " + path_);
      if (more == 0) throw std::runtime_error(path_ + " is cut off");
      got += static_cast<std::size_t>(std::max<ssize_t>(more, 0));
    }
    return text;
  }

 private:
  static constexpr off_t kHeadSize = 512;  // filled with spaces, so that it can be rewritten in place
  static constexpr std::string_view kLast = "\n]}\n";

  struct Head {
    std::string job;
    Moment began;
    std::string part = "none";  // that was added last
    off_t end = kHeadSize;      // of the events
  };

  bool is_of(const std::string& job) {
    std::array<char, kHeadSize + 1> text{};
    if (::pread(fd_.get(), text.data(), kHeadSize, 0) < 0) throw_errno("cannot read " + path_);
    std::array<char, 64> its_job{};
    std::array<char, 64> boot{};
    std::array<char, 64> part{};
    long long steady = 0;
    long long since_1970 = 0;
    long long end = 0;
    // The line that `write_head` writes.
    const int read = std::sscanf(
        text.data(),
        R"({"displayTimeUnit":"ns","otherData":{"job":"%63[^"]","boot":"%63[^"]","steady_ns":"%lld","unix_ns":"%lld","last_part":"%63[^"]","end":"%lld"},"traceEvents":[)",
        its_job.data(), boot.data(), &steady, &since_1970, part.data(), &end);
    head_ = {its_job.data(), {boot.data(), Nanoseconds(steady), Nanoseconds(since_1970)}, part.data(), end};
    return read == 6 && job == head_.job && end >= kHeadSize;
  }

  void write_head() const {
    const auto& [boot, steady, since_1970] = head_.began;
    std::string text = R"({"displayTimeUnit":"ns","otherData":{"job":")" + head_.job + R"(","boot":")" + boot +
                       R"(","steady_ns":")" + std::to_string(steady.count()) + R"(","unix_ns":")" +
                       std::to_string(since_1970.count()) + R"(","last_part":")" + head_.part + R"(","end":")" +
                       std::to_string(head_.end) + R"("},"traceEvents":[)";
    text.resize(kHeadSize, ' ');
    write_at(0, text);
  }

  /// Adds the text to the events, and removes the rest of the file.
  void end_with(const std::string& text) {
    write_at(head_.end, text + std::string(kLast));
    head_.end += std::ssize(text);
    if (::ftruncate(fd_.get(), head_.end + std::ssize(kLast)) != 0) throw_errno("cannot write to " + path_);
  }

  void write_at(off_t place, std::string_view text) const {
    if (::lseek(fd_.get(), place, SEEK_SET) < 0) throw_errno("cannot write to " + path_);
    write_all(fd_.get(), text, path_);
  }

  std::string path_;
  Fd fd_;
  Head head_;
};

/// Adds `by` to the time of each event. Quotes in names are escaped, so that "ts": is found nowhere else.
std::string later(const std::string& events, Nanoseconds by) {
  static constexpr std::string_view kTime = "\"ts\":";
  std::string all;
  std::size_t done = 0;
  for (std::size_t at = 0; (at = events.find(kTime, done)) != std::string::npos;) {
    all.append(events, done, at + kTime.size() - done);
    double time = 0;  // in microseconds
    const char* const digits = events.data() + at + kTime.size();
    done = static_cast<std::size_t>(std::from_chars(digits, events.data() + events.size(), time).ptr - events.data());
    all += decimal(time + static_cast<double>(by.count()) / 1e3, 3);
  }
  return all.append(events, done);
}

/// True for the name of a part that is not written completely.
bool unready(const std::filesystem::path& path) { return path.filename().string().front() == '.'; }

/// End of the name of a part that is on disk, made of events that a process has left.
constexpr const char* kComplete = ".complete";

bool is_complete(const std::filesystem::path& path) { return path.filename().string().ends_with(kComplete); }

/// True for a file with events whose process has ended.
bool is_left(const std::filesystem::path& path) { return has_events(path) && has_ended(maker_of(path)); }

/// The timeline of a job, and the folder of its parts.
struct Timeline {
  std::string file;
  std::string job;
  std::filesystem::path folder = folder_of_parts(file, job);
  std::filesystem::path merging = folder / "merging";

  /// Returns the paths in the folder, sorted.
  std::vector<std::filesystem::path> left() const {
    std::vector<std::filesystem::path> paths;
    std::error_code error;
    for (std::filesystem::directory_iterator one(folder, error), end; !error && one != end; one.increment(error))
      paths.push_back(one->path());
    // NFS reports ESTALE if another host has removed the folder meanwhile.
    if (error.value() == ENOENT || error.value() == ESTALE) return {};
    if (error) throw std::system_error(error, "cannot read the folder " + folder.string());
    std::ranges::sort(paths);
    return paths;
  }

  void remove_merging_of_killed() const {
    const std::string owner = text_of(merging);
    if (!has_ended(owner)) return;
    // One process at a time: a second process would remove the `merging` of the next owner.
    const std::filesystem::path removing = folder / ".removing";
    if (!create(removing)) return;
    if (text_of(merging) == owner) ::unlink(merging.c_str());
    ::unlink(removing.c_str());
  }

  void add_to_file(std::vector<std::filesystem::path> parts) const {
    const auto open_part = [this](const std::filesystem::path& path) {
      return File(Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), path, job);
    };
    // Ranks begin at about the same time, in any order. Viewers do not show times below 0, so the file begins before
    // all.
    constexpr Nanoseconds kBefore = std::chrono::hours(24);
    const Moment first = open_part(parts.front()).began();
    File whole(open_to_write(file), file, job,
               Moment{first.of_boot, first.steady - kBefore, first.since_1970 - kBefore});
    const auto add = [&](const std::filesystem::path& path) {
      const File part = open_part(path);
      whole.append(later(part.events(), part.began().here() - whole.began().here()), path.filename());
    };
    // A part of this name is in the file already: a process was killed before it removed the part. Remove it before
    // others are added, because the file names only the last part.
    const auto added = std::ranges::find(parts, folder / whole.last_part());
    if (added != parts.end()) {
      std::filesystem::remove(*added);
      parts.erase(added);
    }
    for (const auto& path : parts) {
      add(path);
      std::filesystem::remove(path);
    }
  }

  /// Makes a part of the events that a process has left, unless they are in one. It is written under another name
  /// first: once it has the second, the file of the process is not needed.
  void make_part_of(const std::filesystem::path& events) const {
    const LeftEvents left = read_events(events);
    const std::filesystem::path unfinished = folder / ('.' + left.part);
    const bool published = !left.part.empty() && !std::filesystem::exists(unfinished);
    if (!published && !left.events.empty()) {
      if (left.lost > 0) log_lost(file, left.lost);
      std::set<int> ranks_named;
      std::vector<std::string> lines = lines_of(left.rows, ranks_named);
      for (const Event& event : left.events) lines.push_back(line_of(event, left.rows, left.began.steady));
      const std::filesystem::path hidden = events.string() + ".new";
      std::filesystem::remove(hidden);
      File(open_to_write(hidden), hidden, job, left.began).append(joined(lines), events.filename().string().substr(1));
      std::filesystem::rename(hidden, events.string() + kComplete);
    }
    std::filesystem::remove(events);
  }

  /// Removes the parts that the process was writing, once none of its events are left, which those parts have too.
  void remove_unfinished(const std::string& process) const {
    const auto of_process = [&](const auto& path) { return path.filename().string().starts_with(process); };
    std::vector<std::filesystem::path> all = left();
    std::erase_if(all, [&](const auto& path) { return !of_process(path); });
    if (std::ranges::any_of(all, has_events)) return;
    for (const auto& path : all) {
      const std::string number = path.filename().string().substr(process.size());
      if (number.find_first_not_of("0123456789") == std::string::npos) std::filesystem::remove(path);
    }
  }

  /// Publishes the events that ended processes have left. Called by the process that merges.
  void publish_left() const {
    std::set<std::string> processes;  // the first letters of the names of their files
    for (const auto& path : left()) {
      if (!is_left(path)) continue;
      make_part_of(path);
      const std::string name = path.filename();
      processes.insert(name.substr(0, name.find('.', 1) + 1));
    }
    for (const std::string& process : processes) remove_unfinished(process);
    for (const auto& path : left()) {
      if (!is_complete(path)) continue;
      const std::string events = path.string().substr(0, path.string().size() - std::string_view(kComplete).size());
      std::filesystem::remove(events);
      std::filesystem::rename(path, folder / std::filesystem::path(events).filename().string().substr(1));
    }
  }

  /// Merges until no part is left, or another process is about to merge the rest.
  void merge() const {
    const auto ready = [this] {
      auto paths = left();
      std::erase_if(paths, [this](const auto& path) { return unready(path) || path == merging; });
      return paths;
    };
    const auto waits = [](const auto& path) { return !unready(path) || is_left(path) || is_complete(path); };
    while (std::ranges::any_of(left(), waits)) {
      remove_merging_of_killed();
      Fd owner = create(merging);
      if (!owner) return;
      const std::shared_ptr<void> end(nullptr, [this](void*) {
        ::unlink(merging.c_str());
        ::rmdir(folder.c_str());
      });
      write_all(owner.get(), process_name(), merging.string());
      owner = Fd();  // NFS keeps a file that is removed while it is open, under another name
      publish_left();
      for (auto parts = ready(); !parts.empty(); parts = ready()) add_to_file(parts);
    }
  }
};

}  // namespace

Moment Moment::now() {
  const std::string boot = this_host().boot.data();
  return {boot.empty() ? "unknown" : boot, Clock::now().time_since_epoch(),
          std::chrono::system_clock::now().time_since_epoch()};
}

Nanoseconds Moment::here() const {
  const Moment here = now();
  return of_boot == here.of_boot ? steady : since_1970 - (here.since_1970 - here.steady);
}

std::string microseconds(Nanoseconds time) { return decimal(static_cast<double>(time.count()) / 1e3, 3); }

void check_timeline(const std::string& file) {
  if (file.empty()) return;
  const Fd fd = open_to_write(file);
  struct stat what {};
  if (!fd || ::fstat(fd.get(), &what) != 0) refuse(file, std::generic_category().message(errno));
  if (!S_ISREG(what.st_mode)) refuse(file, "it is no regular file");
  const auto folder = std::filesystem::absolute(file).parent_path();  // the parts are in a folder there
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    refuse(file, "cannot write to its folder " + folder.string() + ": " + std::generic_category().message(errno));
}

std::filesystem::path folder_of_parts(const std::string& file, const std::string& job) {
  return file + '.' + job + ".parts";
}

void log_lost(const std::string& file, std::uint64_t events) {
  log(LogLevel::warn, file + " lacks the first " + std::to_string(events) + " events: of a thread the last " +
                          std::to_string(kMost) + " are kept");
}

Part::Part(const std::string& file, const std::string& job, const std::string& name, const Moment& began,
           const std::string& events)
    : hidden_(folder_of_parts(file, job) / ('.' + name)), ready_(folder_of_parts(file, job) / name) {
  // The process that merges the last part removes the folder, perhaps right after this process has made it.
  constexpr int kTries = 1000;
  Fd fd;
  for (int i = 0; i < kTries && !fd; ++i) {
    if (::mkdir(ready_.parent_path().c_str(), 0777) != 0 && errno != EEXIST) break;
    fd = open_to_write(hidden_);
    if (!fd && errno != ENOENT) break;
  }
  File(std::move(fd), hidden_, job, began).append(events, name);
}

void Part::publish() const {
  if (::rename(hidden_.c_str(), ready_.c_str()) != 0) throw_errno("cannot write to " + ready_.string());
}

void merge_parts(const std::string& file, const std::string& job) { Timeline{file, job}.merge(); }

void merge_the_rest(const std::string& file, const std::string& job) {
  const Timeline timeline{file, job};
  constexpr std::chrono::seconds kPatience{5};
  const auto state = [&] {
    std::error_code none;
    return std::pair(timeline.left(), std::filesystem::file_size(file, none));
  };
  auto seen = state();
  auto until = Clock::now() + kPatience;
  for (;;) {
    timeline.merge();
    auto now = state();
    if (now.first.empty()) break;
    if (now != seen) {
      seen = std::move(now);
      until = Clock::now() + kPatience;
    } else if (Clock::now() > until) {
      throw std::runtime_error(now.first.front().string() + " is left");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::rmdir(timeline.folder.c_str());
}

void finish_timeline(const std::string& file) {
  namespace fs = std::filesystem;
  constexpr std::string_view kEnd = ".parts";
  const std::string begin = fs::path(file).filename().string() + '.';
  std::string job;
  fs::file_time_type newest = fs::file_time_type::min();
  for (const auto& entry : fs::directory_iterator(fs::absolute(file).parent_path())) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(begin) || !name.ends_with(kEnd) || name.size() < begin.size() + kEnd.size()) continue;
    const std::string its_job = name.substr(begin.size(), name.size() - begin.size() - kEnd.size());
    if (its_job.find('.') != std::string::npos || entry.last_write_time() < newest) continue;  // of another file
    newest = entry.last_write_time();
    job = its_job;
  }
  if (job.empty()) throw std::runtime_error("no process has left parts of the timeline " + file);
  merge_the_rest(file, job);
}

}  // namespace sluice::base::trace
