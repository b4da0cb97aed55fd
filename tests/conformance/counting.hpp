// SPDX-License-Identifier: Apache-2.0
// Counts what a promise says does not happen: allocations of this process, and mutexes and system calls of one of its
// threads.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace sluice::test {

/// Calls of operator new, malloc and their like in this process so far, by any thread. 0 for ever where a sanitizer
/// replaces them.
std::uint64_t allocations() noexcept;

/// Mutexes that the calling thread has locked so far in the code of this program, of which Sluice is a part; libraries
/// that it has loaded are not counted. An attempt that never waits (try_lock) is not counted either. Always 0 where a
/// sanitizer replaces the functions.
std::uint64_t locks() noexcept;

/// The result of `counted_calls`.
struct SystemCalls {
  std::uint64_t count = 0;
  long first = -1;  ///< the number of the first of them
  std::uint64_t instructions = 0;
  std::uint64_t locked = 0;                 ///< of these, atomic read-modify-writes and full fences; only on x86-64
  std::uint64_t fetches = 0;                ///< of these, `prefetchw`; only on x86-64
  std::array<std::uint64_t, 2> accesses{};  ///< of the watched words
  int exit_code = 0;                        ///< of the child
  std::string why_not;                      ///< not empty: they could not be counted here
};

/// Between these two, the calling thread's system calls are counted.
void begin_counting() noexcept;
void end_counting() noexcept;

/// Other threads, which the main thread has started, while its instructions are counted.
enum class Others { go_on, stand_still };

/// Runs `work` in a child process, whose main thread is traced (ptrace). Threads that stand still do so from the next
/// system call on in which they sleep.
SystemCalls count_system_calls(const std::function<int()>& work, Others others = Others::go_on);

/// Between these two, inside `count_system_calls`, the calling thread's instructions are counted one by one.
void begin_stepping() noexcept;
void end_stepping() noexcept;

/// Between these two, inside `count_system_calls`, loads and stores of two words of 8 bytes by the calling thread are
/// counted, by the processor's debug registers. Only on x86-64.
void begin_watching(const void* first, const void* second) noexcept;
void end_watching() noexcept;

}  // namespace sluice::test
