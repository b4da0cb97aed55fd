// SPDX-License-Identifier: Apache-2.0
// The engine: one loop that watches doorbells, posts, polls the transports, and serves the sockets. Its
// thread sleeps when there is nothing to do, or other threads take the turns.
#pragma once

#include <poll.h>

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "backends/access.hpp"
#include "runtime/credits.hpp"

namespace sluice::runtime {

class Engine final : public backends::Listener, public device::Helper {
 public:
  /// Serves the sockets, in the engine's own thread between its turns.
  class SocketService {
   public:
    virtual ~SocketService() = default;
    /// Adds the sockets to wait for; returns how long to wait at most (ms), -1: no limit.
    virtual int prepare(std::vector<pollfd>& sockets) = 0;
    /// Called after the sleep, with the events of the sockets.
    virtual void serve(std::span<const pollfd> sockets) = 0;
  };

  /// An end whose progress a GPU's stream can only see if the engine raises a word.
  class Pollable {
   public:
    virtual ~Pollable() = default;
    /// Called in each turn of the engine: raises the word to what has been reached.
    virtual backends::AfterTurn poll() = 0;
  };

  /// Answers requests of peers that have arrived. An answer is a put, so it leaves behind a turn and not in one.
  class Responder {
   public:
    virtual ~Responder() = default;
    /// Called in each turn of the engine.
    virtual bool has_requests() noexcept = 0;
    /// Answers what has arrived, and waits for nothing. One thread at a time: one that waits, or the engine's own if
    /// none takes turns (`alone`).
    virtual void respond(bool alone) noexcept = 0;
  };

  struct Options {
    int cpu = -1;                  ///< core of the engine's thread; -1: any
    base::Clock::duration poll{};  ///< sleep between two turns while something is under way; 0: yield
    /// Its bell; null: one of its own.
    std::shared_ptr<const base::Waker> bell = nullptr;
  };

  Engine(SocketService& service, Options options);
  ~Engine() override;

  /// `track`: in the timeline.
  void start(base::trace::Track track = base::trace::kNone);
  /// Ends the engine's thread. Idempotent; not from that thread.
  void stop();

  /// From now on the engine polls the transport. Call it before `start`.
  void add(backends::Transport& transport) { transports_.push_back(&transport); }
  /// Watches the put's bell from now on, until `forget` has returned.
  void watch(backends::RungPut& put) { watch(put.bell(), {put.posting}, &put, backends::Haste::now); }
  /// Like `watch`, for the credits of `depth` slots, which may leave a little later. `landed`: the last epoch that has
  /// arrived.
  void watch_credits(backends::RungPut& put, int depth, const base::Word& landed);
  /// From now on the put is posted behind those of other ends, in each turn; long ones may come later. It is watched.
  void post_behind(const backends::RungPut& put);
  void forget(backends::RungPut& put) { forget(put.bell(), &put, &put); }
  void watch(Pollable& end);
  void forget(Pollable& end);
  /// Until `expect_no_more`, turns may bring something that peers have posted, though nothing here is watched.
  void expect() noexcept { watched_.fetch_add(1); }
  void expect_no_more() noexcept { watched_.fetch_sub(1); }
  /// Answers are given from now on, until `forget` has returned. Without locks of the runtime.
  void watch(Responder& responder);
  void forget(Responder& responder);
  /// Spins until no thread answers, and runs `work()` while none answers or looks for requests. Not from `respond`, nor
  /// in a turn.
  template <class Work>
  void between_answers(Work work) {
    // Leaves no mark while it waits, for which the thread that answers would look again.
    for (std::uint32_t none = 0; !answers_.compare_exchange_weak(none, 1); none = 0) std::this_thread::yield();
    {
      const std::lock_guard turn(turn_);
      work();
    }
    end_answers(false);
  }
  void watch(backends::EngineAccess& access) { watch(access.bell(), {&access}, &access, backends::Haste::now); }
  void forget(backends::EngineAccess& access) { forget(access.bell(), &access, nullptr); }
  /// From the next epoch on, `bell` fires the put. Call it while no epoch is outstanding.
  void move(backends::RungPut& put, const std::shared_ptr<backends::Doorbell>& bell, std::uint64_t epochs);

  /// From now on the put is enqueued on streams of the driver's GPUs: unless the engine posts it, the engine arms it in
  /// its turns. Call it while no epoch is outstanding.
  void reach(backends::RungPut& put, device::Driver& driver);

  /// The engine waits for no rings that a driver has refused. Call it now and then: where the driver has refused marks
  /// too, a ring may yet come, which wakes no thread.
  void forget_refused_rings(backends::RungPut& put) noexcept;
  /// Like `reach`, for a bell that kernels ring from now on (see RungPut).
  void let_kernels_ring(backends::RungPut& put, const kernel::Count& epochs);

  /// Lets a waiting thread take turns; null while no turn can move anything.
  device::Helper* helper() noexcept { return watched_.load(std::memory_order_acquire) > 0 ? this : nullptr; }

  /// Makes the engine's thread look around.
  void wake() noexcept;
  void heard(backends::BellEntry& bell) noexcept override;
  /// Something other than a bell needs a turn.
  void heard(backends::Haste haste) noexcept;
  void help() noexcept override;
  void look() noexcept override;
  /// Like `look`, for callers with locks: leaves answers to the engine's thread.
  void look_only() noexcept;
  /// How often threads other than the engine's have helped; may miss some.
  std::uint32_t helped_so_far() const noexcept { return helped_.load(std::memory_order_relaxed); }

 private:
  struct Bell;
  /// A put or an access that rings of its bell fire, or whose bell only wakes the engine.
  struct Member : ByBell {
    Bell* bell = nullptr;
    std::list<Member*>::iterator place{};  // among those of its bell
  };
  /// A bell, and those that its rings fire: a plan's fires many.
  struct Bell : backends::BellEntry {
    using BellEntry::BellEntry;
    std::list<Member*> members;
  };

  /// `who`: the put or the access, by which `forget` finds it.
  void watch(backends::Doorbell& bell, ByBell what, const void* who, backends::Haste haste);
  void forget(backends::Doorbell& bell, const void* who, const backends::RungPut* put);
  void join(backends::Doorbell& bell, Member& member, backends::Haste haste);
  void leave_bell(backends::Doorbell& bell, Member& member);
  void collect();
  void look_at(Member& member);
  void look_at(const backends::RungPut& put);
  void arm_ahead(backends::RungPut& put);
  void loop(base::trace::Track track);
  void helped() noexcept;
  void leave_to_thread() noexcept;
  void help_once() noexcept;
  void look_once() noexcept;
  void leave_requests() noexcept;
  // Answers, by one thread at a time.
  bool begin_answers() noexcept;
  bool leave_answers() noexcept;
  void end_answers(bool alone) noexcept;
  bool any_requests() const noexcept;
  void answer(bool alone = false) noexcept;
  // These return whether the engine's thread must be awake. While it polls words it wakes by itself.
  bool turn() noexcept;
  bool work();
  /// How long the thread may sleep (ms); 0: not at all, -1: until it is woken.
  int rest(int patience);
  void begin_quiet() noexcept { quiet_since_.store(base::Clock::now(), std::memory_order_relaxed); }
  base::Clock::duration until_next_look() const noexcept;
  void sleep(int timeout_ms);
  void set_alarm() noexcept;
  void pause() const;

  SocketService& service_;
  Options options_;
  std::shared_ptr<const base::Waker> bell_;
  base::Fd alarm_;
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  std::vector<pollfd> sockets_;

  // One thread at a time runs a turn: the engine's own, or one that posts or waits. While others do, the engine's
  // thread leaves the work to them, and sleeps until an alarm that they keep putting off: two threads that poll for one
  // another on one core slow both down.
  std::mutex turn_;
  std::atomic<bool> again_{false};    // a bell was rung while another thread had the turn
  std::atomic<bool> listens_{false};  // to words that a GPU's stream or kernel will change
  std::atomic<backends::AfterTurn> left_{backends::AfterTurn::nothing};  // after the last turn
  std::atomic<base::Clock::time_point> quiet_since_{};                   // words alone have been left since then
  std::atomic<int> watched_{0};
  std::atomic<std::uint32_t> helped_{0};  // turns of other threads than the engine's
  std::uint32_t helped_before_ = 0;
  std::atomic<base::Clock::time_point> alarm_set_{};
  std::atomic<bool> attended_{false};  // others took turns lately, and so do what the engine's thread would do
  std::vector<backends::Transport*> transports_;
  // A turn looks at the puts whose bells were rung, and at those that are still under way: never at those that are
  // idle.
  std::atomic<backends::BellEntry*> rung_bells_{nullptr};  // since the last turn, the last first
  std::vector<Member*> rung_;                              // puts
  std::unordered_map<const void*, Member> members_;
  std::deque<Bell> bells_;
  std::vector<Bell*> unused_bells_;
  std::vector<backends::RungPut*> armed_ahead_;
  std::vector<Pollable*> ends_;
  Credits credits_;
  // Changed by a thread that has both the turn and the answers.
  std::vector<Responder*> responders_;
  std::atomic<bool> requests_{false};      // that turns have found
  std::atomic<std::uint32_t> answers_{0};  // 0: no thread answers; the one that does looks again if it has grown
};

}  // namespace sluice::runtime
