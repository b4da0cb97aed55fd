// SPDX-License-Identifier: Apache-2.0
// Kernels for the work on channels that a stream's own operations cannot do, or do more slowly: the arguments of each
// kernel, and its body, which is compiled for CUDA, for HIP and, by the tests, for the host. A kernel takes its
// arguments as one struct, by value.
//
// Captured plans consist of these kernels. A replay repeats the captured launches, so every epoch comes from memory
// (kernel::Count), and a kernel copies only after it has checked that it may.
#pragma once

#include <sluice/device.hpp>
#include <sluice/ops.hpp>

#include <cstddef>
#include <cstdint>

#include "device/arithmetic.hpp"

namespace sluice::device {

/// A value to store in a word, or to wait for.
struct WordValue {
  std::uint64_t* word;
  std::uint64_t value;
};

/// Stores a word, for words that the stream's own operation cannot write (a NIC's doorbell, say). One block of one
/// thread.
using WriteArgs = WordValue;

/// One of several puts of a kernel.
struct SmallPut {
  std::byte* to;
  const std::byte* from;
  std::uint64_t bytes;
  std::uint64_t words_end;  ///< its words begin at the end of the previous put's words
};

/// Puts whose credits the stream has waited for: bytes, and the words that signal them. A block for each put. The
/// arguments hold everything, so that no memory must be kept for the kernel.
template <std::size_t MostPuts>
struct SmallPuts {
  static constexpr std::size_t kMostPuts = MostPuts;
  static constexpr std::size_t kMostWords = 2 * MostPuts;
  SmallPut puts[kMostPuts];
  WordValue words[kMostWords];
};
struct SmallPutsArgs : SmallPuts<32> {};
static_assert(sizeof(SmallPutsArgs) <= 4096);  // a kernel takes no more

/// Like SmallPutsArgs, for one put or the puts of a small plan: the driver sends an eighth of the bytes.
struct FewPutsArgs : SmallPuts<4> {};

/// Operations on words, where kernels do them for the stream: waits, each until its word is reached, and stores, in
/// their order. Poison ends every wait. One block of one thread.
struct OperateArgs {
  static constexpr std::size_t kMost = 64;
  WordValue words[kMost];
  std::uint64_t count;
  std::uint64_t waits;  ///< a bit for each
};

/// Some ends of a plan that advance together. `step`: number of this start, or of this wait, in the program that uses
/// the slots. It counts modulo the slots; a channel that is at another slot waits until it has failed.
template <class End>
struct Ends {
  const End* ends;
  std::uint64_t count;
  std::uint64_t step;
  std::uint64_t eager;  ///< 1: the launch is no part of a graph
};

using OutArgs = Ends<kernel::Out>;
using InArgs = Ends<kernel::In>;

/// Numbers for a reduction. Any number of blocks.
struct ReduceArgs {
  enum class What : std::uint8_t {
    combine,  ///< to = first op second, number by number; `to` may be one of the two
    widen,    ///< float16 or bfloat16 to float32
    narrow    ///< the reverse
  };
  std::byte* to;
  const std::byte* first;
  const std::byte* second;
  std::uint64_t count;
  What what;
  Op op;
  Number number;  ///< for `combine`: not of 16 bits
};

/// An atomic on a word, by one thread, or on numbers, by any number of blocks.
struct ChangeArgs {
  enum class What : std::uint8_t { fetch_add, swap, compare_swap, accumulate };
  std::byte* there;
  std::byte* local;       ///< takes the word before; the operands of `accumulate`
  std::uint64_t operand;  ///< of a word
  std::uint64_t compare;  ///< of `compare_swap`
  std::uint64_t count;    ///< of numbers
  What what;
  Op op;
  Number number;  ///< not of 16 bits
};

}  // namespace sluice::device

namespace sluice::kernel {

SLUICE_DEVICE void write(const device::WriteArgs& args) { store_to_register(*args.word, args.value); }

SLUICE_DEVICE void operate(const device::OperateArgs& args) {
  for (std::uint64_t i = 0; i < args.count; ++i) {
    const device::WordValue& one = args.words[i];
    if ((args.waits >> i & 1) != 0) {
      poll(kUntilFailed, [&] { return load_acquire(*one.word) >= one.value; });
    } else {
      store_release(*one.word, one.value);
    }
  }
}

template <class Block, std::size_t Most>
SLUICE_DEVICE void small_put(const Block& block, const device::SmallPuts<Most>& args, std::uint32_t which) {
  copy(block, args.puts[which].to, args.puts[which].from, args.puts[which].bytes);
  block.sync();
  if (block.index() != 0) return;
  for (std::uint64_t i = which == 0 ? 0 : args.puts[which - 1].words_end; i < args.puts[which].words_end; ++i)
    store_release(*args.words[i].word, args.words[i].value);
}

/// True if the next epoch uses the expected slot. Otherwise reports the fault, and returns when the channel has failed:
/// the operations behind it would use a wrong slot.
template <class End>
SLUICE_DEVICE bool in_step(const End& end, const Count& count, std::uint64_t slots, std::uint64_t step,
                           const std::uint64_t& poisoned) {
  if ((count.begun + 1 - end.first) % slots == step % slots || load_acquire(count.closed) != 0) return true;
  store_release(*end.fault, 1);
  poll(kUntilFailed, [&] { return load_acquire(poisoned) >= kPoison || load_acquire(count.closed) != 0; });
  return false;
}

SLUICE_DEVICE bool in_step(const Out& out, std::uint64_t step) {
  return in_step(out, *out.count, out.source_slots, step, *out.credit);
}

/// Calls `work` for each end, each in one of the block's threads.
template <class Block, class End, class Work>
SLUICE_DEVICE void for_each(const Block& block, const device::Ends<End>& args, Work work) {
  for (std::uint64_t i = block.index(); i < args.count; i += block.size()) work(args.ends[i]);
}

/// Waits until the sources may be overwritten. One block.
template <class Block>
SLUICE_DEVICE void acquire(const Block& block, const device::OutArgs& args) {
  for_each(block, args, [&](const Out& out) {
    if (in_step(out, args.step)) await_source(out, kUntilFailed);
  });
}

SLUICE_DEVICE void count_eager(Count& count, std::uint64_t eager) { store_release(count.eager, count.eager + eager); }

SLUICE_DEVICE std::uint64_t begin_in_step(const Out& out, const device::OutArgs& args) {
  const bool begins = in_step(out, args.step);
  const std::uint64_t epoch = begins ? begin_put(out, kUntilFailed) : kFailed;
  count_eager(*out.count, args.eager);
  return epoch;
}

/// This block's share of the whole slot; `blocks` have one each.
template <class Block>
SLUICE_DEVICE void copy_share(const Block& block, const Out& out, std::uint64_t epoch, std::uint32_t share,
                              std::uint32_t blocks) {
  constexpr std::uint64_t kLine = 128;
  const std::uint64_t most = ((out.slot_bytes + blocks - 1) / blocks + kLine - 1) / kLine * kLine;
  const std::uint64_t begin = most * share;
  if (begin >= out.slot_bytes) return;
  const std::uint64_t left = out.slot_bytes - begin;
  copy(block, out.target + epoch % out.target_slots * out.target_stride + begin,
       out.source + epoch % out.source_slots * out.slot_bytes + begin, left < most ? left : most);
}

/// The whole put of each sender. A block for each.
template <class Block>
SLUICE_DEVICE void put(const Block& block, const device::OutArgs& args, std::uint32_t which) {
  const Out& out = args.ends[which];
  std::uint64_t epoch = 0;
  if (block.index() == 0) epoch = begin_in_step(out, args);
  epoch = block.from_first(epoch);
  if (epoch >= kFailed) return;
  if (!out.rings) copy_share(block, out, epoch, 0, 1);
  block.sync();
  if (block.index() == 0) end_put(out, epoch, 0, out.slot_bytes);
}

// The put of each sender as three kernels: waits for the credits (one block), copies (any number of blocks for each
// sender, in x), raises the signals (one block).
template <class Block>
SLUICE_DEVICE void begin_put(const Block& block, const device::OutArgs& args) {
  for_each(block, args, [&](const Out& out) {
    const std::uint64_t epoch = begin_in_step(out, args);
    out.count->moves = epoch >= kFailed ? 0 : epoch;
  });
}

template <class Block>
SLUICE_DEVICE void copy(const Block& block, const device::OutArgs& args, std::uint32_t which, std::uint32_t share,
                        std::uint32_t blocks) {
  const Out& out = args.ends[which];
  if (out.count->moves != 0 && !out.rings) copy_share(block, out, out.count->moves, share, blocks);
}

template <class Block>
SLUICE_DEVICE void end_put(const Block& block, const device::OutArgs& args) {
  for_each(block, args, [&](const Out& out) {
    if (out.count->moves != 0) end_put(out, out.count->moves, 0, out.slot_bytes);
  });
}

/// Waits for the next epoch of each receiver. One block.
template <class Block>
SLUICE_DEVICE void wait(const Block& block, const device::InArgs& args) {
  for_each(block, args, [&](const In& in) {
    if (in_step(in, *in.waits, in.slots, args.step, *in.signals[0])) begin_wait(in, kUntilFailed);
    count_eager(*in.waits, args.eager);
  });
}

/// Gives back the oldest epoch of each receiver. One block.
template <class Block>
SLUICE_DEVICE void release(const Block& block, const device::InArgs& args) {
  for_each(block, args, [&](const In& in) {
    give_back(in);
    count_eager(*in.releases, args.eager);
  });
}

/// The threads of all blocks of a grid.
template <class Block>
struct AllThreads {
  std::uint64_t block;
  std::uint64_t blocks;
  Block in_block;
  SLUICE_DEVICE std::uint64_t index() const { return block * in_block.size() + in_block.index(); }
  SLUICE_DEVICE std::uint64_t size() const { return blocks * in_block.size(); }
};

SLUICE_DEVICE bool aligned(const std::byte* at, std::uint64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(at) % bytes == 0;
}

template <class Convert>
SLUICE_DEVICE void convert(const auto& threads, const device::ReduceArgs& args, Convert one) {
  if (aligned(args.to, sizeof(typename Convert::To)) && aligned(args.first, sizeof(typename Convert::From)))
    return convert_numbers<true>(threads, args.to, args.first, args.count, one);
  convert_numbers<false>(threads, args.to, args.first, args.count, one);
}

template <class T>
SLUICE_DEVICE void combine(const auto& threads, const device::ReduceArgs& args) {
  const auto one = [op = args.op](T first, T second) {
    T result{};
    with_operation<T>(op, [&](auto operation) { result = operation(first, second); });
    return result;
  };
  if (aligned(args.to, sizeof(T)) && aligned(args.first, sizeof(T)) && aligned(args.second, sizeof(T)))
    return combine_numbers<T, true>(threads, args.to, args.first, args.second, args.count, one);
  combine_numbers<T, false>(threads, args.to, args.first, args.second, args.count, one);
}

SLUICE_DEVICE void combine_any(const auto& threads, const device::ReduceArgs& args) {
  switch (args.number) {
    case Number::int32: return combine<std::int32_t>(threads, args);
    case Number::uint32: return combine<std::uint32_t>(threads, args);
    case Number::int64: return combine<std::int64_t>(threads, args);
    case Number::uint64: return combine<std::uint64_t>(threads, args);
    case Number::float64: return combine<double>(threads, args);
    default: return combine<float>(threads, args);
  }
}

/// The share of block `which` of `blocks`.
template <class Block>
SLUICE_DEVICE void reduce(const Block& block, const device::ReduceArgs& args, std::uint32_t which,
                          std::uint32_t blocks) {
  using What = device::ReduceArgs::What;
  const AllThreads<Block> threads{which, blocks, block};
  const bool half = args.number == Number::float16;
  if (args.what == What::combine) return combine_any(threads, args);
  if (args.what == What::widen && half) return convert(threads, args, Widen<Number::float16>());
  if (args.what == What::widen) return convert(threads, args, Widen<Number::bfloat16>());
  if (half) return convert(threads, args, Narrowed<Number::float16>());
  convert(threads, args, Narrowed<Number::bfloat16>());
}

SLUICE_DEVICE std::uint64_t change_word(std::uint64_t& word, const device::ChangeArgs& args) {
  using What = device::ChangeArgs::What;
  if (args.what == What::fetch_add) return fetch_add(word, args.operand);
  if (args.what == What::swap) return exchange(word, args.operand);
  return compare_exchange(word, args.compare, args.operand);
}

/// Not by instructions for float32: the addition of CUDA's takes subnormal numbers for zeros.
template <class T, class Bits>
SLUICE_DEVICE void change_number(Bits& number, T operand, Op op) {
  if (op == Op::replace) {
    exchange(number, bits_as<Bits>(operand));
    return;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == Op::sum) {
      fetch_add(number, bits_as<Bits>(operand));
      return;
    }
  }
  with_change<T>(op, [&](auto change) {
    Bits there = load_relaxed(number);
    for (;;) {
      const Bits found = compare_exchange(number, there, bits_as<Bits>(change(bits_as<T>(there), operand)));
      if (found == there) return;
      there = found;
    }
  });
}

template <class T>
SLUICE_DEVICE void change_numbers(const auto& threads, const device::ChangeArgs& args) {
  using Bits = std::conditional_t<sizeof(T) == sizeof(std::uint32_t), std::uint32_t, std::uint64_t>;
  auto* const numbers = reinterpret_cast<Bits*>(args.there);
  const auto operand = [&args, whole = aligned(args.local, sizeof(T))](std::uint64_t i) {
    const std::byte* const at = args.local + i * sizeof(T);
    return whole ? load_number<T, true>(at) : load_number<T, false>(at);
  };
  for (std::uint64_t i = threads.index(); i < args.count; i += threads.size())
    change_number(numbers[i], operand(i), args.op);
}

SLUICE_DEVICE void change_any(const auto& threads, const device::ChangeArgs& args) {
  switch (args.number) {
    case Number::int32: return change_numbers<std::int32_t>(threads, args);
    case Number::uint32: return change_numbers<std::uint32_t>(threads, args);
    case Number::int64: return change_numbers<std::int64_t>(threads, args);
    case Number::uint64: return change_numbers<std::uint64_t>(threads, args);
    case Number::float64: return change_numbers<double>(threads, args);
    default: return change_numbers<float>(threads, args);
  }
}

/// The share of block `which` of `blocks`. Numbers and words are changed behind all earlier accesses of the stream, and
/// words ahead of all later ones, also for ranks that see the change before the kernel has ended.
template <class Block>
SLUICE_DEVICE void change(const Block& block, const device::ChangeArgs& args, std::uint32_t which,
                          std::uint32_t blocks) {
  const AllThreads<Block> threads{which, blocks, block};
  fence();
  if (args.what == device::ChangeArgs::What::accumulate) return change_any(threads, args);
  if (threads.index() != 0) return;
  const std::uint64_t before = change_word(*reinterpret_cast<std::uint64_t*>(args.there), args);
  fence();
  store_number<false>(args.local, before);
}

}  // namespace sluice::kernel
