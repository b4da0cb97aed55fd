// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace sluice::mpich {

std::string to_hex(std::span<const std::byte> bytes);
/// Fills `bytes`. False: the text is not so many bytes in hex.
bool from_hex(std::string_view text, std::span<std::byte> bytes);

}  // namespace sluice::mpich
