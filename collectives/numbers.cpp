// SPDX-License-Identifier: Apache-2.0
#include "collectives/numbers.hpp"

#include <cstdint>

#include "device/arithmetic.hpp"

namespace sluice::collectives {
namespace {

constexpr kernel::Thread kOne;

template <class T>
void combine_as(Op op, std::byte* to, const std::byte* first, const std::byte* second, std::size_t bytes) noexcept {
  kernel::with_operation<T>(op, [&](auto operation) {
    kernel::combine_numbers<T, false>(kOne, to, first, second, bytes / sizeof(T), operation);
  });
}

}  // namespace

bool is_narrow(Number number) noexcept { return number == Number::float16 || number == Number::bfloat16; }

bool combines(Op op, Number number) noexcept {
  const bool bits = op == Op::bit_and || op == Op::bit_or || op == Op::bit_xor;
  const bool integer =
      number == Number::int32 || number == Number::uint32 || number == Number::int64 || number == Number::uint64;
  return op != Op::replace && (integer || !bits);
}

void combine(Op op, Number number, std::byte* to, const std::byte* first, const std::byte* second,
             std::size_t bytes) noexcept {
  switch (number) {
    case Number::int32: return combine_as<std::int32_t>(op, to, first, second, bytes);
    case Number::uint32: return combine_as<std::uint32_t>(op, to, first, second, bytes);
    case Number::int64: return combine_as<std::int64_t>(op, to, first, second, bytes);
    case Number::uint64: return combine_as<std::uint64_t>(op, to, first, second, bytes);
    case Number::float16:
    case Number::bfloat16:
    case Number::float32: return combine_as<float>(op, to, first, second, bytes);
    case Number::float64: return combine_as<double>(op, to, first, second, bytes);
  }
}

void widen(Number from, float* to, const std::byte* narrow, std::size_t count) noexcept {
  auto* const bytes = reinterpret_cast<std::byte*>(to);
  if (from == Number::float16)
    kernel::convert_numbers<false>(kOne, bytes, narrow, count, kernel::Widen<Number::float16>());
  else
    kernel::convert_numbers<false>(kOne, bytes, narrow, count, kernel::Widen<Number::bfloat16>());
}

void narrow(Number to, std::byte* narrow, const float* from, std::size_t count) noexcept {
  const auto* const bytes = reinterpret_cast<const std::byte*>(from);
  if (to == Number::float16)
    kernel::convert_numbers<false>(kOne, narrow, bytes, count, kernel::Narrowed<Number::float16>());
  else
    kernel::convert_numbers<false>(kOne, narrow, bytes, count, kernel::Narrowed<Number::bfloat16>());
}

}  // namespace sluice::collectives
