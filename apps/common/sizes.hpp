// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace apps {

/// "4096", "64k", "1m", "2g" (powers of 1024, either case) as bytes.
/// @throws UsageError that quotes the text.
std::size_t parse_size(std::string_view text);

/// The shortest text that `parse_size` reads back: "64k" for 65536.
std::string size_text(std::size_t bytes);

}  // namespace apps
