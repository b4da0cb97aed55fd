// SPDX-License-Identifier: Apache-2.0
// One View to one peer.
#pragma once

#include <sluice/context.hpp>
#include <sluice/kokkos/moves.hpp>

#include <Kokkos_Core.hpp>

#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace sluice::kokkos {

namespace detail {

/// Where slots are that kernels of `Exec` pack.
template <class Exec>
inline constexpr Space kSpaceOf = kOnHost<Exec> ? Space::host : Space::device;

template <class Exec, class View>
constexpr void check_view() {
  static_assert(Kokkos::is_view_v<View>, "a View of Kokkos is needed");
  static_assert(Kokkos::SpaceAccessibility<Exec, typename View::memory_space>::accessible,
                "the execution space cannot reach the View: it is in other memory");
  static_assert(std::is_trivially_copyable_v<typename View::value_type>, "elements are moved as bytes");
}

/// A View that stays while a channel uses its memory: what cannot be closed in time is never freed.
template <class View, class Channel>
class Kept {
 public:
  Kept(const View& view, Channel channel) : view_(view), channel_(std::move(channel)) {}
  Kept(Kept&&) noexcept = default;
  Kept& operator=(Kept&&) noexcept = default;
  ~Kept() {
    try {
      if (channel_) channel_->close();
    } catch (...) {
      new View(view_);  // its memory is in use, for as long as the process lives
    }
  }
  const View& view() const noexcept { return view_; }
  Channel& channel() noexcept { return *channel_; }
  const Channel& channel() const noexcept { return *channel_; }

 private:
  View view_;
  std::optional<Channel> channel_;
};

}  // namespace detail
}  // namespace sluice::kokkos
