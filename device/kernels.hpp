// SPDX-License-Identifier: Apache-2.0
// What a GPU does for channels where its streams' own operations cannot, or take longer: what each kernel takes, and
// its body, which is compiled for CUDA, for HIP and, by the tests, for the host. A kernel takes its arguments as one
// struct, by value.
//
// A plan that was captured is driven by these: a replay does again what was captured, so every epoch comes from memory
// (kernel::Count). Nothing is copied but by a kernel that has looked whether it may be.
#pragma once

#include <sluice/device.hpp>

#include <cstddef>
#include <cstdint>

namespace sluice::device {

/// Stores a word, for words that the stream's own operation cannot write (a NIC's doorbell, say). One block of one
/// thread.
struct WriteArgs {
  static constexpr const char* kKernel = "sluice_write";
  std::uint64_t* word;
  std::uint64_t value;
};

/// What is stored in a word, or waited for.
struct WordValue {
  std::uint64_t* word;
  std::uint64_t value;
};

/// One of those that a kernel makes in a row.
struct SmallPut {
  std::byte* to;
  const std::byte* from;
  std::uint64_t bytes;
  std::uint64_t words_end;  ///< its words begin where those of the put before it end
};

/// Puts whose credits the stream has waited for: bytes, and the words that tell of them. A block for each put. All of
/// it is in the arguments, which are sent along whole: nothing must be kept for the kernel.
template <std::size_t MostPuts>
struct SmallPuts {
  static constexpr std::size_t kMostPuts = MostPuts;
  static constexpr std::size_t kMostWords = 2 * MostPuts;
  SmallPut puts[kMostPuts];
  WordValue words[kMostWords];
};
struct SmallPutsArgs : SmallPuts<32> {
  static constexpr const char* kKernel = "sluice_small_puts";
};
static_assert(sizeof(SmallPutsArgs) <= 4096);  // a kernel takes no more

/// The same for a put alone, or those of a small plan: an eighth of the bytes for the driver to send.
struct FewPutsArgs : SmallPuts<4> {
  static constexpr const char* kKernel = "sluice_few_puts";
};

/// What a stream does with words where it is to do it by kernels: waits, each until its word is reached, and stores, in
/// their order. Poison ends every wait. One block of one thread.
struct OperateArgs {
  static constexpr const char* kKernel = "sluice_operate";
  static constexpr std::size_t kMost = 64;
  WordValue words[kMost];
  std::uint64_t count;
  std::uint64_t waits;  ///< a bit for each
};

/// Some ends of a plan that advance together. `step`: which start, or which wait, this is for whoever uses the slots,
/// whose number counts modulo the slots; a channel that has not come there waits until it is failed for it.
template <class End>
struct Ends {
  const End* ends;
  std::uint64_t count;
  std::uint64_t step;
  std::uint64_t eager;  ///< 1: this is no part of a graph
};

/// Waits until the sources may be overwritten. One block.
struct AcquireArgs : Ends<kernel::Out> {
  static constexpr const char* kKernel = "sluice_acquire";
};

/// The whole put of each sender. A block for each.
struct PutArgs : Ends<kernel::Out> {
  static constexpr const char* kKernel = "sluice_put";
};

/// The same in three: waits for the credits (one block), copies (as many blocks as it pleases for each sender, in x),
/// raises the signals (one block).
struct BeginPutArgs : Ends<kernel::Out> {
  static constexpr const char* kKernel = "sluice_begin_put";
};
struct CopyArgs : Ends<kernel::Out> {
  static constexpr const char* kKernel = "sluice_copy";
};
struct EndPutArgs : Ends<kernel::Out> {
  static constexpr const char* kKernel = "sluice_end_put";
};

/// Waits for the next epoch of each receiver. One block.
struct WaitArgs : Ends<kernel::In> {
  static constexpr const char* kKernel = "sluice_wait";
};

/// Gives back the oldest epoch of each receiver. One block.
struct ReleaseArgs : Ends<kernel::In> {
  static constexpr const char* kKernel = "sluice_release";
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

/// Whether the next epoch uses the slot that it is expected to. If not, that is told, and this returns when the channel
/// has failed for it: whoever comes next has a wrong slot in hand.
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

/// Calls it for each end, each by one of the block's threads.
template <class Block, class End, class Work>
SLUICE_DEVICE void for_each(const Block& block, const device::Ends<End>& args, Work work) {
  for (std::uint64_t i = block.index(); i < args.count; i += block.size()) work(args.ends[i]);
}

template <class Block>
SLUICE_DEVICE void acquire(const Block& block, const device::AcquireArgs& args) {
  for_each(block, args, [&](const Out& out) {
    if (in_step(out, args.step)) await_source(out, kUntilFailed);
  });
}

SLUICE_DEVICE void count_eager(Count& count, std::uint64_t eager) { store_release(count.eager, count.eager + eager); }

SLUICE_DEVICE std::uint64_t begin_in_step(const Out& out, const device::Ends<Out>& args) {
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

template <class Block>
SLUICE_DEVICE void put(const Block& block, const device::PutArgs& args, std::uint32_t which) {
  const Out& out = args.ends[which];
  std::uint64_t epoch = 0;
  if (block.index() == 0) epoch = begin_in_step(out, args);
  epoch = block.from_first(epoch);
  if (epoch >= kFailed) return;
  if (!out.rings) copy_share(block, out, epoch, 0, 1);
  block.sync();
  if (block.index() == 0) end_put(out, epoch, 0, out.slot_bytes);
}

template <class Block>
SLUICE_DEVICE void begin_put(const Block& block, const device::BeginPutArgs& args) {
  for_each(block, args, [&](const Out& out) {
    const std::uint64_t epoch = begin_in_step(out, args);
    out.count->moves = epoch >= kFailed ? 0 : epoch;
  });
}

template <class Block>
SLUICE_DEVICE void copy(const Block& block, const device::CopyArgs& args, std::uint32_t which, std::uint32_t share,
                        std::uint32_t blocks) {
  const Out& out = args.ends[which];
  if (out.count->moves != 0 && !out.rings) copy_share(block, out, out.count->moves, share, blocks);
}

template <class Block>
SLUICE_DEVICE void end_put(const Block& block, const device::EndPutArgs& args) {
  for_each(block, args, [&](const Out& out) {
    if (out.count->moves != 0) end_put(out, out.count->moves, 0, out.slot_bytes);
  });
}

template <class Block>
SLUICE_DEVICE void wait(const Block& block, const device::WaitArgs& args) {
  for_each(block, args, [&](const In& in) {
    if (in_step(in, *in.waits, in.slots, args.step, *in.signals[0])) begin_wait(in, kUntilFailed);
    count_eager(*in.waits, args.eager);
  });
}

template <class Block>
SLUICE_DEVICE void release(const Block& block, const device::ReleaseArgs& args) {
  for_each(block, args, [&](const In& in) {
    give_back(in);
    count_eager(*in.releases, args.eager);
  });
}

}  // namespace sluice::kernel
