// SPDX-License-Identifier: Apache-2.0
// The ranks that this one talks to, and the wires to them. One wire each way, made when one of the two first has
// something to say: memory grows with the peers, not with the ranks. The end of the peer's socket is how its death is
// noticed, or that of its process; of a peer on another host also that it does not answer for a while.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/words.hpp"
#include "peers/bootstrap.hpp"
#include "peers/message.hpp"
#include "peers/wire.hpp"
#include "peers/word_book.hpp"

namespace sluice::runtime {

struct Packet {
  backends::Blob bytes;
  std::vector<int> fds;  ///< borrowed
};

/// One peer of this rank.
struct Peer {
  Rank rank = 0;
  Wire out;                        ///< ours to it
  Wire in;                         ///< its to us
  pid_t pid = 0;                   ///< of its process; 0: ours, or not to be watched
  base::Fd process;                ///< readable once that has ended: a child that it forked may hold its sockets open
  bool greeted = false;            ///< we have sent our greeting
  bool wanted = false;             ///< there is something to say
  bool stalled = false;            ///< it could not be said, for a lack of resources
  bool starved = false;            ///< something of it waits for a descriptor
  bool complained = false;         ///< in the log, that it cannot be reached for now
  base::Clock::time_point sought;  ///< on another host: since when we call it
  base::Clock::time_point next_call;  ///< and when to call it once more
  bool lost = false;
  std::string why_lost;
  std::deque<Packet> unsent;
  std::string backend;  ///< chosen
  std::unique_ptr<backends::Link> link;
  bool linked = false;             ///< the link is ready, or there is none, and the audience knows
  base::Clock::time_point tended;  ///< when the link is to be tended next
  WordBook words;
};

class Peers {
 public:
  /// Who is told what the peers say.
  class Audience {
   public:
    virtual ~Audience() = default;
    virtual void linked(Peer& peer) = 0;
    virtual void said(Peer& peer, Kind kind, Reader& message, std::vector<base::Fd> fds) = 0;
    virtual void lost(Peer& peer) = 0;
    /// Something waits until a socket has room: who sleeps for the sockets must look at them anew.
    virtual void unsent() = 0;
  };

  /// @param timeout  a peer on another host that does not answer for this long is lost
  Peers(const Place& place, std::chrono::nanoseconds timeout, const backends::Transports& transports,
        Audience& audience)
      : place_(place), timeout_(timeout), transports_(transports), audience_(audience) {}

  /// The peer, known from now on. Does not talk to it yet.
  Peer& at(Rank rank);
  /// Sends, or keeps for later. The first packet is the greeting.
  void send(Peer& peer, Packet packet);
  /// Makes sure that the peer is talked to.
  void reach(Peer& peer);

  /// Which sockets to wait for; returns for how long at most (ms), -1: no limit.
  int prepare(std::vector<pollfd>& sockets) const;
  /// Hears them all. False: a descriptor was lacking for something, which waits.
  bool serve();
  /// How many descriptors the known peers still take, if all is well.
  std::size_t lacking() const noexcept;
  /// True if the peer cannot be talked to, perhaps for a lack of descriptors.
  static bool starves(const Peer& peer) noexcept {
    return !peer.lost && peer.wanted && (peer.starved || !peer.in || !peer.out);
  }
  /// Loses those peers.
  void give_up_starving(const std::string& why);
  /// What could not be sent yet, as far as it goes.
  void flush();
  void close() noexcept;

 private:
  bool here(const Peer& peer) const noexcept { return place_.roster.same_host(place_.rank, peer.rank); }
  void connect_here(Peer& peer);
  void starve(Peer& peer);
  void call(Peer& peer);
  void complain(Peer& peer, int error) const;
  void call_failed(Peer& peer, int error);
  void flush(Peer& peer);
  void out_is_over(Peer& peer);
  base::Clock::time_point prepare(const Peer& peer, std::vector<pollfd>& sockets) const;
  void accept();
  base::Fd accept_one(const base::Fd& listener);
  void hear(Peer& peer);
  void listen_to(Peer& peer);
  void hear_pending();
  void identify(Wire& wire, const backends::Blob& packet);
  void greet(Peer& peer, Reader& greeting);
  void tend(Peer& peer);
  void choose_backend(Peer& peer, const std::vector<std::pair<std::string, backends::Blob>>& theirs);
  /// @param how  what follows the peer's name in the text of errors @param error  an errno, to be added; 0: none
  void lose(Peer& peer, const std::string& how, int error = 0);
  Packet greeting() const;

  const Place& place_;
  std::chrono::nanoseconds timeout_;
  const backends::Transports& transports_;
  Audience& audience_;
  std::map<Rank, Peer> peers_;
  std::vector<PendingConnection> pending_;
  bool lack_ = false;  // of descriptors, since `serve` was called
};

}  // namespace sluice::runtime
