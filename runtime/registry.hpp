// SPDX-License-Identifier: Apache-2.0
// The ends of channels that are open in this rank: how the two ends of a channel find each other, and how they close.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/fork.hpp"
#include "peers/peers.hpp"
#include "runtime/channel.hpp"
#include "runtime/failure.hpp"

namespace sluice::runtime {

class CounterEnd;
class WindowCore;
struct Piece;

/// Handles own the ends, and windows those of their targets; the registry has plain pointers, used under its mutex.
/// That mutex guards everything in a channel that is not on its hot path.
class Registry final : public Peers::Handler {
 public:
  Registry(Engine& engine, Peers& peers, Failures& failures) : engine_(engine), peers_(peers), failures_(failures) {}

  std::mutex& mutex() noexcept { return mutex_; }
  std::uint64_t next_id() noexcept { return next_id_.fetch_add(1); }
  backends::Signal take_word(Rank peer, Standing standing);
  void give_back_word(Rank peer, const backends::Signal& word);
  /// Like `take_word`, with the mutex.
  backends::Signal word_of(Rank peer, Standing standing);

  // For the user's thread.
  /// Announces a new end, and matches it. @throws Error{Code::misuse} for a duplicate
  void open(ChannelEnd& end);
  /// Closes the end. False: not possible within the limit; the caller may try again.
  bool close(ChannelEnd& end, base::Limit& limit);
  /// Makes the window known to peers. @throws Error{Code::misuse} for a duplicate
  void open(const std::shared_ptr<WindowCore>& window);
  /// Closes the window for all targets of peers. False: not possible within the limit; the caller may try again.
  bool close(WindowCore& window, base::Limit& limit);
  /// Memory was attached to the window. With the mutex.
  void add_piece(const WindowCore& window, const Piece& piece);
  /// Closes the piece for all targets of peers, as `close` does, and forgets it.
  bool detach(WindowCore& window, Piece& piece, base::Limit& limit);
  /// Opens a counter of a window, which has no peer.
  /// Returns the end of this counter that the window has used first.
  CounterEnd& open_alone(WindowCore& window, const std::shared_ptr<CounterEnd>& counter);
  /// With the mutex. @throws Error{Code::misuse} if this rank has ended
  void add_alone(ChannelEnd& end);
  void leave(WindowCore& window, const std::string& why);
  /// Called when the rank ends: open ends fail, and the peers lose them. Waits up to `limit` until the peers release
  /// the memory of this rank.
  void leave(const std::string& why, base::Limit& limit);
  /// Called when an end has failed: the engine repeats its poison and, if wanted, notifies the peer. Any thread.
  void notice_failure(const ChannelEnd& end, Code code, const std::string& what, bool tell_peer) noexcept;
  /// Called when an epoch was enqueued that will never complete, because the peer has closed.
  void look_again(ChannelEnd& end);

  /// Asks the peer of an end that waits how far its end has come, for the table of waits. Any thread.
  void ask(std::uint64_t end) noexcept;

  // With the mutex.
  void fail_all(Code code, const std::string& why);
  /// Like `fail_all` with Code::aborted, and tells every peer why, also those that connect later.
  void abort(const std::string& why);
  /// Like `fail_all`, and also fails the ends that are opened later.
  void doom(const std::string& why);
  /// From now on the engine checks the end now and then: a GPU's streams use it, or kernels count its epochs.
  void watch_stream(ChannelEnd& end) { streams_.insert(&end); }
  /// Sends the peer the reason why its target cannot be reached; empty: it can.
  void send_way(const ChannelEnd& end, const std::string& obstacle);
  /// How long the engine may sleep at most (ms); -1: no limit.
  int patience();
  /// Called by the engine's thread between turns.
  void serve();
  /// Fails the ends whose connection waits for a descriptor.
  void give_up_starving(const std::string& why);
  bool ended() const noexcept { return ended_; }
  /// After `serve`: wakes threads that close.
  void changed() noexcept { changed_.notify_all(); }

 private:
  struct ClosingEnd;
  struct Keys {
    backends::Key slots;
    std::optional<backends::Key> lengths;
  };
  /// Memory of a peer's end that is being unmapped without the mutex.
  struct Unmapping {
    Rank peer;  // of the job
    std::uint64_t remote_id;
    std::shared_ptr<std::atomic<bool>> done;
  };

  // Peers::Handler
  void linked(Peer& peer) override;
  void said(Peer& peer, Kind kind, Reader& message, std::vector<base::Fd> fds) override;
  void lost(Peer& peer) override;
  void unsent() override;

  Peer& peer_of(const ChannelEnd& end) { return peers_.at(end.opening.key.world_peer); }
  ChannelEnd* end_here(std::uint64_t id) const;
  ChannelEnd* end_of_peer(const Peer& peer, std::uint64_t remote_id) const;
  RemoteEnd* waiting_end(const Peer& peer, std::uint64_t remote_id);
  void lose(ChannelEnd& end, const Peer& peer);
  void on_opening(Peer& peer, Reader& message, std::vector<base::Fd> fds);
  void on_closing(Peer& peer, Reader& message);
  void on_failure(Peer& peer, Reader& message);
  Keys land(Peer& peer, ChannelEnd& end);
  void add(ChannelEnd& end);
  void take_out(const ChannelEnd& end) noexcept;
  void announce(ChannelEnd& end);
  void match_oldest(const ChannelKey& key);
  void connect(ChannelEnd& end, RemoteEnd remote);
  void see_all_of(const Peer& peer);

  template <class... Fields>
  void send(Peer& peer, Kind kind, const Fields&... fields) {
    Writer message(kind);
    (message.put(fields), ...);
    peers_.send(peer, {message.take(), {}});
  }
  void send_let_go(Peer& peer, std::uint64_t remote_id);
  void announce_closing(const ChannelEnd& end);
  void begin_closing(ChannelEnd& end);
  void admit(const ChannelKey& key);
  void admit_line(const ChannelKey& key);
  void join_agent(const ChannelKey& key);
  void refuse(const ChannelKey& key, Code code, const std::string& why);
  void turn_away(const Peer& peer, std::uint64_t remote_id);
  void begin_to_part(ChannelEnd& end);
  void forget_window_end(ChannelEnd& end);
  void admit_at(const ChannelKey& key, const std::string& scope, std::uint64_t offset);
  WindowCore* window_of(const ChannelEnd& end) const;
  template <class Which>
  bool close_ends(WindowCore& window, std::unique_lock<std::mutex>& lock, base::Limit& limit, Which which);
  void lose_target(const ChannelEnd& of_target, Code code, const std::string& what);
  void leave_in_front_of(const ChannelEnd& end);
  void let_go(ChannelEnd& end);
  void unmap_peer(ChannelEnd& end);
  void close_key(ChannelEnd& end);
  void advance_all();
  bool try_to_close(ChannelEnd& end);
  void end_unmappings();
  void forget(ChannelEnd& end);

  void send_failures();
  void repeat_poison();

  void send_questions();
  std::string openings_of(const Peer& peer) const;
  void on_question(Peer& peer, Reader& message);
  void on_answer(Reader& message);

  Engine& engine_;
  Peers& peers_;
  Failures& failures_;
  std::atomic<std::uint64_t> next_id_{1};

  base::Guarded<std::set<std::uint64_t>> asking_;  // numbers of ends

  std::mutex mutex_;  // everything below, and what the peers say, is guarded by it
  std::condition_variable changed_;
  std::map<std::uint64_t, ChannelEnd*> ends_;                      // open or closing, by number
  std::map<std::pair<Rank, std::uint64_t>, ChannelEnd*> by_peer_;  // those that are matched, by the peer's number
  std::map<ChannelKey, std::uint64_t> open_;                       // not yet closed by their user
  std::map<ChannelKey, std::deque<std::uint64_t>> waiting_here_;   // not matched, oldest first, also if closed
  std::map<ChannelKey, std::deque<RemoteEnd>> waiting_there_;
  std::map<std::pair<Rank, std::uint64_t>, ChannelKey> keys_there_;  // of those, by the peer's number
  std::map<Rank, std::vector<std::uint64_t>> unannounced_;           // their link is not ready; oldest first
  std::set<ChannelEnd*> closing_;  // their user or the peer has closed, or the peer has sent `let_go`
  std::set<ChannelEnd*> streams_;  // used on streams of GPUs, or counted by kernels
  std::map<std::string, std::shared_ptr<WindowCore>> windows_;  // open or closing, by scope; twice each
  std::vector<Unmapping> unmappings_;
  std::string doom_;
  base::Clock::time_point poison_due_{};
  int look_ms_ = 1;  // until the next look at what closes
  bool ended_ = false;
  std::atomic<bool> failing_{false};  // some end has failed: there is poison to repeat
};

}  // namespace sluice::runtime
