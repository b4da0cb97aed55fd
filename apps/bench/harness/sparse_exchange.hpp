// SPDX-License-Identifier: Apache-2.0
// The unit of the bench `sparse_exchange`, for Sluice and its rivals: a round in which every rank sends messages to
// some of the others, which do not know from whom, or how many. Every word of every message is checked as it is
// received. Source: Hoefler, Siebert, Lumsdaine, "Scalable Communication Protocols for Dynamic Sparse Data Exchange",
// PPoPP 2010.
//
// An Exchange is made by all ranks together, from (Workload, message bytes), with
//
//     std::byte* message(std::size_t i)    memory for the i-th message of this rank in a round
//     void run(to, receive)                sends message(i) to rank to[i], and calls receive(const std::byte*) for each
//                                          message that the others have sent to this rank in this round; returns when
//                                          it has received all of them, and its own may be changed
#pragma once

#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/harness/parts.hpp"

#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// Most messages that a rank sends in a round.
inline constexpr std::size_t kMostMessages = 8;

template <class Exchange>
class SparseContender : public Contender {
 public:
  template <class... More>
  explicit SparseContender(const Workload& workload, More&&... more)
      : rank_(workload.context.rank()), ranks_(workload.context.size()), words_(workload.bytes / sizeof(Word)),
        exchange_(workload, workload.bytes, std::forward<More>(more)...) {}

  std::string describe() const { return exchange_.describe(); }

  double run(long count) override {
    const double taken = timed_steps(count, [this] { run_round(); });
    if (wrong_ > 0)
      throw std::runtime_error("sparse_exchange: wrong messages in " + std::to_string(wrong_) + " rounds");
    return taken;
  }

 private:
  void run_round() {
    ++round_;
    Word missing = expected();
    to_.clear();
    each_message(rank_, [&](int to, Word number) {
      fill(exchange_.message(to_.size()), number);
      to_.push_back(to);
    });
    exchange_.run(std::span<const int>(to_), [&](const std::byte* message) { missing -= number_of(message); });
    wrong_ += static_cast<Word>(missing != 0);
  }

  /// Calls send(rank, number) for each message that `from` sends in this round. Its words are all that number.
  template <class Send>
  void each_message(int from, Send send) const {
    const std::size_t count = mix(round_, static_cast<Word>(from)) % (kMostMessages + 1);
    for (std::size_t i = 0; i < count; ++i) {
      const Word number = mix(round_, static_cast<Word>(from), i + 1);
      const int distance = 1 + static_cast<int>(number % static_cast<Word>(ranks_ - 1));
      send((from + distance) % ranks_, number);
    }
  }

  /// The sum of the numbers of all messages to this rank.
  Word expected() const {
    Word sum = 0;
    for (int from = 0; from < ranks_; ++from) {
      if (from != rank_) each_message(from, [&](int to, Word number) { sum += to == rank_ ? number : 0; });
    }
    return sum;
  }

  void fill(std::byte* message, Word number) const {
    for (std::size_t i = 0; i < words_; ++i) std::memcpy(message + i * sizeof(Word), &number, sizeof(Word));
  }

  /// The number of a message whose words are all alike; else one that no message has.
  Word number_of(const std::byte* message) const {
    Word first = 0;
    std::memcpy(&first, message, sizeof(Word));
    const bool alike = std::memcmp(message, message + sizeof(Word), (words_ - 1) * sizeof(Word)) == 0;
    return alike ? first : mix(first);
  }

  const int rank_;
  const int ranks_;
  const std::size_t words_;
  Exchange exchange_;
  std::vector<int> to_;
  Word round_ = 0;
  Word wrong_ = 0;
};

/// An Exchange by Parts (harness/parts.hpp): fetch_add reserves a place in the inbox of the receiver, where a put
/// writes the message; once all ranks have met, all messages are there. There are two inboxes, used in turn, so that
/// one is read while the next round fills the other.
template <class Parts>
class InboxExchange {
 public:
  template <class... More>
  InboxExchange(const Workload& workload, std::size_t bytes, More&&... more)
      : bytes_(bytes), places_(static_cast<std::size_t>(workload.context.size() - 1) * kMostMessages),
        parts_(workload, PartBytes{inbox_at(2), kMostMessages * bytes}, std::forward<More>(more)...) {
    parts_.meet();  // no rank reaches a part before it is there
  }

  std::string describe() const { return parts_.describe(); }
  std::byte* message(std::size_t i) { return parts_.local() + i * bytes_; }

  template <class Receive>
  void run(std::span<const int> to, Receive receive) {
    const std::size_t inbox = inbox_at(rounds_++ % 2);
    for (std::size_t i = 0; i < to.size(); ++i) {
      const auto place = static_cast<std::size_t>(parts_.fetch_add(to[i], inbox, 1));
      parts_.put(to[i], i * bytes_, bytes_, place_at(inbox, place));
    }
    parts_.meet();
    Word count = 0;
    std::memcpy(&count, parts_.part() + inbox, sizeof count);
    for (std::size_t place = 0; place < count; ++place) receive(parts_.part() + place_at(inbox, place));
    std::memset(parts_.part() + inbox, 0, sizeof count);  // before this rank meets the others in the next round
  }

 private:
  static constexpr std::size_t kLine = 64;
  std::size_t inbox_at(std::size_t inbox) const { return inbox * whole_pages(kLine + places_ * bytes_); }
  std::size_t place_at(std::size_t inbox, std::size_t place) const { return inbox + kLine + place * bytes_; }

  const std::size_t bytes_;
  const std::size_t places_;
  Parts parts_;
  std::size_t rounds_ = 0;
};

}  // namespace bench
