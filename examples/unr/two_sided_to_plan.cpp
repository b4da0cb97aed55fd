// SPDX-License-Identifier: Apache-2.0
// A message in a loop, first two-sided and then by a plan. Rank 0 sends a block of its memory, whose place is a
// function of its own, and rank 1 receives it at a place that is a function of its own. Neither rank ever learns the
// place at the other one.
// Source: Feng and others, "UNR: Unified Notifiable RMA Library for HPC", SC24, Code 1 and Code 2, written anew.
#include <sluice/sluice.hpp>
#include <sluice/unr.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <vector>

namespace {

using Word = std::uint64_t;
constexpr std::size_t kWords = 500, kBytes = kWords * sizeof(Word);
constexpr std::size_t kAllWords = 4000;
constexpr Word kIterations = 100;
constexpr sluice::Tag kData = 7;

// Offsets of the block in the memory of the sender and of the receiver, in bytes.
std::size_t f(int x) { return static_cast<std::size_t>(x * x % 53) * 8; }
std::size_t g(int y) { return static_cast<std::size_t>(y * 3 + 11) * 8; }

void compute(const sluice::Slice& block, Word iteration) {
  Word word = iteration;
  const auto words = block.as<Word>();
  for (Word& each : words) each = word = word * 6364136223846793005U + 1442695040888963407U;
}

Word sum_of(const sluice::Slice& block) {
  Word sum = 0;
  const auto words = block.as<Word>();
  for (const Word word : words) sum = sum * 31 + word;
  return sum;
}

// Code 1: a send and a receive in every iteration.
std::vector<Word> two_sided(sluice::Context& ctx, const sluice::Memory& memory) {
  std::vector<Word> sums;
  if (ctx.rank() == 0) {
    const sluice::Slice block = memory.slice(f(12), kBytes);
    sluice::Sender sender = ctx.sender(1, kData, block);
    for (Word i = 0; i < kIterations; ++i) {
      sender.acquire({});
      compute(block, i);
      sender.put({});
    }
  } else {
    const sluice::Slice block = memory.slice(g(5), kBytes);
    sluice::Receiver receiver = ctx.receiver(0, kData, block);
    for (Word i = 0; i < kIterations; ++i) {
      receiver.wait({});
      sums.push_back(sum_of(block));
      receiver.release({});
    }
  }
  return sums;
}

// Code 2: memory, signals and blocks are declared before the loop, in which the plan is started.
std::vector<Word> by_plan(sluice::Context& ctx, const sluice::Memory& memory) {
  std::vector<Word> sums;
  sluice::unr::Plan plan(ctx, "code 2");
  sluice::unr::Signal done = plan.signal("done", 1);  // triggered by 1 event
  const bool sends = ctx.rank() == 0;
  const sluice::Slice block = memory.slice(sends ? f(12) : g(5), kBytes);
  if (sends) plan.isend(block, 1, kData, done);
  if (!sends) plan.irecv(block, 0, kData, done);
  plan.commit();  // in place of the exchange of blocks
  for (Word i = 0; i < kIterations; ++i) {
    if (sends) {
      compute(block, i);
      plan.start();
      done.wait();
    } else {
      done.wait();
      sums.push_back(sum_of(block));
    }
    done.reset();
  }
  return sums;
}

}  // namespace

int main(int argc, char** argv) {
  return sluice::run(argc, argv, [](sluice::Context& ctx) {
    if (ctx.rank() > 1) return;
    if (ctx.size() < 2) throw std::runtime_error("two ranks are needed");
    const sluice::Memory memory = ctx.allocate(kAllWords * sizeof(Word));
    const std::vector<Word> expected = two_sided(ctx, memory);
    const sluice::Slice all = memory.all();
    std::ranges::fill(all.as<Word>(), Word{0});
    if (by_plan(ctx, memory) != expected) throw std::runtime_error("the plan has brought other numbers");
    if (ctx.rank() == 1) std::printf("two-sided and plan: %zu equal messages\n", expected.size());
  });
}
