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

/// Changes numbers of one type at `at`, by the processor's vectors, while nobody else does. `bytes`: more than 0.
using ChangeAlone = void (*)(std::byte* at, const std::byte* operands, std::size_t bytes) noexcept;
ChangeAlone change_alone(Op op, Number number) noexcept;

}  // namespace sluice::backends
