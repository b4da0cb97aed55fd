// SPDX-License-Identifier: Apache-2.0
// Accumulates on memory that is mapped here, against the same numbers one by one.
#include "backends/numbers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

namespace sluice::backends {
namespace {

constexpr std::size_t kMost = 9;  // numbers: more than two steps of any size
constexpr std::size_t kRoom = kMost + 8;

template <class T>
T changed(Op op, T there, T operand) {
  if (op == Op::sum) return static_cast<T>(there + operand);
  if (op == Op::min) return operand < there ? operand : there;
  if (op == Op::max) return operand > there ? operand : there;
  if constexpr (std::is_integral_v<T>) {
    if (op == Op::bit_and) return there & operand;
    if (op == Op::bit_or) return there | operand;
    if (op == Op::bit_xor) return there ^ operand;
  }
  return operand;
}

// Numbers from every offset, and none beside them.
template <class T>
void expect_changed(Number number, Op op) {
  for (std::size_t from = 0; from < 4; ++from) {
    for (std::size_t count = 0; count <= kMost; ++count) {
      alignas(16) std::array<T, kRoom> numbers;
      std::array<T, kMost> operands;
      for (std::size_t i = 0; i < kRoom; ++i) numbers.at(i) = static_cast<T>(1000 + 37 * i % 11);
      for (std::size_t i = 0; i < kMost; ++i) operands.at(i) = static_cast<T>(997 + 53 * i % 13);
      auto expected = numbers;
      for (std::size_t i = 0; i < count; ++i) expected.at(from + i) = changed(op, numbers.at(from + i), operands.at(i));
      change_numbers(reinterpret_cast<std::byte*>(numbers.data() + from), op, number,
                     std::as_bytes(std::span(operands).first(count)));
      EXPECT_EQ(numbers, expected) << static_cast<int>(number) << " " << static_cast<int>(op) << " " << from << " "
                                   << count;
    }
  }
}

template <class T>
void expect_all(Number number) {
  for (const Op op : {Op::sum, Op::min, Op::max, Op::replace}) expect_changed<T>(number, op);
  if constexpr (std::is_integral_v<T>) {
    for (const Op op : {Op::bit_and, Op::bit_or, Op::bit_xor}) expect_changed<T>(number, op);
  }
}

TEST(Numbers, are_each_changed_by_their_operand) {
  expect_all<std::int32_t>(Number::int32);
  expect_all<std::uint32_t>(Number::uint32);
  expect_all<std::int64_t>(Number::int64);
  expect_all<std::uint64_t>(Number::uint64);
  expect_all<float>(Number::float32);
  expect_all<double>(Number::float64);
}

TEST(Numbers, that_overflow_go_on_at_the_other_end) {
  std::array<std::int32_t, 4> numbers = {INT32_MAX, INT32_MIN, INT32_MAX, -1};
  const std::array<std::int32_t, 4> operands = {1, -1, INT32_MAX, 1};
  change_numbers(reinterpret_cast<std::byte*>(numbers.data()), Op::sum, Number::int32,
                 std::as_bytes(std::span(operands)));
  EXPECT_EQ(numbers, (std::array<std::int32_t, 4>{INT32_MIN, INT32_MAX, -2, 0}));
}

// If one of the two is NaN, the number in memory stays, in steps of the processor and in vectors.
template <class T>
void expect_kept(Number number, Op op) {
  constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
  for (std::size_t from = 0; from < 4; ++from) {
    for (const bool alone : {false, true}) {
      alignas(16) std::array<T, kRoom> numbers;
      std::array<T, kMost> operands;
      for (std::size_t i = 0; i < kRoom; ++i) numbers.at(i) = i % 2 == 0 ? kNan : T{5};
      for (std::size_t i = 0; i < kMost; ++i) operands.at(i) = (from + i) % 2 == 0 ? static_cast<T>(i) : kNan;
      const auto before = numbers;
      auto* const at = reinterpret_cast<std::byte*>(numbers.data() + from);
      const auto changes = std::as_bytes(std::span(operands));
      if (alone) {
        change_alone(op, number)(at, changes.data(), changes.size());
      } else {
        change_numbers(at, op, number, changes);
      }
      EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(numbers)), std::as_bytes(std::span(before))))
          << static_cast<int>(number) << " " << static_cast<int>(op) << " from " << from << ", " << alone;
    }
  }
}

TEST(Numbers, stay_where_a_minimum_or_maximum_meets_nan) {
  for (const Op op : {Op::min, Op::max}) {
    expect_kept<float>(Number::float32, op);
    expect_kept<double>(Number::float64, op);
  }
}

// Threads add to overlapping numbers, in steps that begin at different places.
template <class T>
void expect_no_addition_lost(Number number) {
  constexpr int kThreads = 4;
  constexpr int kTimes = 50000;
  std::vector<T> numbers(kRoom);
  const std::vector<T> ones(kMost, T{1});
  std::atomic<int> waiting{kThreads};
  std::vector<std::thread> threads;
  for (std::size_t from = 0; from < kThreads; ++from) {
    threads.emplace_back([&, from] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      for (int i = 0; i < kTimes; ++i)
        change_numbers(reinterpret_cast<std::byte*>(numbers.data() + from), Op::sum, number,
                       std::as_bytes(std::span(ones)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < kRoom; ++i) {
    int of = 0;
    for (std::size_t from = 0; from < kThreads; ++from) of += i >= from && i < from + kMost ? 1 : 0;
    EXPECT_EQ(numbers[i], static_cast<T>(of * kTimes)) << i;
  }
}

TEST(Numbers, lose_no_addition_of_several_threads) {
  expect_no_addition_lost<std::uint32_t>(Number::uint32);
  expect_no_addition_lost<std::int64_t>(Number::int64);
  expect_no_addition_lost<float>(Number::float32);
  expect_no_addition_lost<double>(Number::float64);
}

}  // namespace
}  // namespace sluice::backends
