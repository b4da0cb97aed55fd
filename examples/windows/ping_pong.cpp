// SPDX-License-Identifier: Apache-2.0
// Ping-pongs with uneven calculation. Ranks 2 r and 2 r + 1 play with several balls at a time. A ball is an array of
// numbers; who gets it calculates for a time that varies, and puts it back by put_notify. Each ball has a counter and a
// stream of its own, so that a long calculation on one ball holds up no other ball.
// Source: Feng and others, "UNR: Unified Notifiable RMA Library for HPC", SC24.
#include <sluice/sluice.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Word = std::uint64_t;
constexpr std::size_t kWords = 1024, kBytes = kWords * sizeof(Word);
constexpr std::uint32_t kBalls = 2;
constexpr unsigned kHops = 100;  // even: a ball ends where it began

// How often each number is changed before a hop: as in the paper, a normal distribution.
int length_of(std::uint32_t ball, unsigned hop) {
  std::mt19937 random(ball * kHops + hop);
  return static_cast<int>(std::clamp(std::normal_distribution<>(20, 6)(random), 1.0, 40.0));
}

// `from` and `to` may be the same. The generator is that of Knuth's MMIX.
void calculate(const Word* from, Word* to, int length) {
  for (std::size_t i = 0; i < kWords; ++i) {
    Word word = from[i];
    for (int step = 0; step < length; ++step) word = word * 6364136223846793005U + 1442695040888963407U;
    to[i] = word;
  }
}

std::vector<Word> new_ball(int rank, std::uint32_t ball) {
  std::vector<Word> words(kWords);
  for (std::size_t i = 0; i < kWords; ++i) words[i] = (static_cast<Word>(rank) * kBalls + ball) * kWords + i;
  return words;
}

std::vector<Word> serial_ball(int rank, std::uint32_t ball) {
  std::vector<Word> words = new_ball(rank, ball);
  for (unsigned hop = 0; hop < kHops; ++hop) calculate(words.data(), words.data(), length_of(ball, hop));
  return words;
}

}  // namespace

int main(int argc, char** argv) {
  return sluice::run(argc, argv, [](sluice::Context& ctx) {
    const int partner = ctx.rank() ^ 1;
    if (partner >= ctx.size()) return;  // the last of an odd number of ranks
    const bool serves = ctx.rank() % 2 == 0;
    const sluice::Memory memory = ctx.allocate(kBalls * kBytes), outgoing = ctx.allocate(kBalls * kBytes);
    const sluice::Slice all = memory.all(), out = outgoing.all();
    sluice::Window window = ctx.window("balls", all, kBalls);

    // A rank changes its `out` when the ball has come back, and the put has completed; the partner, which has put the
    // ball back, no longer reads the window.
    std::vector<sluice::HostStream> threads(kBalls);
    std::vector<sluice::Target> targets;
    for (std::uint32_t ball = 0; ball < kBalls; ++ball) {
      const sluice::Stream stream = sluice::Stream::host(threads[ball]);
      sluice::Target& target = targets.emplace_back(ctx.target(partner, "balls"));
      Word* const here = all.as<Word>().data() + ball * kWords;
      Word* const there = out.as<Word>().data() + ball * kWords;
      const sluice::Slice source = outgoing.slice(ball * kBytes, kBytes);
      const std::vector<Word> start = new_ball(ctx.rank(), ball);
      if (serves) std::copy(start.begin(), start.end(), here);

      // All hops are enqueued at once. In hop 0, 2, 4 ... the even rank calculates.
      std::uint64_t got = 0;
      for (unsigned hop = serves ? 0 : 1; hop < kHops; hop += 2) {
        if (hop > 0) window.wait(stream, ball, ++got);
        threads[ball].run([here, there, length = length_of(ball, hop)] { calculate(here, there, length); });
        target.put_notify(stream, source, ball * kBytes, ball);
      }
      if (serves) window.wait(stream, ball, ++got);
    }
    for (sluice::HostStream& thread : threads) ctx.synchronize(sluice::Stream::host(thread));

    for (std::uint32_t ball = 0; serves && ball < kBalls; ++ball) {
      const std::vector<Word> expected = serial_ball(ctx.rank(), ball);
      const auto words = all.as<Word>().subspan(ball * kWords, kWords);
      if (!std::equal(expected.begin(), expected.end(), words.begin()))
        throw std::runtime_error("ball " + std::to_string(ball) + " has wrong numbers");
    }
    if (ctx.rank() == 0) std::printf("ping-pong: %u balls, %u hops each\n", kBalls, kHops);
  });
}
