// SPDX-License-Identifier: Apache-2.0
// What a GPU does for a channel where its streams' own operations cannot: what each kernel takes, and its body, which
// is compiled for CUDA, for HIP and, by the tests, for the host. A kernel takes its arguments as one struct, by value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_words.hpp"

namespace sluice::device {

/// Moves bytes and raises two words. A grid of one block of up to 1024 threads. Pointers of any alignment; the two
/// ranges do not overlap.
struct PutArgs {
  static constexpr const char* kKernel = "sluice_put";
  std::byte* to;
  const std::byte* from;
  std::uint64_t bytes;
  std::uint64_t* signal;  ///< where the receiver waits: raised when all bytes are there
  std::uint64_t epoch;
  std::uint64_t* done;  ///< where the sender looks, or null: raised after `signal`
  std::uint64_t done_epoch;
};

/// Polls until `word` is reached; a grid of one block of one thread, which holds a multiprocessor meanwhile. It ends at
/// the latest when the host stores the poison into `word` or raises `stop`.
struct WaitArgs {
  static constexpr const char* kKernel = "sluice_wait";
  const std::uint64_t* word;
  std::uint64_t at_least;
  const std::uint64_t* stop;  ///< or null
  std::uint64_t stop_at_least;
  std::uint64_t* passed;  ///< or null: raised when the wait is over
  std::uint64_t passed_value;
};

/// Stores a word, for words that the stream's own operation cannot write (a NIC's doorbell, say). One block of one
/// thread.
struct WriteArgs {
  static constexpr const char* kKernel = "sluice_write";
  std::uint64_t* word;
  std::uint64_t value;
};

namespace kernel {

struct alignas(16) [[gnu::may_alias]] Sixteen {
  std::uint64_t low, high;
};
using Eight [[gnu::may_alias]] = std::uint64_t;
using Four [[gnu::may_alias]] = std::uint32_t;

/// Four loads before the first store: a load takes far longer than the loop.
template <class Unit, class Block>
SLUICE_DEVICE void copy_units(const Block& block, Unit* to, const Unit* from, std::uint64_t count) {
  const std::uint64_t step = block.size();
  std::uint64_t i = block.index();
  for (; i + 3 * step < count; i += 4 * step) {
    const Unit a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    to[i] = a, to[i + step] = b, to[i + 2 * step] = c, to[i + 3 * step] = d;
  }
  for (; i < count; i += step) to[i] = from[i];
}

/// By units where both pointers are aligned to them, by bytes before and after. They are apart by a multiple of a unit.
template <class Unit, class Block>
SLUICE_DEVICE void copy_by(const Block& block, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const std::uint64_t to_aligned = (sizeof(Unit) - reinterpret_cast<std::uintptr_t>(to) % sizeof(Unit)) % sizeof(Unit);
  const std::uint64_t head = to_aligned < bytes ? to_aligned : bytes;
  const std::uint64_t units = (bytes - head) / sizeof(Unit);
  const std::uint64_t tail = head + units * sizeof(Unit);
  copy_units(block, to, from, head);
  copy_units(block, reinterpret_cast<Unit*>(to + head), reinterpret_cast<const Unit*>(from + head), units);
  copy_units(block, to + tail, from + tail, bytes - tail);
}

template <class Block>
SLUICE_DEVICE void copy(const Block& block, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const std::uintptr_t apart = reinterpret_cast<std::uintptr_t>(to) ^ reinterpret_cast<std::uintptr_t>(from);
  if (apart % 16 == 0) {
    copy_by<Sixteen>(block, to, from, bytes);
  } else if (apart % 8 == 0) {
    copy_by<Eight>(block, to, from, bytes);
  } else if (apart % 4 == 0) {
    copy_by<Four>(block, to, from, bytes);
  } else {
    copy_units(block, to, from, bytes);
  }
}

/// Every thread of the block runs it.
template <class Block>
SLUICE_DEVICE void put(const Block& block, const PutArgs& args) {
  copy(block, args.to, args.from, args.bytes);
  block.sync();
  if (block.index() != 0) return;
  store_release(*args.signal, args.epoch);
  if (args.done != nullptr) store_release(*args.done, args.done_epoch);
}

SLUICE_DEVICE void wait(const WaitArgs& args) {
  while (load_acquire(*args.word) < args.at_least) {
    if (args.stop != nullptr && load_acquire(*args.stop) >= args.stop_at_least) break;
    pause();
  }
  if (args.passed != nullptr) store_release(*args.passed, args.passed_value);
}

SLUICE_DEVICE void write(const WriteArgs& args) { store_release(*args.word, args.value); }

}  // namespace kernel
}  // namespace sluice::device
