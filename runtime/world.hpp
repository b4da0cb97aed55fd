// SPDX-License-Identifier: Apache-2.0
// One rank of one job: its peers, its engine, and every open end of a channel. Contexts, memory and channels share it.
#pragma once

#include <sluice/error.hpp>
#include <sluice/run.hpp>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/env.hpp"
#include "runtime/bootstrap.hpp"
#include "runtime/channel.hpp"
#include "runtime/engine.hpp"
#include "runtime/peers.hpp"

namespace sluice::runtime {

struct Limits {
  Timeout wait = kForever;
  Timeout connect{};
  Timeout warn{};
};

/// Why channels fail when sluice-run was killed.
inline constexpr const char* kLauncherLost = "sluice-run is gone";

/// Time left for closing a channel that an exception, or the end of the rank, leaves open. All such channels of a
/// thread share one deadline: 5 s, or `most`, after the first call. Exceptions cannot be told apart, so a new deadline
/// begins 5 s after the last one passed, or after `begin_anew`.
Timeout time_to_leave(Timeout most) noexcept;
/// The thread has opened a channel: `time_to_leave` begins a new deadline.
void begin_anew() noexcept;

class World final : public std::enable_shared_from_this<World>, private Engine::Desk, private Peers::Audience {
 public:
  static std::shared_ptr<World> open(Place place, const base::Env& env, const Options& options);
  ~World() override;

  /// Ends the rank's part in the job: what is still open fails here, and counts as lost at the peers. Idempotent.
  void end() noexcept;

  const Place& place() const noexcept { return place_; }
  const Limits& limits() const noexcept { return limits_; }
  /// Period of the engine's check of waits on GPU streams.
  std::chrono::milliseconds ask_every() const noexcept { return ask_every_; }
  Engine& engine() noexcept { return engine_; }
  /// The engine's, in the timeline.
  base::trace::Track track() const noexcept { return track_; }
  std::mutex& mutex() noexcept { return mutex_; }
  std::uint64_t next_id() noexcept { return next_id_.fetch_add(1); }
  std::vector<std::unique_ptr<backends::Pin>> pin(const device::Extent& memory);

  backends::Signal take_word(Rank peer, Standing standing);
  void give_back_word(Rank peer, const backends::Signal& word);

  /// Before an end is used on streams of the GPU, or opened for them. Without the mutex: it may take seconds.
  void try_out(device::Driver& driver, int gpu);
  /// Announces a new end, and matches it. @throws Error{Code::misuse} for a duplicate
  void open_end(const std::shared_ptr<ChannelEnd>& end);
  /// Closes it: false if that was not possible within the limit, and may be tried again.
  bool close(ChannelEnd& end, base::Limit& limit);
  /// Keeps what a closed handle still uses, until it is not used any more.
  static void keep(std::shared_ptr<ChannelEnd> end);
  /// Frees what was kept and is not used any more.
  static void reclaim();

  /// A failure that nobody was told of yet. Any thread.
  void record(const Error& error);
  /// Throws the oldest one, if any.
  void check();
  /// The end has failed: the engine repeats its poison and, if wanted, tells the peer. Any thread.
  void notice_failure(const ChannelEnd& end, Code code, const std::string& what, bool tell_peer) noexcept;
  /// Tells the peer how its target is reached. With the mutex.
  void tell_way(const ChannelEnd& end, const std::string& obstacle);
  void abort(const std::string& why);

 private:
  World(Place place, const base::Env& env, const Options& options);

  // Engine::Desk
  int prepare(std::vector<pollfd>& sockets) override;
  void serve(std::span<const pollfd> sockets) override;

  // Peers::Audience, under the mutex
  void linked(Peer& peer) override;
  void said(Peer& peer, Kind kind, Reader& message, std::vector<base::Fd> fds) override;
  void lost(Peer& peer) override;
  void unsent() override { engine_.wake(); }

  void lose_launcher();
  void see_all_of(const Peer& peer);
  backends::Key land(Peer& peer, ChannelEnd& end);
  void announce(ChannelEnd& end);
  void announce_closing(const ChannelEnd& end);
  void match(ChannelEnd& end, RemoteEnd remote);
  void on_opening(Peer& peer, Reader& message, std::vector<base::Fd> fds);
  void on_closing(Peer& peer, Reader& message);
  void on_failure(Peer& peer, Reader& message);
  ChannelEnd* end_of_peer(const Peer& peer, std::uint64_t remote_id);
  RemoteEnd* waiting_end(const Peer& peer, std::uint64_t remote_id);
  void send_failures();
  void announce_failure(const ChannelEnd& end, Code code, const std::string& what);
  void let_go();
  void tell_let_go(ChannelEnd& end);
  /// Lets go of what this end holds of its peer.
  void part(ChannelEnd& end);
  void end_partings();
  void say_let_go(Peer& peer, std::uint64_t remote_id);
  bool serve_peers();
  void go_without_descriptors();
  void repeat_poison();
  bool asks_for_streams() const;
  void ask_for_streams();
  void close_key(ChannelEnd& end);
  /// Whether the closing end is; does what there is to be done for it.
  bool over(ChannelEnd& end);
  void unregister(ChannelEnd& end);
  void begin_closing(ChannelEnd& end);
  void leave() noexcept;
  static void keep_for_ever(std::shared_ptr<ChannelEnd> end);

  const base::Origin origin_;
  Place place_;
  Limits limits_;
  base::trace::Track track_ = base::trace::kNone;
  std::chrono::milliseconds ask_every_{};
  std::vector<std::pair<std::string, std::unique_ptr<backends::Transport>>> transports_;

  std::mutex mutex_;  // everything below, and what the ends say is guarded by it
  std::condition_variable changed_;
  Peers peers_;
  std::atomic<std::uint64_t> next_id_{1};
  std::map<std::uint64_t, ChannelEnd*> ends_;  // open or closing, by id
  std::map<ChannelKey, std::uint64_t> open_;   // not yet closed by their user
  // Not matched yet, oldest first; ours also if closed meanwhile.
  std::map<ChannelKey, std::deque<std::uint64_t>> waiting_here_;
  std::map<ChannelKey, std::deque<RemoteEnd>> waiting_there_;
  /// What is held of a peer's end, and is being let go of without the mutex.
  struct Parting {
    Rank peer;  // of the job
    std::uint64_t remote_id;
    bool told;  // the peer is, when it is over
    std::shared_ptr<std::atomic<bool>> over;
  };
  std::vector<Parting> partings_;
  base::Clock::time_point poison_due_{};
  int look_ms_ = 1;                        // until the next check of peers that close
  std::string complaint_;                  // what could not be served last; empty: nothing
  base::Clock::time_point lacks_since_{};  // a descriptor; the clock's beginning: none is lacking
  std::string lack_;                       // while one is: how many are needed, and may be had
  bool ended_ = false;
  int launcher_fd_;  // a pipe whose other end sluice-run holds; -1: there is none, or sluice-run was killed
  bool launcher_lost_ = false;

  std::mutex failures_mutex_;
  std::deque<Error> failures_;
  std::atomic<std::size_t> failure_count_{0};
  struct Notice {
    std::uint64_t end;
    Code code;
    std::string what;
    bool tell_peer;
  };
  std::vector<Notice> notices_;
  std::atomic<bool> failing_{false};  // some end has failed: there is poison to repeat

  Engine engine_;  // last: its thread uses the rest
};

}  // namespace sluice::runtime
