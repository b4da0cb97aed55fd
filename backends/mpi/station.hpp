// SPDX-License-Identifier: Apache-2.0
// All that a rank has open: its messages under way, its parties, to which messages are addressed, and its peers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backends/mpi/messages.hpp"
#include "backends/transport.hpp"

namespace sluice::backends::mpi {

/// Begins every message.
struct Head {
  enum class Kind : std::uint32_t {
    put,      ///< to a landing: bytes of an epoch, or none
    ask,      ///< to a landing: answer once all epochs up to this one have landed
    landed,   ///< to a put: they have
    write,    ///< to an offer: bytes for the memory
    read,     ///< to an offer: send bytes of the memory
    wrote,    ///< to an access: the bytes are in the memory
    data,     ///< to an access: the bytes of the memory
    refused,  ///< to an access: there is no such memory
  };

  Kind kind{};
  std::int32_t station = 0;  ///< the sender's, for answers
  std::uint64_t to = 0;      ///< number of the party that it is for
  std::uint64_t from = 0;    ///< number of the party that sent it
  std::uint64_t epoch = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;

  bool has_payload() const noexcept { return kind == Kind::put || kind == Kind::write || kind == Kind::data; }
};

/// A payload of at most so many bytes travels in the head, a longer one is the body.
constexpr std::size_t kMostInHead = Messages::kMostHead - sizeof(Head);

/// Gets messages. All calls come with the station's mutex, within the engine's turn.
class Party {
 public:
  virtual ~Party() = default;
  /// Returns the place for the payload of this message; null: it is dropped, since the message makes no sense.
  virtual std::byte* room(const Head& /*head*/) { return nullptr; }
  /// A message has arrived, with all its payload. `placed`: the payload is in its room, or there is none.
  virtual void deliver(const Head& head, const Address& sender, bool placed) = 0;
  /// The body of a message that this party sent with this epoch may be overwritten.
  virtual void left(std::uint64_t /*epoch*/) {}
  /// MPI has refused to move a message of this party.
  virtual void refused(const std::string& /*why*/) {}
};

/// Moves something to or from one peer: a put or an access.
class Mover : public Party {
 public:
  /// Within the engine's turn: nothing that is under way will be answered. Counts it as completed.
  virtual void give_up() = 0;
  /// Fails the channel.
  virtual void fail(const std::string& why) = 0;
};

/// A peer, and what uses the way to it.
struct Destination {
  Address address;
  std::unordered_set<Mover*> movers;
  std::string suspicion;              // why a message could not be sent; empty: all were
  base::Clock::time_point verdict{};  // when the movers fail for it
  bool lost = false;
};

class Station {
 public:
  explicit Station(std::unique_ptr<Messages> messages) : messages_(std::move(messages)) {}
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;
  /// Waits for a second, at most, for messages that are still leaving.
  ~Station();

  /// With the mutex: all that follows.
  std::mutex mutex;

  const Address& address() const noexcept { return messages_->address(); }

  /// Returns the party's number, by which peers address it, until `remove`.
  std::uint64_t add(Party& party);
  /// No message reaches it any more, and none of its messages is under way.
  void remove(std::uint64_t number) noexcept;

  /// Sends a message of the party `head.from`. If the payload is a body, it is read until the party's `left`, which
  /// may come in this call. @throws std::runtime_error
  void send(const Address& to, Head head, std::span<const std::byte> payload = {});
  /// Sends an answer. If that fails, so do the channels with that peer, which would wait for it for ever.
  void answer(const Address& to, const Head& head, std::span<const std::byte> payload = {}) noexcept;
  /// Ends all messages of the party; `each(epoch)` for those whose body had not left.
  template <class Each>
  void abandon(std::uint64_t number, Each each);

  void join(Destination& peer) { peers_.insert(&peer); }
  void leave(Destination& peer) noexcept;
  /// Messages to the peer are not sent. A peer that has died may be the reason, and its death is the better reason for
  /// the failure, so the movers fail a moment later.
  void suspect(Destination& peer, const std::string& why);
  void lose(Destination& peer);

  /// Receives, and ends what has left.
  AfterTurn poll();

  std::size_t awaited = 0;  ///< answers that parties wait for

 private:
  struct Outgoing {
    std::array<std::byte, Messages::kMostHead> head{};
    Messages::Operation of_head;
    Messages::Operation of_body;
    Address to;
    std::uint64_t party = 0;
    std::uint64_t epoch = 0;
  };
  struct Incoming {
    Messages::Operation operation;
    Head head;
    Address sender;
    std::vector<std::byte> nowhere;  // for the body of a message that makes no sense
  };

  Party* find(std::uint64_t number) const noexcept;
  bool has_left(Outgoing& one);
  void receive_all();
  void dispatch(const Messages::Arrived& arrived);
  void hand_over(const Head& head, const Address& sender, bool placed);
  void answer_for_nobody(const Head& head, const Address& sender) noexcept;
  void end_sends();
  void end_receives();
  bool has_arrived(Incoming& one, std::string& why_not);
  void suspect_all(const Address& sender, const std::string& why);
  void judge();
  /// From now on nothing is sent, and `poll` receives nothing.
  void break_off(const std::string& why);

  std::unique_ptr<Messages> messages_;
  std::string broken_;  // why MPI is not called any more
  std::uint64_t last_number_ = 0;
  std::unordered_map<std::uint64_t, Party*> parties_;
  std::vector<std::unique_ptr<Outgoing>> outgoing_;
  std::vector<std::unique_ptr<Outgoing>> unused_;
  std::vector<std::unique_ptr<Outgoing>> failed_;  // MPI may still read their heads
  std::vector<Incoming> incoming_;
  std::unordered_set<Destination*> peers_;
  std::vector<Destination*> troubled_;
};

template <class Each>
void Station::abandon(std::uint64_t number, Each each) {
  for (auto& one : outgoing_) {
    if (one->party != number || one->of_body.empty()) continue;
    messages_->abandon(one->of_body, false);
    each(one->epoch);
  }
  std::erase_if(incoming_, [&](Incoming& one) {
    if (one.head.to != number) return false;
    messages_->abandon(one.operation, true);
    return true;
  });
}

}  // namespace sluice::backends::mpi
