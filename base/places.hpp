// SPDX-License-Identifier: Apache-2.0
// Places in the program, for messages.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <string>

namespace sluice::base {

/// A call: its return address, and those of its callers. Calls from headers of this library, of the C++ library and of
/// Kokkos stand for the first caller elsewhere.
class Place {
 public:
  /// An unknown place.
  Place() noexcept = default;
  /// The call that returns to `address`, which is on the stack of the calling thread. Takes some microseconds, and
  /// allocates nothing.
  explicit Place(const void* address) noexcept;
  auto operator<=>(const Place&) const = default;

  static constexpr std::size_t kMost = 12;
  /// The return addresses, the innermost first; null behind the last.
  const std::array<const void*, kMost>& calls() const noexcept { return calls_; }

 private:
  std::array<const void*, kMost> calls_{};
};

/// "halo.cpp:41" if the program has debug information and `addr2line` is in the PATH; else "program+0x1234", which
/// addr2line, or a debugger, takes. The first text of a place takes as long as a few starts of addr2line.
std::string place_text(const Place& place);

}  // namespace sluice::base
