// SPDX-License-Identifier: Apache-2.0
// Programs of two ranks, by name. In each, rank 0 puts and rank 1 receives.
#pragma once

#include <sluice/sluice.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

constexpr std::size_t kWords = 64;
constexpr std::size_t kBytes = kWords * sizeof(std::uint64_t);
constexpr sluice::Tag kTag = 7;

// Loops of the program's own, so that its loads and stores are in its files.
inline void fill(const sluice::Slice& slot, std::uint64_t value) {
  for (std::uint64_t& word : slot.as<std::uint64_t>()) word = value;
}
inline std::uint64_t sum(const sluice::Slice& slot) {
  std::uint64_t all = 0;
  for (const std::uint64_t word : slot.as<std::uint64_t>()) all += word;
  return all;
}
/// Makes the compiler read the value, which is of no other use.
inline void keep(std::uint64_t value) { *static_cast<volatile std::uint64_t*>(&value) = value; }

/// The two ends, of one slot each.
struct Ends {
  explicit Ends(sluice::Context& ctx, sluice::ChannelOptions options = {})
      : memory(ctx.allocate(static_cast<std::size_t>(options.depth) * kBytes)) {
    if (ctx.rank() == 0) {
      out = ctx.sender(1, kTag, memory.slice(0, static_cast<std::size_t>(options.depth) * kBytes), options);
    } else {
      in = ctx.receiver(0, kTag, memory.slice(0, static_cast<std::size_t>(options.depth) * kBytes), options);
    }
  }

  sluice::Memory memory;
  sluice::Sender out;
  sluice::Receiver in;
};

struct Program {
  std::string_view name;
  void (*body)(sluice::Context&);
};

template <std::size_t N>
int run_named(int argc, char** argv, const Program (&programs)[N]) {
  const std::string_view name = argc == 2 ? argv[1] : "";
  const auto* const program = std::ranges::find(programs, name, &Program::name);
  if (program == std::end(programs)) {
    std::fprintf(stderr, "no program of this name\n");
    return 2;
  }
  return sluice::run(argc, argv, program->body);
}
