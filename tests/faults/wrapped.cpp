// SPDX-License-Identifier: Apache-2.0
// Two backends for tests: `threads`, but posted by the engine, and `threads`, but armed before and fired by a doorbell
// that counts, as a NIC does it as long as it has entries. Both are late and busy at random, so that retries, fusing
// and what is under way are exercised on any machine.
#include "tests/faults/wrapped.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "backends/access.hpp"
#include "backends/threads/transport.hpp"

namespace sluice::test {
namespace {

using namespace backends;

std::atomic<base::Word*> g_newest_signal{nullptr};
std::atomic<std::uint64_t> g_rests{0};
std::atomic<std::uint64_t> g_messages{0};
std::atomic<std::uint64_t> g_accesses{0};
std::atomic<bool> g_accesses_held{false};
std::atomic<bool> g_accesses_fail{false};
std::atomic<bool> g_reaching_refused{false};
std::atomic<bool> g_bells_refused{false};
std::atomic<Rank> g_path_lost{-1};
std::atomic<bool> g_held{false};

/// The backend whose puts are wrapped. Its own puts still do the work: they copy, raise the signal, then `watch.done`.
std::unique_ptr<Transport> open_inner(const Settings& settings) { return threads::open(settings); }

/// How often an engine put is busy, and how many polls it takes. SLUICE_USER_FAULT_SEED chooses others.
class Dice {
 public:
  Dice() : random_(seed()) {}
  /// True once in `n` throws.
  bool one_in(unsigned n) { return random_() % n == 0; }
  unsigned below(unsigned n) { return static_cast<unsigned>(random_() % n); }

 private:
  static unsigned seed() {
    static std::atomic<unsigned> next{0};
    const char* const given = std::getenv("SLUICE_USER_FAULT_SEED");
    return (given == nullptr ? 20261121U : static_cast<unsigned>(std::atoi(given))) + next.fetch_add(1);
  }
  std::minstd_rand random_;
};

// ---- posted by the engine

/// Posted puts that have not completed. Only the thread that has the engine's turn may use it.
class UnderWay {
 public:
  /// Whose epochs are under way.
  class Finisher {
   public:
    virtual ~Finisher() = default;
    virtual void finish(std::uint64_t epoch, Range part) = 0;
  };
  struct Item {
    Finisher* put = nullptr;
    std::uint64_t epoch = 0;
    Range part;
    unsigned polls_left = 0;
  };

  void add(const Item& item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(item);
  }
  /// In order, so that no signal overtakes an earlier one of its channel.
  AfterTurn poll() {
    const std::lock_guard lock(mutex_);
    while (!items_.empty()) {
      if (g_held) return AfterTurn::work;
      Item& oldest = items_.front();
      if (oldest.polls_left > 0) {
        --oldest.polls_left;
        return AfterTurn::work;
      }
      oldest.put->finish(oldest.epoch, oldest.part);
      items_.pop_front();
    }
    return AfterTurn::nothing;
  }
  /// Finishes what this put still has under way.
  void finish(const Finisher* put) {
    const std::lock_guard lock(mutex_);
    for (const Item& item : items_) {
      if (item.put == put) item.put->finish(item.epoch, item.part);
    }
    std::erase_if(items_, [&](const Item& item) { return item.put == put; });
  }

 private:
  std::mutex mutex_;
  std::deque<Item> items_;
};

/// The watch of the inner put of a wrapped one, which no lane fires: only the wrapper raises the end's own word.
class InnerWatch final : public device::Watch {
 public:
  explicit InnerWatch(device::Watch& outer) : outer_(outer) {}
  void fail(Code code, const std::string& what) noexcept override { outer_.fail(code, what); }
  base::Clock::duration waited(const device::Wait& wait, base::Clock::duration so_far, Timeout limit,
                               base::WaitNote& note) noexcept override {
    return outer_.waited(wait, so_far, limit, note);
  }

 private:
  device::Watch& outer_;
};

class PostedPut final : public EnginePut, private UnderWay::Finisher {
 public:
  // More than any depth of a test: the credits of a channel count by the depth of its other end.
  static constexpr int kOutstanding = 64;

  PostedPut(device::Watch& watch, const Slots& source, std::unique_ptr<InnerWatch> inner_watch,
            std::unique_ptr<Put> inner, std::shared_ptr<UnderWay> under_way)
      : EnginePut(watch, kOutstanding, source.slot_bytes), inner_watch_(std::move(inner_watch)),
        inner_(std::move(inner)), under_way_(std::move(under_way)) {}
  ~PostedPut() override { under_way_->finish(this); }

  void reach_from(device::Driver& driver) override {
    if (g_reaching_refused) throw std::bad_alloc();
    EnginePut::reach_from(driver);
  }
  bool at_rest(std::size_t) override { return true; }
  bool post(std::size_t, std::uint64_t epoch, Range part) override {
    if (dice_.one_in(3)) return false;
    if (moves_bytes()) g_messages.fetch_add(1);
    under_way_->add({this, epoch, part, dice_.below(3)});
    return true;
  }
  void finish(std::uint64_t epoch, Range part) override {
    if (!watch().shut()) inner_->enqueue({}, epoch, part);
    over(epoch);
  }
  bool landed(std::uint64_t epoch) override { return inner_->landed(epoch); }
  bool settled() override { return inner_->settled(); }
  const void* in_order() const noexcept override { return under_way_.get(); }
  std::string describe() const override { return "posted: " + inner_->describe(); }

 private:
  std::unique_ptr<InnerWatch> inner_watch_;
  std::unique_ptr<Put> inner_;
  std::shared_ptr<UnderWay> under_way_;
  Dice dice_;
};

class PostedAccess final : public EngineAccess, private UnderWay::Finisher {
 public:
  /// `may_count`: requests may name counters.
  PostedAccess(int depth, device::Watch& watch, std::unique_ptr<InnerWatch> inner_watch, std::unique_ptr<Access> inner,
               std::shared_ptr<UnderWay> under_way, bool may_count)
      : EngineAccess(all_that(may_count && inner->counts), depth, watch, "posted: " + inner->how),
        inner_watch_(std::move(inner_watch)), inner_(std::move(inner)), under_way_(std::move(under_way)) {}
  ~PostedAccess() override { under_way_->finish(this); }
  const void* in_order() const noexcept override { return under_way_.get(); }

 private:
  /// The inner one looks.
  static constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  static Bounds all_that(bool may_count) {
    return {.offered = kMost, .counters = may_count ? kMost : 0, .no_gpus = "posted"};
  }

  bool post(std::uint64_t epoch, const Request& request) override {
    if (g_accesses_held || dice_.one_in(3)) return false;
    if (!request.local.empty() || request.counter != Request::kNone) g_accesses.fetch_add(1);
    if (g_accesses_fail) {
      watch_.fail(Code::transport, "an access fails, as the test wants it");
      late_.insert(epoch);
    }
    requests_[epoch] = request;
    under_way_->add({this, epoch, {}, dice_.below(3)});
    return true;
  }
  void finish(std::uint64_t epoch, Range) override {
    if (late_.erase(epoch) == 0 && watch_.shut()) {
      fail_shut(watch_);
    } else {
      inner_->enqueue({}, epoch, requests_.at(epoch));
    }
    requests_.erase(epoch);
    over(epoch);
  }

  std::unique_ptr<InnerWatch> inner_watch_;
  std::unique_ptr<Access> inner_;
  std::shared_ptr<UnderWay> under_way_;
  std::map<std::uint64_t, Request> requests_;
  std::set<std::uint64_t> late_;  // they move their bytes though they have failed
  Dice dice_;
};

// ---- fired by a doorbell

/// A thread that plays a NIC: it fires armed puts when the doorbell has counted far enough, without the engine. Each
/// put takes one of its entries.
class Nic {
 public:
  explicit Nic(int entries) : entries_left_(entries), thread_([this](const std::stop_token& stop) { serve(stop); }) {}

  bool take_entry() {
    if (entries_left_.fetch_sub(1) > 0) return true;
    give_back();
    return false;
  }
  void give_back() { entries_left_.fetch_add(1); }

  struct Work {
    RungPut* put = nullptr;
    Put* inner = nullptr;  ///< null: fires nothing, and completes the epoch
    device::Watch* watch = nullptr;
    std::uint64_t threshold = 0;
    std::uint64_t epoch = 0;
    Range part;
  };

  void arm(const Work& work) {
    {
      const std::lock_guard lock(mutex_);
      armed_.push_back(work);
    }
    changed_.notify_one();
  }
  /// Something of it is armed that moves something.
  bool has(const RungPut* put) {
    const std::lock_guard lock(mutex_);
    return std::any_of(armed_.begin(), armed_.end(),
                       [&](const Work& work) { return work.put == put && work.inner != nullptr; });
  }
  /// Its armed puts move nothing any more, and complete when the doorbell counts.
  void silence(const RungPut* put) {
    const std::lock_guard lock(mutex_);
    for (Work& work : armed_) {
      if (work.put == put) work.inner = nullptr;
    }
  }
  void disarm(const RungPut* put) {
    const std::lock_guard lock(mutex_);
    std::erase_if(armed_, [&](const Work& work) { return work.put == put; });
  }

 private:
  void serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [this] { return !armed_.empty(); });
      fire_what_was_rung();
      lock.unlock();
      for (unsigned i = dice_.below(3); i > 0; --i) std::this_thread::yield();
    }
  }
  void fire_what_was_rung() {
    // Each bell is looked at once: rung twice meanwhile, it would fire an epoch before the one that was armed before
    // it.
    std::map<const Doorbell*, std::uint64_t> rung;
    std::erase_if(armed_, [&](const Work& work) {
      const Doorbell& bell = work.put->bell();
      const auto seen = rung.try_emplace(&bell, bell.word.value.load(std::memory_order_acquire)).first;
      if (seen->second < work.threshold) return false;
      if (work.inner != nullptr && !work.watch->shut()) work.inner->enqueue({}, work.epoch, work.part);
      base::raise(work.watch->done, work.epoch, work.watch->done_parking);
      return true;
    });
  }

  std::atomic<int> entries_left_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Work> armed_;
  Dice dice_;
  std::jthread thread_;
};

/// Counts, as a NIC's trigger counter does.
class CountingBell final : public Doorbell {
 public:
  void ring_often(device::Lane lane, std::uint64_t times) override {
    if (lane.gpu != nullptr) return Doorbell::ring_often(lane, times);
    rings.fetch_add(times, std::memory_order_relaxed);
    word.value.fetch_add(times, std::memory_order_acq_rel);
  }
};

class ArmedPut final : public RungPut {
 public:
  ArmedPut(device::Watch& watch, const Slots& source, std::unique_ptr<InnerWatch> inner_watch,
           std::unique_ptr<Put> inner, std::shared_ptr<Nic> nic)
      : RungPut(Fired::by_nic, watch, std::make_shared<CountingBell>(), source.slot_bytes),
        most_ahead_(static_cast<std::uint64_t>(source.depth)), inner_watch_(std::move(inner_watch)),
        inner_(std::move(inner)), nic_(std::move(nic)) {}
  ~ArmedPut() override {
    nic_->disarm(this);
    nic_->give_back();
  }

  bool landed(std::uint64_t epoch) override { return inner_->landed(epoch); }
  /// Shut first: what is disposed of could be armed anew.
  bool settled() override {
    EXPECT_TRUE(watch().shut());
    if (!moves_bytes()) nic_->silence(this);
    return inner_->settled();
  }
  /// A NIC forgets nothing that it was given, and may not fire it while the peer can be written to.
  bool disarmed(bool key_closed) override {
    if (!key_closed && nic_->has(this)) return false;
    nic_->disarm(this);
    return true;
  }
  /// Puts that a GPU's streams and kernels ring for are armed in turns; other puts on their lane.
  bool announce(std::uint64_t epoch, Range part) override {
    if (!armed_by_engine_) return false;
    end_what_was_given_up();
    if (watch().shut() || epoch > watch().done.value.load(std::memory_order_acquire) + most_ahead_) return false;
    return arm(epoch, part);
  }
  bool arm(std::uint64_t epoch, Range part) override {
    armed_ = epoch;
    nic_->arm({this, inner_.get(), &watch(), threshold(epoch), epoch, part});
    return true;
  }
  std::uint64_t most_armed() const noexcept override { return kUnlimited; }
  std::shared_ptr<Doorbell> new_bell() override {
    if (g_bells_refused) throw std::runtime_error("no counter is left");
    return std::make_shared<CountingBell>();
  }
  const void* bell_kind() const noexcept override { return nic_.get(); }
  std::string describe() const override { return "rung: " + inner_->describe(); }

 private:
  void end_what_was_given_up() {
    const std::uint64_t last = given_up();
    const std::uint64_t done = watch().done.value.load(std::memory_order_acquire);
    if (last > done && done >= std::min(armed_, epoch_of(bell().rung())))
      base::raise(watch().done, last, watch().done_parking);
  }

  std::uint64_t most_ahead_;
  std::uint64_t armed_ = 0;
  std::unique_ptr<InnerWatch> inner_watch_;
  std::unique_ptr<Put> inner_;
  std::shared_ptr<Nic> nic_;
};

/// The peer learns when the landing can be written to no more, as with NICs.
class ToldLanding final : public Landing {
 public:
  using Landing::Landing;
  bool close() override { return std::exchange(open_, false); }

 private:
  bool open_ = true;
};

/// A path that `lose_path` breaks.
class LosablePath final : public PathFinder {
 public:
  explicit LosablePath(Rank peer) : peer_(peer) {}
  base::Clock::time_point tend(base::Clock::time_point, std::vector<Blob>&) override {
    return base::Clock::time_point::max();
  }
  void heard(const Blob&) override {}
  std::optional<std::string> verdict() const override { return g_path_lost == peer_ ? "its path is lost" : ""; }

 private:
  Rank peer_;
};

// ---- the transports

/// A transport whose puts go through `wrap`.
class WrappedTransport : public Transport {
 public:
  explicit WrappedTransport(const Settings& settings, Maps which = Maps::process)
      : Transport({}, which), inner_(open_inner(settings)) {
    address_ = inner_->address();
  }

  bool reaches(const Blob& peer, bool here) const override { return inner_->reaches(peer, here); }
  std::shared_ptr<const void> pin(const device::Extent& memory) override { return inner_->pin(memory); }
  std::unique_ptr<Link> connect(Rank peer, const Blob& address, bool here) override {
    return std::make_unique<WrappedLink>(*this, peer, inner_->connect(peer, address, here));
  }
  void try_out(device::Driver& driver) override { inner_->try_out(driver); }

 protected:
  virtual std::unique_ptr<Put> wrap(Link& inner, const Slots& source, device::Watch& watch, Key key) = 0;
  virtual std::unique_ptr<Access> wrap(Link& inner, int depth, device::Watch& watch, Key key) = 0;

 private:
  class WrappedLink final : public Link {
   public:
    WrappedLink(WrappedTransport& owner, Rank peer, std::unique_ptr<Link> inner)
        : owner_(owner), path_(peer), inner_(std::move(inner)) {
      paths = &path_;
    }
    std::size_t rails(const Slots& target) const override { return inner_->rails(target); }
    Landed land(const Slots& target, std::span<const Signal> signals) override {
      if (target.slot_bytes != 0) g_newest_signal.store(signals.front().word);  // none: this is where credits land
      Landed inner = inner_->land(target, signals);
      return {std::make_unique<ToldLanding>(inner.landing->describe()), std::move(inner.key)};
    }
    void arrived(Key& key) override { inner_->arrived(key); }
    void lost() override { inner_->lost(); }
    std::unique_ptr<Put> prepare(const Slots& source, device::Watch& watch, Key key) override {
      return owner_.wrap(*inner_, source, watch, std::move(key));
    }
    Offer offer(const device::Extent& memory, const device::Extent& counters) override {
      return inner_->offer(memory, counters);
    }
    std::unique_ptr<Access> access(int depth, device::Watch& watch, Key key) override {
      return owner_.wrap(*inner_, depth, watch, std::move(key));
    }

   private:
    WrappedTransport& owner_;
    LosablePath path_;
    std::unique_ptr<Link> inner_;
  };

  std::unique_ptr<Transport> inner_;
};

class PostedTransport : public WrappedTransport {
 public:
  explicit PostedTransport(const Settings& settings, Maps which = Maps::process, bool counts = true)
      : WrappedTransport(settings, which), counts_(counts) {}
  AfterTurn poll() override { return under_way_->poll(); }
  int rest(std::vector<pollfd>&) override {
    g_rests.fetch_add(1);
    return kNoLimit;
  }

 protected:
  std::unique_ptr<Put> wrap(Link& inner, const Slots& source, device::Watch& watch, Key key) override {
    auto inner_watch = std::make_unique<InnerWatch>(watch);
    auto put = inner.prepare(source, *inner_watch, std::move(key));
    return std::make_unique<PostedPut>(watch, source, std::move(inner_watch), std::move(put), under_way_);
  }
  std::unique_ptr<Access> wrap(Link& inner, int depth, device::Watch& watch, Key key) override {
    auto inner_watch = std::make_unique<InnerWatch>(watch);
    auto access = inner.access(depth, *inner_watch, std::move(key));
    return std::make_unique<PostedAccess>(depth, watch, std::move(inner_watch), std::move(access), under_way_, counts_);
  }

 private:
  const bool counts_;
  std::shared_ptr<UnderWay> under_way_ = std::make_shared<UnderWay>();
};

/// Maps nothing, as a network.
class ApartTransport final : public PostedTransport {
 public:
  explicit ApartTransport(const Settings& settings) : PostedTransport(settings, Maps::nothing, false) {}
};

/// Maps nothing either, but requests may name counters.
class NumberedTransport final : public PostedTransport {
 public:
  explicit NumberedTransport(const Settings& settings) : PostedTransport(settings, Maps::nothing) {}
};

/// A put that finds no entry left is posted.
class RungTransport final : public PostedTransport {
 public:
  explicit RungTransport(const Settings& settings)
      : PostedTransport(settings),
        nic_(std::make_shared<Nic>(settings.trigger_entries.value_or(std::numeric_limits<int>::max()))) {}

 private:
  std::unique_ptr<Put> wrap(Link& inner, const Slots& source, device::Watch& watch, Key key) override {
    if (!nic_->take_entry()) return PostedTransport::wrap(inner, source, watch, std::move(key));
    auto inner_watch = std::make_unique<InnerWatch>(watch);
    auto put = inner.prepare(source, *inner_watch, std::move(key));
    return std::make_unique<ArmedPut>(watch, source, std::move(inner_watch), std::move(put), nic_);
  }
  std::unique_ptr<Access> wrap(Link& inner, int depth, device::Watch& watch, Key key) override {
    return inner.access(depth, watch, std::move(key));
  }
  std::shared_ptr<Nic> nic_;
};

template <class T>
std::unique_ptr<Transport> open(const Settings& settings) {
  return std::make_unique<T>(settings);
}

[[maybe_unused]] const bool g_registered = [] {
  register_backend({"posted", Reach::named, 0, {}, open<PostedTransport>});
  register_backend({"apart", Reach::named, 0, {}, open<ApartTransport>});
  register_backend({"numbered", Reach::named, 0, {}, open<NumberedTransport>});
  register_backend({"rung", Reach::named, 0, {}, open<RungTransport>});
  return true;
}();

}  // namespace

base::Word& newest_signal() { return *g_newest_signal.load(); }
std::uint64_t rests() { return g_rests.load(); }
Posts posts() { return {g_messages.load(), g_accesses.load()}; }
void hold(bool held) { g_held = held; }
void hold_accesses(bool held) { g_accesses_held = held; }
void fail_accesses(bool failing) { g_accesses_fail = failing; }
void refuse_reaching() { g_reaching_refused = true; }
void refuse_bells() { g_bells_refused = true; }
void lose_path_to(Rank peer) { g_path_lost = peer; }

}  // namespace sluice::test
