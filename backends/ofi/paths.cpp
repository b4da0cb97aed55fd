// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/paths.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/log.hpp"

namespace sluice::backends::ofi {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kForDescriptors = seconds(5);
constexpr auto kTryAgain = milliseconds(100);  // after a probe that has failed, or without descriptors
constexpr const char* kNotOpened = "it could not be opened there";
constexpr auto kLookForProbes = milliseconds(1);  // while others wait for the first probes

}  // namespace

Paths::Paths(Station& station, Destination& there, Address ours, Address theirs, bool here, std::size_t near)
    : station_(station), there_(there), ours_(std::move(ours)), theirs_(std::move(theirs)), near_(near),
      patience_(std::clamp<Clock::duration>(station.patience, seconds(2), std::chrono::hours(24))),
      step_(std::min<Clock::duration>(patience_ / 16, milliseconds(500))), grades_(grades_of(ours_, theirs_, here)) {
  const std::lock_guard lock(station_.mutex);
  there_.routes.resize(theirs_.endpoints.size());
}

Paths::~Paths() {
  const std::lock_guard lock(station_.mutex);
  for (Path& path : paths_) give_up(path);
  for (const auto& rail : station_.rails) rail->forget(*this);
}

void Paths::lost() {
  const std::lock_guard lock(station_.mutex);
  for (Path& path : paths_) give_up(path);
  stage_ = Stage::lost;
}

/// Leaves a probe that is under way to the station.
void Paths::give_up(Path& path) {
  if (path.probe == nullptr || !path.probe->posted) return;
  path.route->rail->give_up(*path.probe);
  station_.orphans.push_back(std::move(path.probe));
}

base::Clock::time_point Paths::tend(Clock::time_point now, std::vector<Blob>& words) {
  const std::lock_guard lock(station_.mutex);
  if (stage_ == Stage::lost) return Clock::time_point::max();
  if (!std::exchange(introduced_, true)) words.push_back(say_grades());
  if (std::exchange(asked_by_peer_, false)) words.push_back(say_answer());
  if (stage_ == Stage::begun) return Clock::time_point::max();
  open_all(now, words);
  if (stage_ == Stage::settled) probe_again(now);
  post_probes(now);
  count_time(now, words);
  judge(words);
  if (stage_ == Stage::told && arrived_there_) settle(*arrived_there_);
  return next_call(now);
}

base::Clock::time_point Paths::next_call(Clock::time_point now) const {
  if (!opened_) return now + kTryAgain;
  if (stage_ == Stage::trying) return now + kLookForProbes;
  if (stage_ != Stage::settled || std::ranges::any_of(paths_, &Path::waits)) return now + step_ / 4;
  auto next = Clock::time_point::max();
  for (const Path& path : paths_) {
    if (!path.dead) next = std::min(next, path.next_probe);
  }
  return std::max(next, now + step_);
}

/// Once in a while, as long as anything is open.
void Paths::probe_again(Clock::time_point now) {
  if (there_.movers.empty()) return;
  for (Path& path : paths_) {
    if (path.dead || path.waits() || now < path.next_probe) continue;
    path.next_probe = now + patience_ / 8;
    path.due = true;
    path.arrived = false;
    path.waited = path.granted = {};
  }
}

void Paths::post_probes(Clock::time_point now) {
  if (!known_there_) return;
  for (Path& path : paths_) {
    if (path.waits() && path.due && now >= path.next) post(path, now);
  }
}

void Paths::post(Path& path, Clock::time_point now) {
  Rail& rail = *path.route->rail;
  const Registration& from = rail.flushes();
  const Remote to{path.route->from, path.route->address, path.route->flushes, path.route->flushes_key};
  try {
    const Posted posted = rail.write({from.data, from.bytes, from.desc()}, to, {}, true, *path.probe);
    path.due = posted == Posted::busy;
    path.arrived = posted == Posted::over;
  } catch (const std::runtime_error& reason) {
    path.why = reason.what();
    path.next = now + kTryAgain;
  }
}

void Paths::ended(Operation& operation, const std::string& why_not) {
  const auto path = std::ranges::find_if(paths_, [&](const Path& one) { return one.probe.get() == &operation; });
  path->arrived = why_not.empty();
  path->due = !path->arrived;
  path->why = why_not;
  path->next = Clock::now() + kTryAgain;
}

/// A peer that was silent gets that time once more, up to a limit: the network sends again what was lost meanwhile,
/// after longer and longer pauses.
void Paths::count_time(Clock::time_point now, std::vector<Blob>& words) {
  if (std::ranges::none_of(paths_, &Path::waits)) {
    asked_.reset();
    counted_ = now;
  } else if (!asked_ && now - counted_ >= step_) {
    words.push_back({std::byte{static_cast<std::uint8_t>(Word::question)}});
    asked_ = now;
    answered_ = false;
  } else if (asked_ && answered_) {
    const Clock::duration late = std::max(now - *asked_ - step_, Clock::duration());
    for (Path& path : paths_) {
      const Clock::duration grant = std::min(late, 2 * patience_ - path.granted);
      path.granted += grant;
      path.waited += step_ - grant + std::min(late - grant, patience_ / 8);
    }
    asked_.reset();
    counted_ = now;
  }
}

void Paths::judge(std::vector<Blob>& words) {
  constexpr auto kAny = seconds(15);
  constexpr auto kOthers = seconds(2);  // once one has arrived, the others need not be waited for as long
  Clock::duration limit = patience_ * 5 / 8 + time_for_data();
  if (stage_ != Stage::settled) {
    const bool any = std::ranges::any_of(paths_, &Path::arrived);
    limit = any ? std::min<Clock::duration>(patience_ / 4, kOthers) : std::min<Clock::duration>(patience_ / 2, kAny);
  }
  for (Path& path : paths_) {
    if (path.waits() && path.waited >= limit) end(path);
  }
  if (stage_ != Stage::trying || std::ranges::any_of(paths_, &Path::waits)) return;
  words.push_back(say_bits(Word::arrived, [](const Path& path) { return path.arrived; }));
  stage_ = Stage::told;
}

/// Time that the data under way may take on a slow network.
base::Clock::duration Paths::time_for_data() const {
  constexpr std::uint64_t kBytesPerSecond = 8 << 20;
  return milliseconds(1000 * (bytes_here() + bytes_there_) / kBytesPerSecond);
}

std::uint64_t Paths::bytes_here() const {
  std::uint64_t bytes = 0;
  for (const Mover* const mover : there_.movers) bytes += mover->bytes_under_way();
  return bytes;
}

/// The path carries nothing, or nothing any more.
void Paths::end(Path& path) {
  path.dead = true;
  give_up(path);
  if (stage_ != Stage::settled) return;
  const std::string what =
      "the network path from " + text_of(path) + " carries nothing any more: " + reason(path) + " (" + kChosenBy + ")";
  base::log(base::LogLevel::warn, what);
  for (Mover* const mover : there_.movers) mover->path_lost(*path.route, what);
  path.route->rail = nullptr;
  find_endpoints();
}

/// Keeps the paths whose probes have arrived at both ends.
void Paths::settle(std::uint8_t arrived_there) {
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    Path& path = paths_[i];
    if (path.arrived && (arrived_there >> i & 1) == 0) path.why = "its answers do not arrive there";
    path.dead |= (arrived_there >> i & 1) == 0;
    path.next_probe = Clock::now() + patience_ / 8;
    if (!path.dead) continue;
    if (station_.left_out.insert(ours_.endpoints[path.pair.ours].device).second) {
      base::log(base::LogLevel::warn,
                "not used: the network path from " + text_of(path) + ": " + reason(path) + " (" + kChosenBy + ")");
    }
    if (path.route != nullptr) path.route->rail = nullptr;
  }
  stage_ = Stage::settled;
  find_endpoints();
}

void Paths::find_endpoints() {
  endpoints_ = {};
  for (const Path& path : paths_) {
    if (!path.dead) endpoints_.numbers.push_back(path.pair.ours);
  }
  std::ranges::sort(endpoints_.numbers);
  const auto near = std::ranges::count_if(endpoints_.numbers, [&](std::size_t number) { return number < near_; });
  endpoints_.near = near == 0 ? endpoints_.numbers.size() : static_cast<std::size_t>(near);
}

Blob Paths::say_answer() const {
  Blob word = bytes_of(bytes_here());
  word.insert(word.begin(), std::byte{static_cast<std::uint8_t>(Word::answer)});
  return word;
}

Blob Paths::say_grades() const {
  Blob word{std::byte{static_cast<std::uint8_t>(Word::grades)}};
  for (const Grade grade : grades_.all) word.push_back(std::byte{static_cast<std::uint8_t>(grade)});
  return word;
}

/// Descriptors that are lacking may be closed meanwhile.
void Paths::open_all(Clock::time_point now, std::vector<Blob>& words) {
  if (!opened_) {
    opened_ = true;
    for (Path& path : paths_) {
      if (!path.dead && path.route->from == nullptr) opened_ &= open(path, now);
    }
    if (!opened_) return;
    words.push_back(say_opened());
  }
  if (!names_there_) return;
  add(*names_there_);
  names_there_.reset();
  words.push_back(say_bits(Word::known, [](const Path& path) { return !path.dead; }));
}

/// False: later, since descriptors are lacking.
bool Paths::open(Path& path, Clock::time_point now) {
  constexpr std::size_t kOfConnection = 4;  // with tcp: two sockets, and two more while both ends connect at once
  Rail& rail = *path.route->rail;
  try {
    path.connection = Expected(rail.wait_fd() >= 0 ? kOfConnection : 1);
  } catch (const std::runtime_error& reason) {
    path.why = reason.what();
    path.dead = now >= open_by_;
    return path.dead;
  }
  try {
    path.why.clear();
    path.route->from = rail.endpoint_to_peer();
    path.route->address = rail.add(theirs_.endpoints[path.pair.theirs].name);
  } catch (const std::runtime_error& reason) {
    path.fail(reason.what());
  }
  return true;
}

/// For each path the name of the endpoint that will write to the peer, or nothing where that could not be opened.
Blob Paths::say_opened() const {
  Blob word{std::byte{static_cast<std::uint8_t>(Word::opened)}};
  for (const Path& path : paths_)
    append(word, path.dead ? Blob() : station_.rails[path.pair.ours]->name(path.route->from));
  return word;
}

void Paths::hear_opened(const Blob& word) {
  names_there_ = pieces(word, 1);
  if (names_there_->size() != paths_.size()) throw std::runtime_error("a word of the wrong size");
}

/// libfabric's shm opens the file of an endpoint when it is added, or when that first writes, and then crashes where it
/// cannot: without a free descriptor, or when its owner has gone.
void Paths::add(const std::vector<Blob>& names) {
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    Path& path = paths_[i];
    if (path.dead) continue;
    try {
      if (names[i].empty()) throw std::runtime_error(kNotOpened);
      if (names[i] != theirs_.endpoints[path.pair.theirs].name) path.route->rail->add(names[i]);
    } catch (const std::runtime_error& reason) {
      path.fail(reason.what());
    }
  }
}

/// One bit a path.
Blob Paths::say_bits(Word kind, bool (*is)(const Path& path)) const {
  std::uint8_t bits = 0;
  for (std::size_t i = 0; i < paths_.size(); ++i) bits |= static_cast<std::uint8_t>(is(paths_[i]) << i);
  return {std::byte{static_cast<std::uint8_t>(kind)}, std::byte{bits}};
}

void Paths::hear_known(std::uint8_t known_there) {
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    Path& path = paths_[i];
    if (!path.dead && (known_there >> i & 1) == 0) path.fail(kNotOpened);
  }
  known_there_ = true;
}

void Paths::heard(const Blob& word) {
  const std::lock_guard lock(station_.mutex);
  switch (static_cast<Word>(word.at(0))) {
    case Word::grades: return hear_grades(word);
    case Word::opened: return hear_opened(word);
    case Word::known: return hear_known(std::to_integer<std::uint8_t>(word.back()));
    case Word::arrived: arrived_there_ = std::to_integer<std::uint8_t>(word.back()); return;
    case Word::question: asked_by_peer_ = true; return;
    case Word::answer:
      bytes_there_ = value_of<std::uint64_t>({word.begin() + 1, word.end()});
      answered_ = true;
      return;
  }
}

void Paths::hear_grades(const Blob& word) {
  Grades from_there{ours_.endpoints.size(), {}};
  for (std::size_t i = 1; i < word.size(); ++i) from_there.all.push_back(static_cast<Grade>(word[i]));
  if (from_there.all.size() != grades_.all.size()) throw std::runtime_error("a word of the wrong size");
  const bool first = pack(ours_) < pack(theirs_);
  for (const Pair& pair : pair_rails(ours_, theirs_, grades_, from_there, first)) {
    Path& path = paths_.emplace_back();
    path.pair = pair;
    path.probe = std::make_unique<Operation>();
    path.probe->owner = this;
    station_.rails[pair.ours]->know(*path.probe);
    path.route = &there_.routes[pair.theirs];
    const EndpointAddress& there = theirs_.endpoints[pair.theirs];
    *path.route = {
        station_.rails[pair.ours].get(), nullptr, FI_ADDR_UNSPEC, there.flushes, there.flushes_key, text_of(path)};
  }
  counted_ = Clock::now();
  open_by_ = counted_ + std::min<Clock::duration>(patience_ / 4, kForDescriptors);
  if (stage_ == Stage::begun) stage_ = Stage::trying;
}

std::string Paths::text_of(const Path& path) const {
  return ours_.endpoints[path.pair.ours].text() + " to " + theirs_.endpoints[path.pair.theirs].text();
}

std::string Paths::reason(const Path& path) const { return path.why.empty() ? "no answer" : path.why; }

std::optional<std::string> Paths::verdict() const {
  if (stage_ < Stage::settled) return std::nullopt;
  const std::lock_guard lock(station_.mutex);
  if (!endpoints_.numbers.empty()) return "";
  std::string why;
  for (const Path& path : paths_) why += (why.empty() ? "" : "; ") + ("from " + text_of(path) + ": " + reason(path));
  if (!why.empty()) return "no network path carries anything: " + why + " (" + kChosenBy + ")";
  const auto devices = [](const Address& address) {
    std::string text;
    for (const EndpointAddress& endpoint : address.endpoints) text += (text.empty() ? "" : ", ") + endpoint.text();
    return text;
  };
  return "no route leads from a network device here (" + devices(ours_) + ") to one there (" + devices(theirs_) +
         ") and back (" + kChosenBy + ")";
}

}  // namespace sluice::backends::ofi
