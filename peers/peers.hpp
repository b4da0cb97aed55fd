// SPDX-License-Identifier: Apache-2.0
// The peers of a rank, and the wires to them: one wire in each direction, made when the first message is sent. So
// memory grows with the peers, not with the ranks. A peer is lost when its socket is closed or its process ends; a peer
// on another host also when it does not answer for a while.
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
  Wire out;
  Wire in;
  pid_t pid = 0;                ///< of its process; 0: our own, or one that cannot be watched
  base::Fd process;             ///< readable once the process has ended: its sockets may be open in its children
  bool greeted = false;         ///< our greeting is sent, or the first of `unsent`
  bool wanted = false;          ///< there are messages for the peer
  bool stalled = false;         ///< sending failed for a lack of memory or descriptors
  bool starved = false;         ///< connecting, sending or receiving waits for a descriptor
  bool complained = false;      ///< the log says that the peer cannot be reached for now
  Clock::time_point sought;     ///< on another host: when we first tried to connect
  Clock::time_point next_call;  ///< on another host: when to connect anew
  bool lost = false;
  std::string why_lost;
  std::string last_words;  ///< why it has aborted; empty: it has not
  std::deque<Packet> unsent;
  std::string backend;  ///< chosen
  std::unique_ptr<backends::Link> link;
  bool linked = false;       ///< the link is ready, or there is none, and the handler knows
  Clock::time_point tended;  ///< when to call the link's PathFinder next
  WordBook words;
};

class Peers {
 public:
  /// Receives the messages of peers.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void linked(Peer& peer) = 0;
    virtual void said(Peer& peer, Kind kind, Reader& message, std::vector<base::Fd> fds) = 0;
    virtual void lost(Peer& peer) = 0;
    /// A message waits until a socket has room: the thread that polls must call `prepare` anew.
    virtual void unsent() = 0;
  };

  /// @param timeout  a peer on another host that does not answer for this long is lost
  Peers(const Place& place, std::chrono::nanoseconds timeout, const backends::Transports& transports, Handler& handler)
      : place_(place), timeout_(timeout), transports_(transports), handler_(handler) {}

  /// Adds the peer to the table if it is new. Does not connect.
  Peer& at(Rank rank);
  /// Sends, or keeps for later. The first packet is the greeting.
  void send(Peer& peer, Packet packet);
  /// Tells all peers, also those that connect later, that this rank has aborted.
  void say_last_words(const std::string& why);
  /// True if there are last words that a peer has not been sent.
  bool owes_last_words() const;
  /// Connects to the peer unless this rank is connected.
  void reach(Peer& peer);

  /// Adds the sockets to poll; returns the timeout for `poll` (ms), -1: for ever.
  int prepare(std::vector<pollfd>& sockets) const;
  /// Receives from all peers. Returns false if a descriptor was lacking: what needs one waits.
  bool serve();
  /// How many more descriptors the known peers need once all are connected.
  std::size_t lacking() const noexcept;
  /// True if messages for the peer wait for a connection, perhaps for a lack of descriptors.
  static bool starves(const Peer& peer) noexcept {
    return !peer.lost && peer.wanted && (peer.starved || !peer.in || !peer.out);
  }
  /// Gives up the peers for which `starves` is true.
  void give_up_starving(const std::string& why);
  /// Sends as many of the waiting messages as the sockets take.
  void flush();
  void close() noexcept;

 private:
  bool here(const Peer& peer) const noexcept { return place_.roster.same_host(place_.rank, peer.rank); }
  void connect_here(Peer& peer);
  void call(Peer& peer);
  void call_failed(Peer& peer, int error);
  void flush(Peer& peer);
  void handle_closed_out(Peer& peer);
  Clock::time_point prepare(const Peer& peer, std::vector<pollfd>& sockets) const;
  void accept();
  void hear_callers();
  void take_callers();
  base::Fd accept_one(const base::Fd& listener);
  void hear(Peer& peer);
  void listen_to(Peer& peer);
  void identify(Wire& wire, const backends::Blob& packet);
  void tend(Peer& peer);
  void choose_backend(Peer& peer, Reader& greeting);
  /// @param how  follows "rank N" in `why_lost` @param error  errno, whose text is appended; 0: none
  void lose(Peer& peer, const std::string& how, int error = 0);

  const Place& place_;
  std::chrono::nanoseconds timeout_;
  const backends::Transports& transports_;
  Handler& handler_;
  std::map<Rank, Peer> peers_;
  std::vector<PendingConnection> pending_;
  std::string last_words_;  // of this rank; empty: none
  bool hears_callers_ = false;
  bool lack_ = false;  // accepting found no free descriptor since `serve` was called
};

}  // namespace sluice::runtime
