// SPDX-License-Identifier: Apache-2.0
#include "device/retire.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

namespace sluice::device {
namespace {

using namespace std::chrono_literals;

TEST(Retire, frees_at_once_if_no_stream_has_work) {
  bool freed = false;
  retire([&] { freed = true; });
  EXPECT_TRUE(freed);
}

TEST(Retire, puts_off_what_would_wait_for_a_thread_that_gives_work) {
  bool freed = false;
  auto giving = giving_work();
  auto other = std::async(std::launch::async, [&] { retire([&] { freed = true; }); });
  EXPECT_EQ(other.wait_for(10s), std::future_status::ready);
  EXPECT_FALSE(freed);
  giving.unlock();
  other.wait();
  reap();
  EXPECT_TRUE(freed);
}

}  // namespace
}  // namespace sluice::device
