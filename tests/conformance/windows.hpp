// SPDX-License-Identifier: Apache-2.0
// Common to the tests of windows. Rank 0 owns the window, and uses it through a target of its own as the
// others do.
#pragma once

#include <cstring>
#include <set>
#include <vector>

#include "tests/conformance/cases.hpp"

namespace sluice::test {

inline constexpr std::size_t kWord = sizeof(std::uint64_t);
inline constexpr const char* kWindow = "window";

inline std::uint64_t word_at(std::span<const std::byte> bytes, std::size_t index) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + index * kWord, kWord);
  return word;
}

inline void set_word(std::span<std::byte> bytes, std::size_t index, std::uint64_t word) {
  std::memcpy(bytes.data() + index * kWord, &word, kWord);
}

/// The window of rank 0, and a target of it at every rank.
struct WindowSide {
  WindowSide(Context& in, const Case& one, std::size_t window_bytes, std::size_t local_bytes,
             std::uint32_t counters = 0, AtomicsOf atomics = AtomicsOf::programs)
      : context(in), order(one), memory(in, one, in.rank() == 0 ? window_bytes : kWord), local(in, one, local_bytes) {
    if (in.rank() == 0) window = in.window(kWindow, memory.all(), counters, atomics);
    target = in.target(0, kWindow);
  }

  void flush() {
    target.flush(order.stream());
    context.synchronize(order.stream());
  }
  /// Flushes, and returns when every rank has.
  void meet() {
    flush();
    board().meet(context);
  }
  Slice piece(std::size_t offset, std::size_t bytes) const { return local.all().slice(offset, bytes); }
  Stream stream() { return order.stream(); }

  Context& context;
  Order order;
  Buffer memory;  // rank 0's is the window's
  Buffer local;
  Window window;
  Target target;
};

/// On streams of GPUs, where streams fire all accesses.
inline std::vector<Case> of_windows() {
  std::vector<Case> all = memory_cases();  // with the networks that are named
  for (const Case& one : on(all_grounds(), memory_cases())) all.push_back(one);
  std::set<std::string> names;
  const auto by_streams = [](const Case& one) {
    return one.ground.name == "threads" || (one.ground.name == "shm" && !one.user);
  };
  std::erase_if(all,
                [&](const Case& one) { return (one.cuda && !by_streams(one)) || !names.insert(one.name()).second; });
  return all;
}

inline std::vector<Case> between_processes(std::vector<Case> cases) {
  std::erase_if(cases, [](const Case& one) { return !one.ground.processes; });
  return cases;
}

}  // namespace sluice::test
