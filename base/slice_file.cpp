// SPDX-License-Identifier: Apache-2.0
#include "base/slice_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "base/fd.hpp"
#include "base/memory_limit.hpp"
#include "base/process.hpp"

namespace sluice::base::trace {
namespace {

namespace fs = std::filesystem;

// The file is sparse: a head, room for kMost events, room for names. What is used lies on the device already: a page
// for which a full device has no room would end the process.
constexpr std::uint64_t kHead = 4096;
constexpr std::uint64_t kEventBytes = kMost * sizeof(Event);
constexpr std::uint64_t kNames = kHead + kEventBytes;
constexpr std::uint64_t kNameBytes = 16 << 20;
constexpr std::uint64_t kFile = kNames + kNameBytes;
constexpr std::uint64_t kFirstRoom = 16 << 10;
static_assert(std::is_trivially_copyable_v<Event> && kEventBytes % 4096 == 0);

constexpr std::string_view kSuffix = ".slices";
constexpr std::uint64_t kVersion = 0x736C696365730001U + (sizeof(Event) << 8U);
constexpr std::uint64_t kText = ~std::uint64_t{0};  // kind of the name of a text; else the rank of a track

/// A name: this, and then the text, padded with zeros.
struct Name {
  std::uint64_t key;
  std::uint64_t kind;
  std::uint64_t bytes;
};

/// A zero ends the text.
constexpr std::uint64_t padded(std::uint64_t bytes) { return (bytes + 8) & ~std::uint64_t{7}; }

std::uint64_t key_of(const char* text) { return std::bit_cast<std::uint64_t>(text); }

template <std::size_t N>
void put_text(std::array<char, N>& to, std::string_view text) {
  to.fill('\0');
  std::ranges::copy(text.substr(0, N - 1), to.begin());
}

/// The process that merges the last part removes the folder, perhaps right after this process has made it.
Fd create_in(const fs::path& folder, const fs::path& file) {
  constexpr int kTries = 1000;
  for (int i = 0; i < kTries; ++i) {
    if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) return {};
    Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd || errno != ENOENT) return fd;
  }
  return {};
}

}  // namespace

/// The begin of the mapped file. Another process reads it after the maker has ended, at whatever line that was: so each
/// count is raised behind what it counts.
struct SliceFile {
  std::atomic<std::uint64_t> version;  // 0: not ready
  std::atomic<std::uint64_t> added;    // events
  std::atomic<std::uint64_t> named;    // bytes of names
  std::atomic<std::uint64_t> in_part;  // 1: `part` is set
  Nanoseconds::rep steady;
  Nanoseconds::rep since_1970;
  std::array<char, 64> boot;
  std::array<char, 128> process;
  std::array<char, 64> part;

  std::byte* at(std::uint64_t offset) noexcept { return reinterpret_cast<std::byte*>(this) + offset; }
  void put(std::uint64_t offset, const void* bytes, std::size_t count) noexcept {
    std::memcpy(at(offset), bytes, count);
  }
};

Events::Events(const fs::path& folder, const std::string& name, const Moment& began)
    : file_(folder / ('.' + name + std::string(kSuffix))) {
  static_assert(sizeof(SliceFile) <= kHead);
  if (!why_no_file(kFile).empty()) return;
  const Fd fd = create_in(folder, file_);
  if (!fd) return;
  void* at = MAP_FAILED;
  if (::ftruncate(fd.get(), static_cast<off_t>(kFile)) == 0 && ::posix_fallocate(fd.get(), 0, kHead) == 0)
    at = ::mmap(nullptr, kFile, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) {
    remove_file();
    return;
  }
  mapped_ = static_cast<SliceFile*>(at);
  mapped_->steady = began.steady.count();
  mapped_->since_1970 = began.since_1970.count();
  put_text(mapped_->boot, began.of_boot);
  put_text(mapped_->process, process_name());
  mapped_->version.store(kVersion, std::memory_order_release);
}

Events::~Events() {
  if (mapped_ != nullptr) ::munmap(mapped_, kFile);
}

bool Events::look_up(std::uint64_t key, std::uint64_t& recent) {
  recent = key;
  return !named_.insert(key).second;
}

/// Takes room on the device, twice as much each time, from `begin` on.
bool Events::take_room(std::uint64_t begin, std::uint64_t& room, std::uint64_t needed, std::uint64_t most) const {
  if (needed <= room) return true;
  if (needed > most) return false;
  const std::uint64_t wanted = std::min(most, std::max({kFirstRoom, 2 * room, needed}));
  const Fd fd(::open(file_.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd || ::posix_fallocate(fd.get(), static_cast<off_t>(begin + room), static_cast<off_t>(wanted - room)) != 0)
    return false;
  room = wanted;
  return true;
}

bool Events::define(std::uint64_t key, std::uint64_t kind, std::string_view text) {
  const std::uint64_t at = mapped_->named.load(std::memory_order_relaxed);
  const Name name{key, kind, text.size()};
  const std::uint64_t end = at + sizeof name + padded(text.size());
  if (!take_room(kNames, name_room_, end, kNameBytes)) return false;
  mapped_->put(kNames + at, &name, sizeof name);
  mapped_->put(kNames + at + sizeof name, text.data(), text.size());
  mapped_->named.store(end, std::memory_order_release);
  return true;
}

void Events::name_text(const char* text) {
  if (mapped_ == nullptr || text == nullptr || named(key_of(text))) return;
  if (!define(key_of(text), kText, text)) move_to_memory();
}

void Events::name_track(Track track, const Row& row) {
  if (!define(track, static_cast<std::uint64_t>(row.first), row.second)) move_to_memory();
}

void Events::keep(const Event& event) {
  for (const char* const text : {event.slice.name, event.slice.channel, event.why}) name_text(text);
  const std::uint64_t place = added_ % kMost;
  if (mapped_ != nullptr && !take_room(kHead, event_room_, (place + 1) * sizeof(Event), kEventBytes)) move_to_memory();
  if (mapped_ != nullptr) {
    mapped_->put(kHead + place * sizeof(Event), &event, sizeof(Event));
    mapped_->added.store(added_ + 1, std::memory_order_release);
  } else if (kept_.size() < kMost) {
    kept_.push_back(event);
  } else {
    kept_[place] = event;
  }
  ++added_;
}

/// The device is full, or too many texts are named.
void Events::move_to_memory() {
  copy_to(kept_);
  if (added_ > kMost)
    std::rotate(kept_.begin(), kept_.end() - static_cast<std::ptrdiff_t>(added_ % kMost), kept_.end());
  ::munmap(std::exchange(mapped_, nullptr), kFile);
  remove_file();
}

std::uint64_t Events::copy_to(std::vector<Event>& all) const {
  const std::uint64_t count = std::min<std::uint64_t>(added_, kMost);
  if (mapped_ == nullptr) {
    all.insert(all.end(), kept_.begin(), kept_.end());
  } else {
    for (std::uint64_t n = added_ - count; n < added_; ++n)
      std::memcpy(&all.emplace_back(), mapped_->at(kHead + n % kMost * sizeof(Event)), sizeof(Event));
  }
  return added_ - count;
}

void Events::are_in(const std::string& part) const noexcept {
  if (mapped_ == nullptr) return;
  put_text(mapped_->part, part);
  mapped_->in_part.store(1, std::memory_order_release);
}

void Events::remove_file() const noexcept { ::unlink(file_.c_str()); }

bool has_events(const fs::path& file) {
  const std::string name = file.filename();
  return name.starts_with('.') && name.ends_with(kSuffix);
}

namespace {

/// A whole file of `Events`, to read.
class Reading {
 public:
  explicit Reading(const fs::path& file) {
    const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0 || status.st_size != static_cast<off_t>(kFile)) return;
    void* const at = ::mmap(nullptr, kFile, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (at != MAP_FAILED) mapped_.reset(static_cast<const SliceFile*>(at), [at](const void*) { ::munmap(at, kFile); });
  }

  /// Null: the file is not ready, or none of these.
  const SliceFile* head() const noexcept {
    return mapped_ != nullptr && mapped_->version.load(std::memory_order_acquire) != 0 ? mapped_.get() : nullptr;
  }
  const std::shared_ptr<const SliceFile>& mapping() const noexcept { return mapped_; }

  template <class T>
  T copy_of(std::uint64_t offset) const {
    T one;
    std::memcpy(&one, address(offset), sizeof one);
    return one;
  }
  const char* address(std::uint64_t offset) const noexcept {
    return reinterpret_cast<const char*>(mapped_.get()) + offset;
  }

 private:
  std::shared_ptr<const SliceFile> mapped_;
};

using Texts = std::unordered_map<std::uint64_t, const char*>;

void read_names(const Reading& file, Texts& texts, Rows& rows) {
  const std::uint64_t end = std::min(file.head()->named.load(), kNameBytes);
  for (std::uint64_t at = 0; at + sizeof(Name) < end;) {
    const auto name = file.copy_of<Name>(kNames + at);
    at += sizeof name;
    if (name.bytes >= end - at) return;
    const char* const text = file.address(kNames + at);
    if (name.kind == kText) {
      texts[name.key] = text;
    } else {
      rows[static_cast<Track>(name.key)] = {static_cast<int>(name.kind), std::string(text, name.bytes)};
    }
    at += padded(name.bytes);
  }
}

}  // namespace

std::string maker_of(const fs::path& file) {
  const Reading reading(file);
  return reading.head() == nullptr ? "" : reading.head()->process.data();
}

LeftEvents read_events(const fs::path& file) {
  const Reading reading(file);
  const SliceFile* const head = reading.head();
  if (head == nullptr || head->version.load() != kVersion)
    throw std::runtime_error(file.string() + " cannot be read by this version of Sluice");
  LeftEvents left{head->process.data(),
                  head->in_part.load() == 0 ? "" : head->part.data(),
                  {head->boot.data(), Nanoseconds(head->steady), Nanoseconds(head->since_1970)},
                  {},
                  {},
                  0,
                  reading.mapping()};
  Texts texts;
  read_names(reading, texts, left.rows);
  const auto own = [&](const char* text) {
    const auto found = texts.find(key_of(text));
    return text == nullptr ? nullptr : found == texts.end() ? "?" : found->second;
  };
  const std::uint64_t added = head->added.load();
  // The process may have been killed while it overwrote the oldest event.
  left.lost = added < kMost ? 0 : added - kMost + 1;
  for (std::uint64_t n = left.lost; n < added; ++n) {
    auto event = reading.copy_of<Event>(kHead + n % kMost * sizeof(Event));
    event.slice.name = own(event.slice.name);
    event.slice.channel = own(event.slice.channel);
    event.why = own(event.why);
    left.events.push_back(event);
  }
  return left;
}

}  // namespace sluice::base::trace
