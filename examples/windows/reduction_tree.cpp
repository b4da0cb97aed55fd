// SPDX-License-Identifier: Apache-2.0
// Sums over all ranks by a tree in which each rank has up to 16 children. A parent waits for notices by their number,
// from any source, and adds what its children have put; the sum then goes down the tree by the same means.
// Source: Belli, Hoefler, "Notified Access: Extending Remote Memory Access Programming Models for Producer-Consumer
// Synchronization", IPDPS 2015.
#include <sluice/sluice.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kChildren = 16, kRounds = 100;
constexpr sluice::Tag kUp = 0, kDown = 1;
constexpr std::chrono::seconds kLimit(30);
// The window of a rank: the sums of its children, and the sum of all ranks.
constexpr std::size_t kDouble = sizeof(double), kTotal = kChildren;

double number_of(int rank, int round) { return rank * 3 + round; }

double serial_sum(int ranks, int round) {
  double sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += number_of(rank, round);
  return sum;
}

void take(sluice::Window& window, sluice::Tag tag, std::size_t count) {
  if (window.match(sluice::kAnySource, tag, count, kLimit) != count) throw std::runtime_error("a notice is missing");
}

}  // namespace

int main(int argc, char** argv) {
  return sluice::run(argc, argv, [](sluice::Context& ctx) {
    const int first = kChildren * ctx.rank() + 1;  // the children of rank r are 16 r + 1 to 16 r + 16
    const int count = std::clamp(ctx.size() - first, 0, kChildren);
    const sluice::Memory memory = ctx.allocate((kChildren + 1) * kDouble), own = ctx.allocate(kDouble);
    const sluice::Slice window_slice = memory.all(), sum_slice = own.all();
    const sluice::Slice total_slice = memory.slice(kTotal * kDouble, kDouble);
    const auto numbers = window_slice.as<double>();
    double& sum = sum_slice.as<double>()[0];
    sluice::Window window = ctx.window("sums", window_slice);
    sluice::Target parent;
    if (ctx.rank() > 0) parent = ctx.target((ctx.rank() - 1) / kChildren, "sums");
    const std::size_t place = ctx.rank() > 0 ? static_cast<std::size_t>((ctx.rank() - 1) % kChildren) : 0;
    std::vector<sluice::Target> children;
    for (int child = first; child < first + count; ++child) children.push_back(ctx.target(child, "sums"));

    // A child begins the next round when it has the total of this one, and a parent sends the next total when all its
    // children have begun that round: so nobody overwrites what another still reads.
    for (int round = 0; round < kRounds; ++round) {
      take(window, kUp, children.size());
      sum = number_of(ctx.rank(), round);
      for (std::size_t child = 0; child < children.size(); ++child) sum += numbers[child];
      if (ctx.rank() > 0) {
        parent.put_tagged({}, sum_slice, place * kDouble, kUp);
        take(window, kDown, 1);
      } else {
        numbers[kTotal] = sum;
      }
      for (sluice::Target& child : children) child.put_tagged({}, total_slice, kTotal * kDouble, kDown);
      if (numbers[kTotal] != serial_sum(ctx.size(), round))
        throw std::runtime_error("round " + std::to_string(round) + ": wrong sum " + std::to_string(numbers[kTotal]));
    }
    if (ctx.rank() == 0) std::printf("reduction tree: %d sums of %d ranks\n", kRounds, ctx.size());
  });
}
