// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/paths.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "backends/ofi/expected.hpp"
#include "backends/ofi/pairs.hpp"
#include "base/log.hpp"

namespace sluice::backends::ofi {
namespace {

using base::Clock;
using namespace std::chrono_literals;

constexpr auto kForDescriptors = 5s;
constexpr auto kTryAgain = 100ms;  // after a probe that has failed, or without descriptors
constexpr const char* kNotOpened = "it could not be opened there";
constexpr auto kLookForProbes = 1ms;  // while others wait for the first probes

enum class Phase : std::uint8_t {
  begun,    // the peer's grades are not known yet
  trying,   // probes are under way
  told,     // the peer knows which of ours have arrived
  settled,  // both know
  lost
};

enum class Word : std::uint8_t { grades, opened, known, arrived, question, answer };

Blob word_of(Word kind, std::span<const std::byte> rest = {}) {
  Blob word(1 + rest.size(), std::byte{static_cast<std::uint8_t>(kind)});
  std::ranges::copy(rest, word.begin() + 1);
  return word;
}

struct Path {
  Pair pair;
  Route* route = nullptr;
  std::unique_ptr<Operation> probe = std::make_unique<Operation>();
  bool due = true;       // to be posted
  bool arrived = false;  // the last probe
  bool dead = false;
  Expected connection;
  std::string why;               // the last probe has failed
  Clock::time_point next;        // when it is posted again
  Clock::time_point next_probe;  // once this one has arrived
  Clock::duration waited{};
  Clock::duration granted{};  // for silence of the peer

  bool waits() const noexcept { return !dead && !arrived; }
  std::string reason() const { return why.empty() ? "no answer" : why; }
  void fail(const char* reason) {
    why = reason;
    dead = true;
  }
};

class ProbedPaths final : public Paths, private Owner {
 public:
  ProbedPaths(Station& station, Destination& there, Address ours, Address theirs, bool here, std::size_t near)
      : station_(station), there_(there), ours_(std::move(ours)), theirs_(std::move(theirs)), near_(near),
        patience_(std::clamp<Clock::duration>(station.patience, 2s, 24h)),
        step_(std::min<Clock::duration>(patience_ / 16, 500ms)), grades_(grades_of(ours_, theirs_, here)) {
    const std::lock_guard lock(station_.mutex);
    there_.routes.resize(theirs_.endpoints.size());
  }

  ~ProbedPaths() override {
    const std::lock_guard lock(station_.mutex);
    for (Path& path : paths_) give_up(path);
    for (const auto& rail : station_.rails) rail->forget(*this);
  }

  void lost() override {
    const std::lock_guard lock(station_.mutex);
    for (Path& path : paths_) give_up(path);
    phase_ = Phase::lost;
  }

  Clock::time_point tend(Clock::time_point now, std::vector<Blob>& words) override {
    const std::lock_guard lock(station_.mutex);
    if (phase_ == Phase::lost) return Clock::time_point::max();
    if (!std::exchange(introduced_, true))
      words.push_back(word_of(Word::grades, std::as_bytes(std::span(grades_.all))));
    if (std::exchange(asked_by_peer_, false)) words.push_back(word_of(Word::answer, bytes_of(bytes_here())));
    if (phase_ == Phase::begun) return Clock::time_point::max();
    open_all(now, words);
    if (phase_ == Phase::settled) probe_again(now);
    post_probes(now);
    count_time(now, words);
    judge(words);
    if (phase_ == Phase::told && arrived_there_) settle(*arrived_there_);
    return next_call(now);
  }

  void heard(const Blob& word) override {
    const std::lock_guard lock(station_.mutex);
    switch (static_cast<Word>(word.at(0))) {
      case Word::grades: return hear_grades(word);
      case Word::opened:
        names_there_ = pieces(word, 1);
        if (names_there_->size() != paths_.size()) throw std::runtime_error("a word of the wrong size");
        return;
      case Word::known: return hear_known(std::to_integer<std::uint8_t>(word.back()));
      case Word::arrived: arrived_there_ = std::to_integer<std::uint8_t>(word.back()); return;
      case Word::question: asked_by_peer_ = true; return;
      case Word::answer:
        bytes_there_ = value_of<std::uint64_t>({word.begin() + 1, word.end()});
        answered_ = true;
        return;
    }
  }

  std::optional<std::string> verdict() const override {
    if (phase_ < Phase::settled) return std::nullopt;
    const std::lock_guard lock(station_.mutex);
    if (!endpoints_.numbers.empty()) return "";
    std::string why;
    for (const Path& path : paths_)
      why += (why.empty() ? "from " : "; from ") + path.route->text + ": " + path.reason();
    if (!why.empty()) return "no network path carries anything: " + why + " (" + kChosenBy + ")";
    const auto devices = [](const Address& address) {
      std::string text;
      for (const EndpointAddress& endpoint : address.endpoints) text += (text.empty() ? "" : ", ") + endpoint.text();
      return text;
    };
    return "no route leads from a network device here (" + devices(ours_) + ") to one there (" + devices(theirs_) +
           ") and back (" + kChosenBy + ")";
  }

 private:
  // ---- the paths, and the endpoints that write over them

  void hear_grades(const Blob& word) {
    Grades from_there{ours_.endpoints.size(), {}};
    for (std::size_t i = 1; i < word.size(); ++i) from_there.all.push_back(static_cast<Grade>(word[i]));
    if (from_there.all.size() != grades_.all.size()) throw std::runtime_error("a word of the wrong size");
    const bool first = pack(ours_) < pack(theirs_);
    for (const Pair& pair : pair_rails(ours_, theirs_, grades_, from_there, first)) {
      Rail& rail = *station_.rails[pair.ours];
      const EndpointAddress& there = theirs_.endpoints[pair.theirs];
      Path& path = paths_.emplace_back();
      path.pair = pair;
      path.route = &there_.routes[pair.theirs];
      *path.route = {&rail, nullptr, FI_ADDR_UNSPEC, there.flushes,
                     ours_.endpoints[pair.ours].text() + " to " + there.text()};
      rail.know(*path.probe, *this);
    }
    counted_ = Clock::now();
    open_by_ = counted_ + std::min<Clock::duration>(patience_ / 4, kForDescriptors);
    if (phase_ == Phase::begun) phase_ = Phase::trying;
  }

  /// Descriptors that are lacking may be closed meanwhile. Says for each path the name of the endpoint that will write
  /// to the peer, or nothing where that could not be opened.
  void open_all(Clock::time_point now, std::vector<Blob>& words) {
    if (!opened_) {
      opened_ = true;
      for (Path& path : paths_) {
        if (!path.dead && path.route->from == nullptr) opened_ &= open(path, now);
      }
      if (!opened_) return;
      Blob& word = words.emplace_back(word_of(Word::opened));
      for (const Path& path : paths_) append(word, path.dead ? Blob() : path.route->rail->name(path.route->from));
    }
    if (!names_there_) return;
    add(*names_there_);
    names_there_.reset();
    words.push_back(say_bits(Word::known, [](const Path& path) { return !path.dead; }));
  }

  /// False: later, since descriptors are lacking.
  bool open(Path& path, Clock::time_point now) {
    constexpr std::size_t kOfConnection = 4;  // with tcp: two sockets, and two more while both ends connect at once
    Rail& rail = *path.route->rail;
    try {
      path.connection = expect_descriptors(rail.wait_fd() >= 0 ? kOfConnection : 1);
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

  /// libfabric's shm opens the file of an endpoint when it is added, or when that first writes, and then crashes where
  /// it cannot: without a free descriptor, or when its owner has gone.
  void add(const std::vector<Blob>& names) {
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
  Blob say_bits(Word kind, bool (*is)(const Path& path)) const {
    std::uint8_t bits = 0;
    for (std::size_t i = 0; i < paths_.size(); ++i) bits |= static_cast<std::uint8_t>(is(paths_[i]) << i);
    return word_of(kind, bytes_of(bits));
  }

  void hear_known(std::uint8_t known_there) {
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      if (!paths_[i].dead && (known_there >> i & 1) == 0) paths_[i].fail(kNotOpened);
    }
    known_there_ = true;
  }

  // ---- probes

  /// Once in a while, as long as anything is open.
  void probe_again(Clock::time_point now) {
    if (there_.movers.empty()) return;
    for (Path& path : paths_) {
      if (path.dead || path.waits() || now < path.next_probe) continue;
      path.next_probe = now + patience_ / 8;
      path.due = true;
      path.arrived = false;
      path.waited = path.granted = {};
    }
  }

  void post_probes(Clock::time_point now) {
    if (!known_there_) return;
    for (Path& path : paths_) {
      if (!path.waits() || !path.due || now < path.next) continue;
      const Route& route = *path.route;
      try {
        const Posted posted = route.rail->flush({route.from, route.address, route.flushes}, *path.probe);
        path.due = posted == Posted::busy;
        path.arrived = posted == Posted::over;
      } catch (const std::runtime_error& reason) {
        path.why = reason.what();
        path.next = now + kTryAgain;
      }
    }
  }

  void ended(Operation& operation, const std::string& why_not) override {
    const auto path = std::ranges::find_if(paths_, [&](const Path& one) { return one.probe.get() == &operation; });
    path->arrived = why_not.empty();
    path->due = !path->arrived;
    path->why = why_not;
    path->next = Clock::now() + kTryAgain;
  }

  /// A peer that was silent gets that time once more, up to a limit: the network sends again what was lost meanwhile,
  /// after longer and longer pauses.
  void count_time(Clock::time_point now, std::vector<Blob>& words) {
    if (std::ranges::none_of(paths_, &Path::waits)) {
      asked_.reset();
      counted_ = now;
    } else if (!asked_ && now - counted_ >= step_) {
      words.push_back(word_of(Word::question));
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

  void judge(std::vector<Blob>& words) {
    constexpr auto kAny = 15s;
    constexpr auto kOthers = 2s;  // once one has arrived, the others need not be waited for as long
    constexpr std::uint64_t kBytesPerSecond = 8 << 20;  // data that is under way may take so long on a slow network
    Clock::duration limit =
        patience_ * 5 / 8 + std::chrono::milliseconds(1000 * (bytes_here() + bytes_there_) / kBytesPerSecond);
    if (phase_ != Phase::settled) {
      const bool any = std::ranges::any_of(paths_, &Path::arrived);
      limit = any ? std::min<Clock::duration>(patience_ / 4, kOthers) : std::min<Clock::duration>(patience_ / 2, kAny);
    }
    for (Path& path : paths_) {
      if (path.waits() && path.waited >= limit) end(path);
    }
    if (phase_ != Phase::trying || std::ranges::any_of(paths_, &Path::waits)) return;
    words.push_back(say_bits(Word::arrived, [](const Path& path) { return path.arrived; }));
    phase_ = Phase::told;
  }

  std::uint64_t bytes_here() const {
    std::uint64_t bytes = 0;
    for (const Mover* const mover : there_.movers) bytes += mover->bytes_under_way();
    return bytes;
  }

  // ---- the end of a path

  /// The path carries nothing, or nothing any more.
  void end(Path& path) {
    path.dead = true;
    give_up(path);
    if (phase_ != Phase::settled) return;
    const std::string what = "the network path from " + path.route->text +
                             " carries nothing any more: " + path.reason() + " (" + kChosenBy + ")";
    base::log(base::LogLevel::warn, what);
    *there_.lost = true;
    for (Mover* const mover : there_.movers) mover->path_lost(*path.route, what);
    path.route->rail = nullptr;
    find_endpoints();
  }

  /// Keeps the paths whose probes have arrived at both ends.
  void settle(std::uint8_t arrived_there) {
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      Path& path = paths_[i];
      if (path.arrived && (arrived_there >> i & 1) == 0) path.why = "its answers do not arrive there";
      path.dead |= (arrived_there >> i & 1) == 0;
      path.next_probe = Clock::now() + patience_ / 8;
      if (!path.dead) continue;
      if (station_.left_out.insert(ours_.endpoints[path.pair.ours].device).second)
        base::log(base::LogLevel::warn, "not used: the network path from " + path.route->text + ": " + path.reason() +
                                            " (" + kChosenBy + ")");
      path.route->rail = nullptr;
    }
    phase_ = Phase::settled;
    find_endpoints();
  }

  /// Leaves a probe that is under way to the station.
  void give_up(Path& path) {
    if (path.probe == nullptr || !path.probe->posted) return;
    path.route->rail->give_up(*path.probe);
    station_.orphans.push_back(std::move(path.probe));
  }

  void find_endpoints() {
    endpoints_ = {};
    for (const Path& path : paths_) {
      if (!path.dead) endpoints_.numbers.push_back(path.pair.ours);
    }
    std::ranges::sort(endpoints_.numbers);
    const auto near = std::ranges::count_if(endpoints_.numbers, [&](std::size_t number) { return number < near_; });
    endpoints_.near = near == 0 ? endpoints_.numbers.size() : static_cast<std::size_t>(near);
  }

  Clock::time_point next_call(Clock::time_point now) const {
    if (!opened_) return now + kTryAgain;
    if (phase_ == Phase::trying) return now + kLookForProbes;
    if (phase_ != Phase::settled || std::ranges::any_of(paths_, &Path::waits)) return now + step_ / 4;
    auto next = Clock::time_point::max();
    for (const Path& path : paths_) {
      if (!path.dead) next = std::min(next, path.next_probe);
    }
    return std::max(next, now + step_);
  }

  Station& station_;
  Destination& there_;
  const Address ours_;
  const Address theirs_;
  const std::size_t near_;
  const Clock::duration patience_;
  const Clock::duration step_;  // between questions
  Grades grades_;
  Phase phase_ = Phase::begun;
  std::vector<Path> paths_;
  std::optional<std::uint8_t> arrived_there_;  // by number of the path: whether the peer's probe has arrived
  bool introduced_ = false;
  bool opened_ = false;                           // or dead: all paths
  std::optional<std::vector<Blob>> names_there_;  // which endpoints write to us: to be added, once ours are open
  bool known_there_ = false;                      // the peer has added the endpoints that write to it
  Clock::time_point open_by_;
  std::uint64_t bytes_there_ = 0;  // of the peer, which are under way to us
  bool asked_by_peer_ = false;
  bool answered_ = false;
  std::optional<Clock::time_point> asked_;  // a question is under way
  Clock::time_point counted_;               // the time up to which `waited` counts
};

}  // namespace

std::unique_ptr<Paths> find_paths(Station& station, Destination& there, Address ours, Address theirs, bool here,
                                  std::size_t near) {
  return std::make_unique<ProbedPaths>(station, there, std::move(ours), std::move(theirs), here, near);
}

}  // namespace sluice::backends::ofi
