// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/copy.hpp"
#include "base/crossing_copy.hpp"

namespace {

using sluice::base::copy_bytes;
using sluice::base::nontemporal_min;

/// Bytes that differ from all that are within 250 of them.
std::byte source_byte(std::size_t at) { return static_cast<std::byte>(at % 251); }

class Copies : public testing::Test {
 protected:
  static constexpr std::size_t kAround = 64;  // bytes that must stay as they are, on either side
  static constexpr std::size_t kMost = std::size_t{1} << 20U;

  Copies() : source_(kMost + 2 * kAround), target_(kMost + 2 * kAround) {
    for (std::size_t at = 0; at < source_.size(); ++at) source_[at] = source_byte(at);
  }
  ~Copies() override { nontemporal_min = before_; }

  /// From `from` bytes behind the beginning of one buffer to `to` behind that of the other.
  void expect_copied(std::size_t bytes, std::size_t from, std::size_t to) {
    const std::size_t begin = kAround + to;
    std::fill(target_.begin(),
              target_.begin() + static_cast<std::ptrdiff_t>(std::min(begin + bytes + kAround, target_.size())), kOld);
    copy_(target_.data() + begin, source_.data() + from, bytes);
    for (std::size_t at = 0; at < begin; ++at) ASSERT_EQ(target_[at], kOld) << bytes << " bytes, before";
    for (std::size_t at = 0; at < bytes; ++at) {
      ASSERT_EQ(target_[begin + at], source_byte(from + at)) << "byte " << at << " of " << bytes;
    }
    for (std::size_t at = begin + bytes; at < begin + bytes + kAround && at < target_.size(); ++at)
      ASSERT_EQ(target_[at], kOld) << bytes << " bytes, behind";
  }

  static constexpr auto kOld = std::byte{0xFF};
  const std::size_t before_ = nontemporal_min;
  std::vector<std::byte> source_, target_;
  void (*copy_)(std::byte*, const std::byte*, std::size_t) noexcept = copy_bytes;
};

TEST_F(Copies, of_all_small_sizes_are_exact) {
  for (std::size_t bytes = 0; bytes <= 700; ++bytes) {
    for (const std::size_t offset : {0, 1, 16, 31}) expect_copied(bytes, 0, offset);
  }
}

TEST_F(Copies, of_large_sizes_are_exact_at_every_alignment) {
  for (const std::size_t bytes : {2047, 2048, 4096, 4099, 65536 + 33}) {
    for (std::size_t offset = 0; offset < 33; ++offset) {
      expect_copied(bytes, offset, 0);
      expect_copied(bytes, 0, offset);
    }
  }
  expect_copied(kMost, 0, 0);
}

/// The direction of a copy depends on the distance of the addresses modulo a page.
TEST_F(Copies, of_all_distances_are_exact) {
  constexpr std::size_t kPage = 4096;
  const auto apart = [&](std::size_t to) {
    return static_cast<std::size_t>(target_.data() + kAround + to - source_.data()) % kPage;
  };
  const auto crossing = [](std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
    sluice::base::copy_crossing(false, to, from, bytes);
  };
  for (void (*const copy)(std::byte*, const std::byte*, std::size_t) noexcept :
       {&copy_bytes, +crossing, &sluice::base::copy_past_cache}) {
    copy_ = copy;
    for (const std::size_t distance : {0, 1, 16, 511, 512, 513, 2048, 4095}) {
      const std::size_t to = (distance + kPage - apart(0)) % kPage;
      ASSERT_EQ(apart(to), distance);
      for (const std::size_t bytes : {300, 600, 2047, 4096, 20'001, 65536 + 33}) {
        expect_copied(bytes, 0, to);
        expect_copied(bytes, 7, to + 7);
      }
    }
  }
}

TEST_F(Copies, past_the_cache_are_exact) {
  copy_ = sluice::base::copy_past_cache;
  for (std::size_t bytes = 0; bytes <= 200; ++bytes) {
    for (const std::size_t offset : {0, 1, 16, 63}) expect_copied(bytes, 0, offset);
  }
  copy_ = copy_bytes;
  nontemporal_min = 1;
  for (const std::size_t bytes : {65, 127, 128, 4096, 65536 + 33}) {
    for (std::size_t offset = 0; offset < 65; offset += 13) expect_copied(bytes, offset, 64 - offset);
  }
}

}  // namespace
