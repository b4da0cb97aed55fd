// SPDX-License-Identifier: Apache-2.0
#include "backends/mpi/station.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/copy.hpp"
#include "base/log.hpp"

namespace sluice::backends::mpi {
namespace {

/// How long the better reason for a failure is waited for, and at the end for what is still leaving.
constexpr auto kMoment = std::chrono::seconds(1);

}  // namespace

Station::~Station() {
  const auto deadline = base::Clock::now() + kMoment;
  while (!outgoing_.empty() && broken_.empty() && base::Clock::now() < deadline) {
    poll();
    std::this_thread::yield();
  }
  for (auto& one : outgoing_) {
    messages_->abandon(one->of_head, false);
    messages_->abandon(one->of_body, false);
  }
  for (Incoming& one : incoming_) messages_->abandon(one.operation, true);
}

std::uint64_t Station::add(Party& party) {
  parties_[++last_number_] = &party;
  return last_number_;
}

void Station::remove(std::uint64_t number) noexcept {
  abandon(number, [](std::uint64_t) {});
  parties_.erase(number);
}

Party* Station::find(std::uint64_t number) const noexcept {
  const auto found = parties_.find(number);
  return found == parties_.end() ? nullptr : found->second;
}

// ---- sending

void Station::send(const Address& to, Head head, std::span<const std::byte> payload) {
  if (!broken_.empty()) throw std::runtime_error(broken_);
  if (unused_.empty()) unused_.push_back(std::make_unique<Outgoing>());
  Outgoing& one = *unused_.back();
  head.station = address().station;
  std::memcpy(one.head.data(), &head, sizeof head);
  const bool in_head = payload.size() <= kMostInHead;
  if (in_head && !payload.empty()) base::copy_bytes(one.head.data() + sizeof head, payload.data(), payload.size());
  one.to = to;
  one.party = head.from;
  one.epoch = head.epoch;
  const std::size_t bytes = sizeof head + (in_head ? payload.size() : 0);
  outgoing_.push_back(std::move(unused_.back()));
  unused_.pop_back();
  try {
    messages_->send(to, std::span(one.head).first(bytes), one.of_head, in_head ? std::span<const std::byte>() : payload,
                    one.of_body);
  } catch (const std::exception& reason) {
    const bool without_body = !one.of_head.empty();  // its receiver takes the next body for that of this head
    messages_->abandon(one.of_head, false);
    messages_->abandon(one.of_body, false);
    failed_.push_back(std::move(outgoing_.back()));
    outgoing_.pop_back();
    if (without_body) break_off(reason.what());
    throw;
  }
  if (has_left(one)) {
    unused_.push_back(std::move(outgoing_.back()));
    outgoing_.pop_back();
  }
}

void Station::answer(const Address& to, const Head& head, std::span<const std::byte> payload) noexcept {
  try {
    send(to, head, payload);
  } catch (const std::exception& reason) {
    base::log(base::LogLevel::warn, std::string("mpi: an answer was not sent: ") + reason.what());
    suspect_all(to, reason.what());
  }
}

/// Tells the party when its payload has left.
bool Station::has_left(Outgoing& one) {
  try {
    if (!one.of_head.empty()) messages_->ended(one.of_head);
    if (!one.of_body.empty() && messages_->ended(one.of_body)) {
      if (Party* const party = find(one.party)) party->left(one.epoch);
    }
  } catch (const std::runtime_error& reason) {
    const bool body = !one.of_body.empty();
    messages_->abandon(one.of_head, false);
    messages_->abandon(one.of_body, false);
    suspect_all(one.to, reason.what());
    if (Party* const party = find(one.party)) {
      party->refused(reason.what());
      if (body) party->left(one.epoch);
    }
  }
  return one.of_head.empty() && one.of_body.empty();
}

void Station::end_sends() {
  for (std::size_t i = 0; i < outgoing_.size();) {
    if (!has_left(*outgoing_[i])) {
      ++i;
      continue;
    }
    unused_.push_back(std::move(outgoing_[i]));
    outgoing_[i] = std::move(outgoing_.back());
    outgoing_.pop_back();
  }
}

// ---- receiving

void Station::receive_all() {
  constexpr int kAtMost = 64;  // in one turn, which has more to do
  for (int i = 0; i < kAtMost; ++i) {
    const Messages::Arrived arrived = messages_->next();
    if (arrived.head.empty()) return;
    dispatch(arrived);
  }
}

void Station::dispatch(const Messages::Arrived& arrived) {
  Head head;
  if (arrived.head.size() < sizeof head) return;
  std::memcpy(&head, arrived.head.data(), sizeof head);
  Address sender = address();
  sender.rank = arrived.from;
  sender.station = head.station;
  if (!head.has_payload() || head.bytes == 0) return hand_over(head, sender, true);
  Party* const party = find(head.to);
  std::byte* const room = party == nullptr ? nullptr : party->room(head);
  if (head.bytes <= kMostInHead) {
    const auto payload = arrived.head.subspan(sizeof head);
    const bool placed = room != nullptr && payload.size() == head.bytes;
    if (placed) base::copy_bytes(room, payload.data(), payload.size());
    return hand_over(head, sender, placed);
  }
  Incoming one{{}, head, sender, {}};
  if (room == nullptr) one.nowhere.resize(head.bytes);  // its sender waits until the body is received
  messages_->receive(arrived.from, {room == nullptr ? one.nowhere.data() : room, head.bytes}, one.operation);
  incoming_.push_back(std::move(one));
}

void Station::end_receives() {
  for (std::size_t i = 0; i < incoming_.size();) {
    std::string why_not;
    if (!has_arrived(incoming_[i], why_not)) {
      ++i;
      continue;
    }
    const Incoming one = std::move(incoming_[i]);
    incoming_.erase(incoming_.begin() + static_cast<std::ptrdiff_t>(i));  // in order: signals of one channel rise once
    if (why_not.empty()) {
      hand_over(one.head, one.sender, one.nowhere.empty());
    } else {
      suspect_all(one.sender, why_not);
    }
  }
}

/// `why_not`: why it never will.
bool Station::has_arrived(Incoming& one, std::string& why_not) {
  try {
    return messages_->ended(one.operation);
  } catch (const std::runtime_error& reason) {
    messages_->abandon(one.operation, true);
    why_not = reason.what();
    return true;
  }
}

void Station::hand_over(const Head& head, const Address& sender, bool placed) {
  if (Party* const party = find(head.to)) {
    party->deliver(head, sender, placed);
  } else {
    answer_for_nobody(head, sender);
  }
}

/// The party has gone, after its peer was lost. A peer that lives all the same gets its answers.
void Station::answer_for_nobody(const Head& head, const Address& sender) noexcept {
  using Kind = Head::Kind;
  if (head.kind == Kind::ask) answer(sender, {.kind = Kind::landed, .to = head.from, .epoch = head.epoch});
  if (head.kind == Kind::write || head.kind == Kind::read)
    answer(sender, {.kind = Kind::refused, .to = head.from, .epoch = head.epoch});
}

// ---- failures

void Station::leave(Destination& peer) noexcept {
  std::erase(troubled_, &peer);
  peers_.erase(&peer);
}

void Station::suspect(Destination& peer, const std::string& why) {
  if (peer.lost || !peer.suspicion.empty()) return;
  peer.suspicion = why;
  peer.verdict = base::Clock::now() + kMoment;
  troubled_.push_back(&peer);
}

void Station::suspect_all(const Address& sender, const std::string& why) {
  for (Destination* const peer : peers_) {
    if (peer->address.rank == sender.rank && peer->address.station == sender.station) suspect(*peer, why);
  }
}

void Station::lose(Destination& peer) {
  if (std::exchange(peer.lost, true)) return;
  if (peer.suspicion.empty()) troubled_.push_back(&peer);
}

void Station::judge() {
  const auto now = base::Clock::now();
  std::erase_if(troubled_, [&](Destination* peer) {
    if (!peer->lost && now < peer->verdict) return false;
    for (Mover* const mover : peer->movers) {
      if (!peer->lost) mover->fail(peer->suspicion);
      mover->give_up();
    }
    peer->suspicion.clear();
    return true;
  });
}

/// MPI has ended, or does not receive any more.
void Station::break_off(const std::string& why) {
  if (!broken_.empty()) return;
  broken_ = why;
  for (Destination* const peer : peers_) suspect(*peer, why);
}

AfterTurn Station::poll() {
  if (broken_.empty()) {
    try {
      receive_all();
      end_receives();
    } catch (const std::exception& reason) {
      break_off(reason.what());
    }
  }
  if (!broken_.empty()) {
    for (Incoming& one : incoming_) messages_->abandon(one.operation, true);
    incoming_.clear();
  }
  end_sends();
  if (!troubled_.empty()) judge();
  const bool work = !outgoing_.empty() || !incoming_.empty() || awaited != 0 || !troubled_.empty();
  return work ? AfterTurn::work : AfterTurn::nothing;
}

}  // namespace sluice::backends::mpi
