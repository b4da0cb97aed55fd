// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sluice::mpi_rma {

/// Keeps what a thread has found last about handles of MPI's, in a place that their bits choose. Programs alternate
/// between a few operations and types, and one must not drive out the other at every call.
template <class Found>
class Recent {
 public:
  Found& place_of(auto... handles) {
    std::uint64_t mixed = 0;
    ((mixed = (mixed + bits_of(handles)) * 0x9e3779b97f4a7c15U), ...);  // Fibonacci hashing (Knuth, vol. 3, 6.4)
    return places_[mixed >> (64 - kLog)];
  }

 private:
  static constexpr unsigned int kLog = 4;
  static std::uint64_t bits_of(auto handle) {
    std::uint64_t bits = 0;
    static_assert(sizeof handle <= sizeof bits);
    std::memcpy(&bits, &handle, sizeof handle);
    return bits;
  }

  std::array<Found, std::size_t{1} << kLog> places_{};
};

}  // namespace sluice::mpi_rma
