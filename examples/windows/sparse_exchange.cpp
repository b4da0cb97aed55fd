// SPDX-License-Identifier: Apache-2.0
// Dynamic sparse data exchange: in each round a rank sends messages to a few ranks, which do not know from whom, how
// many, or how long. A message goes into the inbox of its receiver, where fetch_add reserves the words for it. When a
// fence has completed, all messages have arrived: no rank has told all others what it sends.
// Source: Hoefler, Siebert, Lumsdaine, "Scalable Communication Protocols for Dynamic Sparse Data Exchange", PPoPP 2010.
#include <sluice/sluice.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Word = std::uint64_t;
constexpr std::size_t kWord = sizeof(Word);
constexpr int kRounds = 20, kMessages = 3, kMostWords = 30;
constexpr std::size_t kSlot = 2 + kMostWords;  // words of the longest message: the sender, the length, and the contents

struct Message {
  int from, to;
  std::vector<Word> contents;
  auto operator<=>(const Message&) const = default;
};

// What `rank` sends in `round`: the sender alone calls it to send, and the others to check.
std::vector<Message> messages_of(int rank, int ranks, int round) {
  std::mt19937 random(static_cast<unsigned>(round * ranks + rank));
  std::vector<Message> messages(kMessages);
  for (Message& message : messages) {
    message.from = rank;
    message.to = static_cast<int>(random() % static_cast<unsigned>(ranks));
    message.contents.resize(random() % (kMostWords + 1));
    for (Word& word : message.contents) word = random();
  }
  return messages;
}

// `buffer` must stay as it is until the put has completed.
void send(sluice::Target& receiver, const Message& message, const sluice::Slice& buffer) {
  const std::size_t length = message.contents.size();
  const auto words = buffer.as<Word>();
  words[0] = static_cast<Word>(message.from);
  words[1] = length;
  std::copy(message.contents.begin(), message.contents.end(), words.begin() + 2);
  const Word place = receiver.fetch_add(0, 2 + length);  // words in use before
  receiver.put({}, buffer.slice(0, (2 + length) * kWord), (1 + place) * kWord);
}

std::vector<Message> read(std::span<const Word> inbox, int rank) {
  std::vector<Message> messages;
  for (std::span<const Word> rest = inbox.subspan(1, inbox[0]); !rest.empty();) {
    if (rest.size() < 2 || rest[1] > rest.size() - 2) throw std::runtime_error("a message has a wrong length");
    const auto contents = rest.subspan(2, rest[1]);
    messages.push_back({static_cast<int>(rest[0]), rank, {contents.begin(), contents.end()}});
    rest = rest.subspan(2 + contents.size());
  }
  return messages;
}

std::vector<Message> expected(int rank, int ranks, int round) {
  std::vector<Message> messages;
  for (int from = 0; from < ranks; ++from)
    for (Message& message : messages_of(from, ranks, round))
      if (message.to == rank) messages.push_back(std::move(message));
  return messages;
}

}  // namespace

int main(int argc, char** argv) {
  return sluice::run(argc, argv, [](sluice::Context& ctx) {
    const auto most = static_cast<std::size_t>(ctx.size()) * kMessages;  // they may all be for one rank
    const sluice::Memory memory = ctx.allocate((1 + most * kSlot) * kWord);
    const sluice::Memory buffers = ctx.allocate(kMessages * kSlot * kWord);
    const sluice::Slice inbox = memory.all();  // its first word counts the others that are in use
    sluice::CollectiveWindow window(ctx, "inbox", inbox);

    std::size_t count = 0;
    for (int round = 0; round < kRounds; ++round) {
      std::size_t slot = 0;
      for (const Message& message : messages_of(ctx.rank(), ctx.size(), round))
        send(window.target(message.to), message, buffers.slice(slot++ * kSlot * kWord, kSlot * kWord));
      window.fence();  // all messages of this round are here

      std::vector<Message> got = read(inbox.as<Word>(), ctx.rank());
      std::vector<Message> wanted = expected(ctx.rank(), ctx.size(), round);
      std::sort(got.begin(), got.end());  // they arrive in any order
      std::sort(wanted.begin(), wanted.end());
      if (got != wanted) throw std::runtime_error("wrong messages in round " + std::to_string(round));
      count += got.size();
      window.target(ctx.rank()).swap(0, 0U);  // the inbox is empty; a word of atomics is changed by atomics alone
      window.fence();                         // of all ranks, before the next round begins
    }
    if (ctx.rank() == 0) std::printf("sparse exchange: rank 0 got %zu messages in %d rounds\n", count, kRounds);
    window.close();
  });
}
