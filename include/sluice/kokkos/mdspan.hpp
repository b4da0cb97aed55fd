// SPDX-License-Identifier: Apache-2.0
// view_of: an mdspan as a View.
#pragma once

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <type_traits>

namespace sluice::kokkos {

/// std::mdspan, where the standard library has it, Kokkos::mdspan, or a type with the same members.
template <class T>
concept Mdspan = requires(const T& span) {
  typename T::element_type;
  typename T::extents_type;
  span.data_handle();
  span.is_strided();
  T::rank();
};

namespace detail {

template <class Element, std::size_t D>
struct Pointers : Pointers<Element*, D - 1> {};
template <class Element>
struct Pointers<Element, 0> : std::type_identity<Element> {};

}  // namespace detail

/// Returns a View of the elements of an mdspan, for a channel's end, a Halo or Messages. The View does not own the
/// memory, which must outlive everything that uses the View. An mdspan does not say in which memory it is: the caller
/// makes sure that the execution space reaches it.
template <Mdspan Span>
auto view_of(const Span& span) {
  using Element = typename Span::element_type;
  constexpr std::size_t kRank = Span::rank();
  static_assert(kRank <= 8, "Views have eight dimensions at most");
  static_assert(Span::is_always_strided(), "the elements of the mdspan do not lie at strides");
  static_assert(std::is_same_v<std::remove_cvref_t<decltype(span.data_handle())>, Element*>,
                "the accessor of the mdspan has no plain pointer");
  Kokkos::LayoutStride layout;
  if constexpr (kRank > 0) {  // an mdspan of rank 0 has no strides
    for (std::size_t k = 0; k < kRank; ++k) {
      layout.dimension[k] = static_cast<std::size_t>(span.extent(k));
      layout.stride[k] = static_cast<std::size_t>(span.stride(k));
    }
  }
  return Kokkos::View<typename detail::Pointers<Element, kRank>::type, Kokkos::LayoutStride, Kokkos::AnonymousSpace,
                      Kokkos::MemoryTraits<Kokkos::Unmanaged>>(span.data_handle(), layout);
}

}  // namespace sluice::kokkos
