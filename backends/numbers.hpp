// SPDX-License-Identifier: Apache-2.0
// Accumulates on memory that is mapped here.
#pragma once

#include <sluice/ops.hpp>

#include <cstddef>
#include <span>

namespace sluice::backends {

/// Bytes of a number.
constexpr std::size_t size_of(Number number) noexcept {
  return number == Number::int32 || number == Number::uint32 || number == Number::float32 ? 4 : 8;
}

/// Changes the numbers at `at`, an address that is a multiple of their size, by as many operands. Each is changed in
/// one step; several may be changed in the same one.
void change_numbers(std::byte* at, Op op, Number number, std::span<const std::byte> operands) noexcept;

/// Like `change_numbers`, while nobody else changes the numbers: by the processor's vectors.
void change_numbers_alone(std::byte* at, Op op, Number number, std::span<const std::byte> operands) noexcept;

}  // namespace sluice::backends
