// SPDX-License-Identifier: Apache-2.0
// Common to the tests of segments: rank 0 puts ranges to rank 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/conformance/windows.hpp"

namespace sluice::test {

inline constexpr Tag kSegmentsTag = 17;
inline constexpr std::byte kReleasedByte{0xEE};

/// The byte at `offset` of its put number `put`.
inline std::byte segment_byte(std::size_t offset, std::uint32_t put) {
  const std::uint64_t mixed = (offset * 0x9E3779B97F4A7C15U) ^ (put * 0xC2B2AE3D27D4EB4FU);
  return static_cast<std::byte>(mixed >> 32 & 0x7F);
}

/// One of two ranks, with its end.
struct SegmentSide {
  SegmentSide(Context& in, const Case& one, std::size_t bytes)
      : context(in), order(one), memory(in, one, bytes), puts(bytes) {
    if (in.rank() == 0) sender = SegmentSender(in, 1, kSegmentsTag, memory.all());
    if (in.rank() == 1) receiver = SegmentReceiver(in, 0, kSegmentsTag, memory.all());
  }
  Stream stream() { return order.stream(); }

  /// Rank 0: fills the range with its next stamps and puts it.
  void put(std::size_t offset, std::size_t count) {
    sender.wait(stream(), offset, count);
    order.run([this, offset, count, next = next_puts(offset, count)] {
      for (std::size_t i = 0; i < count; ++i) memory.bytes()[offset + i] = segment_byte(offset + i, next[i]);
    });
    sender.i_put(stream(), offset, count);
  }
  /// Rank 1: checks the bytes once they have arrived.
  void wait(std::size_t offset, std::size_t count) {
    const Slice slice = receiver.wait(stream(), offset, count);
    EXPECT_EQ(slice.data(), memory.all().data() + offset);
    order.run([this, offset, count, expected = std::vector<std::uint32_t>(at(offset), at(offset + count))] {
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(memory.bytes()[offset + i], segment_byte(offset + i, expected[i])) << "byte " << offset + i;
    });
  }
  void release(std::size_t offset, std::size_t count) {
    order.run([this, offset, count] { std::fill_n(memory.bytes().data() + offset, count, kReleasedByte); });
    receiver.release(stream(), offset, count);
  }
  /// Counts a put of each of these bytes. Rank 1 calls it for puts of rank 0.
  std::vector<std::uint32_t> next_puts(std::size_t offset, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) ++puts[offset + i];
    return {at(offset), at(offset + count)};
  }
  void synchronize() { context.synchronize(stream()); }

  Context& context;
  Order order;  // before what it uses: destroyed last
  Buffer memory;
  std::vector<std::uint32_t> puts;  // of each byte
  SegmentSender sender;
  SegmentReceiver receiver;

 private:
  std::vector<std::uint32_t>::iterator at(std::size_t offset) {
    return puts.begin() + static_cast<std::ptrdiff_t>(offset);
  }
};

/// A call takes few changes of thread.
inline bool quick_segments(const Case& one) {
  return !one.host && (one.ground.name == "threads" || one.ground.name.starts_with("shm"));
}

inline std::vector<Case> of_segments() {
  std::vector<Case> all = stream_cases();
  for (const Case& one : on(all_grounds(), stream_cases())) all.push_back(one);
  std::set<std::string> names;
  const auto leaves = [&](const Case& one) {
    const bool elsewhere = one.cuda && one.ground.name != "threads" && one.ground.name != "shm";
    // A stream tells its thread by a word of this process, which is mapped twice there: ThreadSanitizer sees no order.
    const bool mapped_twice = one.host && one.ground.name == "shm_between_threads";
    return elsewhere || mapped_twice || !names.insert(one.name()).second;
  };
  std::erase_if(all, leaves);
  return all;
}

}  // namespace sluice::test
