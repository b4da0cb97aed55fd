// SPDX-License-Identifier: Apache-2.0
// The ends of channels that are open in this rank: how the two ends of a channel find each other, and how they part.
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

#include "peers/peers.hpp"
#include "runtime/channel.hpp"
#include "runtime/failure.hpp"

namespace sluice::runtime {

/// Ends are owned by their handles; the registry has plain pointers, used under its mutex. All that is not called on
/// the hot path of a channel is guarded by that mutex.
class Registry final : public Peers::Audience {
 public:
  Registry(Engine& engine, Peers& peers, Failures& failures) : engine_(engine), peers_(peers), failures_(failures) {}

  std::mutex& mutex() noexcept { return mutex_; }
  std::uint64_t next_id() noexcept { return next_id_.fetch_add(1); }
  backends::Signal take_word(Rank peer, Standing standing);
  void give_back_word(Rank peer, const backends::Signal& word);

  // For the user's thread.
  /// Announces a new end, and matches it. @throws Error{Code::misuse} for a duplicate
  void open(const std::shared_ptr<ChannelEnd>& end);
  /// Closes it: false if that was not possible within the limit, and may be tried again.
  bool close(ChannelEnd& end, base::Limit& limit);
  /// The rank ends: what is still open fails, and is lost to the peers. Waits up to `limit` for them to let go.
  void leave(const std::string& why, base::Limit& limit);
  /// The end has failed: the engine repeats its poison and, if wanted, tells the peer. Any thread.
  void notice_failure(const ChannelEnd& end, Code code, const std::string& what, bool tell_peer) noexcept;
  /// An epoch was enqueued that the peer's closing makes impossible.
  void look_again(ChannelEnd& end);

  // With the mutex.
  void fail_all(Code code, const std::string& why);
  /// Fails the ends that are opened later, too.
  void doom(const std::string& why);
  /// The end is used on a GPU's streams, or counted by kernels: the engine asks it now and then.
  void watch_stream(ChannelEnd& end) { streams_.insert(&end); }
  /// Tells the peer why its target cannot be reached; empty: it is.
  void tell_way(const ChannelEnd& end, const std::string& obstacle);
  /// How long the engine may sleep at most (ms); -1: no limit.
  int patience();
  /// What the engine's thread does between turns.
  void serve();
  /// Fails what waits for a connection that lacks a descriptor.
  void give_up_starving(const std::string& why);
  bool ended() const noexcept { return ended_; }
  /// After `serve`: wakes threads that close.
  void changed() noexcept { changed_.notify_all(); }

 private:
  class ClosingEnd;
  /// What is held of a peer's end, and is being let go of without the mutex.
  struct Parting {
    Rank peer;  // of the job
    std::uint64_t remote_id;
    std::shared_ptr<std::atomic<bool>> over;
  };

  // Peers::Audience
  void linked(Peer& peer) override;
  void said(Peer& peer, Kind kind, Reader& message, std::vector<base::Fd> fds) override;
  void lost(Peer& peer) override;
  void unsent() override;

  Peer& peer_of(const ChannelEnd& end) { return peers_.at(end.opening.key.world_peer); }
  ChannelEnd* end_here(std::uint64_t id) const;
  ChannelEnd* end_of_peer(const Peer& peer, std::uint64_t remote_id) const;
  RemoteEnd* waiting_end(const Peer& peer, std::uint64_t remote_id);
  void on_opening(Peer& peer, Reader& message, std::vector<base::Fd> fds);
  void on_closing(Peer& peer, Reader& message);
  void on_failure(Peer& peer, Reader& message);
  backends::Key land(Peer& peer, ChannelEnd& end);
  void announce(ChannelEnd& end);
  void match(ChannelEnd& end, RemoteEnd remote);
  void see_all_of(const Peer& peer);

  void tell(Peer& peer, Writer& message) { peers_.send(peer, {message.take(), {}}); }
  void tell_let_go(Peer& peer, std::uint64_t remote_id);
  void announce_closing(const ChannelEnd& end);
  void begin_closing(ChannelEnd& end);
  void let_go(ChannelEnd& end);
  void part(ChannelEnd& end);
  void close_key(ChannelEnd& end);
  void advance_all();
  bool is_over(ChannelEnd& end);
  void end_partings();
  void forget(ChannelEnd& end);

  void send_failures();
  void repeat_poison();

  Engine& engine_;
  Peers& peers_;
  Failures& failures_;
  std::atomic<std::uint64_t> next_id_{1};

  std::mutex mutex_;  // everything below, and what the peers say, is guarded by it
  std::condition_variable changed_;
  std::map<std::uint64_t, ChannelEnd*> ends_;                      // open or closing, by number
  std::map<std::pair<Rank, std::uint64_t>, ChannelEnd*> by_peer_;  // those that are matched, by the peer's number
  std::map<ChannelKey, std::uint64_t> open_;                       // not yet closed by their user
  std::map<ChannelKey, std::deque<std::uint64_t>> waiting_here_;   // not matched, oldest first, also if closed
  std::map<ChannelKey, std::deque<RemoteEnd>> waiting_there_;
  std::set<ChannelEnd*> closing_;  // either end of whose channel is closed, or has let go
  std::set<ChannelEnd*> streams_;  // used on streams of GPUs, or counted by kernels
  std::vector<Parting> partings_;
  std::string doom_;
  base::Clock::time_point poison_due_{};
  int look_ms_ = 1;  // until the next look at what closes
  bool ended_ = false;
  std::atomic<bool> failing_{false};  // some end has failed: there is poison to repeat
};

}  // namespace sluice::runtime
