// SPDX-License-Identifier: Apache-2.0
// Collectives on Views: all their elements, where they are, in the order of an execution space instance.
#pragma once

#include <sluice/collectives.hpp>
#include <sluice/context.hpp>
#include <sluice/error.hpp>
#include <sluice/kokkos/ends.hpp>
#include <sluice/kokkos/queue.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace sluice::kokkos {

namespace detail {

template <class T>
inline constexpr bool kIsHalf = sizeof(T) == 2 && std::is_same_v<T, Kokkos::Experimental::half_t>;
template <class T>
inline constexpr bool kIsBrainHalf = sizeof(T) == 2 && std::is_same_v<T, Kokkos::Experimental::bhalf_t>;
template <class T>
inline constexpr bool kIsInteger =
    std::is_integral_v<T> && !std::is_same_v<T, bool> && (sizeof(T) == 4 || sizeof(T) == 8);

/// The type of a View's elements, as collectives that combine numbers take it.
template <class View>
constexpr Number number_of() {
  using T = typename View::non_const_value_type;
  static_assert(kIsInteger<T> || std::is_same_v<T, float> || std::is_same_v<T, double> || kIsHalf<T> || kIsBrainHalf<T>,
                "collectives combine integers of 32 and 64 bits, float, double, half_t and bhalf_t; for other types "
                "call sluice::allreduce with a Combiner");
  if constexpr (kIsInteger<T>) {
    if constexpr (sizeof(T) == 4) return std::is_signed_v<T> ? Number::int32 : Number::uint32;
    return std::is_signed_v<T> ? Number::int64 : Number::uint64;
  } else if constexpr (kIsHalf<T>) {
    return Number::float16;
  } else if constexpr (kIsBrainHalf<T>) {
    return Number::bfloat16;
  } else {
    return sizeof(T) == 4 ? Number::float32 : Number::float64;
  }
}

/// The memory of a View. @throws Error{Code::bad_argument} if its elements do not lie one behind the other
template <class Exec, class View>
Slice memory_of(Context& context, std::string_view name, const View& view) {
  using T = typename View::non_const_value_type;
  static_assert(Kokkos::is_view_v<View>, "a collective of this header takes Views");
  static_assert(std::is_trivially_copyable_v<T>, "the elements are copied as bytes");
  static_assert(Kokkos::SpaceAccessibility<Exec, typename View::memory_space>::accessible,
                "the execution space does not access the View's memory");
  if (view.span() > 0 && !view.span_is_contiguous())
    refuse(context, Code::bad_argument,
           "collective '" + std::string(name) + "': the View '" + view.label() +
               "' has gaps; copy its elements into one without");
  return context.region(const_cast<T*>(view.data()), view.span() * sizeof(T)).all();
}

}  // namespace detail

/// A collective on Views, which it keeps. Made by the functions below: at every rank with the same name, and Views of
/// the same layout and extents, unless a function says otherwise. The elements move in the order of memory.
///
/// Movable, not copyable. One thread at a time, in the order of its queue. Else as Collective; so are its errors.
template <class Exec>
class ViewCollective {
 public:
  ViewCollective(const Queue<Exec>& queue, Collective collective, std::vector<std::shared_ptr<const void>> views)
      : queue_(queue), views_(std::move(views)), collective_(std::move(collective)) {}

  /// The collective sends what the Views hold at this point of the queue; later writes are not sent. @throws as
  /// Collective::start
  void start() { collective_.start(queue_.stream()); }
  /// Later work on the queue finds the result in the Views. @throws as Collective::wait
  void wait() { collective_.wait(queue_.stream()); }
  /// The collective itself, to test, close or describe it. Valid as long as this object stays where it is.
  Collective& collective() noexcept { return collective_; }

 private:
  Queue<Exec> queue_;
  std::vector<std::shared_ptr<const void>> views_;  // destroyed after the collective
  Collective collective_;
};

namespace detail {

/// `make(slices...)` makes the collective.
template <class Exec, class Make, class... Views>
ViewCollective<Exec> collective_of(Context& context, const Queue<Exec>& queue, std::string_view name, Make make,
                                   const Views&... views) {
  Collective made = make(memory_of<Exec>(context, name, views)...);
  return {queue, std::move(made), {std::make_shared<Views>(views)...}};
}

/// Bytes of so many elements of a View each.
template <class View>
std::vector<std::size_t> bytes_of(std::span<const std::size_t> counts) {
  std::vector<std::size_t> bytes(counts.begin(), counts.end());
  for (std::size_t& one : bytes) one *= sizeof(typename View::value_type);
  return bytes;
}

}  // namespace detail

// All functions throw what those of sluice/collectives.hpp do, and Error{Code::bad_argument} for a View with gaps.

/// The elements of `root` replace those of all others.
template <class Exec>
ViewCollective<Exec> broadcast(Context& context, const Queue<Exec>& queue, std::string_view name, const auto& view,
                               Rank root, CollectiveOptions options = {}) {
  const auto make = [&](const Slice& data) { return sluice::broadcast(context, name, data, root, options); };
  return detail::collective_of(context, queue, name, make, view);
}
/// `all` of `root` gets the elements of `mine` of each rank, one behind the other. `counts`: how many each rank has;
/// empty: all alike. `all` and `counts` count at `root` only: elsewhere `all` may be an empty View.
template <class Exec, class Mine>
ViewCollective<Exec> gather(Context& context, const Queue<Exec>& queue, std::string_view name, const Mine& mine,
                            const auto& all, Rank root, std::span<const std::size_t> counts = {},
                            CollectiveOptions options = {}) {
  const std::vector<std::size_t> bytes = detail::bytes_of<Mine>(counts);
  const auto make = [&](const Slice& from, const Slice& to) {
    return sluice::gather(context, name, from, to, root, bytes, options);
  };
  return detail::collective_of(context, queue, name, make, mine, all);
}
/// The reverse of `gather`: `mine` of each rank gets its part of `all` of `root`.
template <class Exec, class Mine>
ViewCollective<Exec> scatter(Context& context, const Queue<Exec>& queue, std::string_view name, const auto& all,
                             const Mine& mine, Rank root, std::span<const std::size_t> counts = {},
                             CollectiveOptions options = {}) {
  const std::vector<std::size_t> bytes = detail::bytes_of<Mine>(counts);
  const auto make = [&](const Slice& from, const Slice& to) {
    return sluice::scatter(context, name, from, to, root, bytes, options);
  };
  return detail::collective_of(context, queue, name, make, all, mine);
}
/// `all` of each rank gets `mine` of each rank, one behind the other: it has as many times as many elements.
template <class Exec>
ViewCollective<Exec> allgather(Context& context, const Queue<Exec>& queue, std::string_view name, const auto& mine,
                               const auto& all, CollectiveOptions options = {}) {
  const auto make = [&](const Slice& from, const Slice& to) {
    return sluice::allgather(context, name, from, to, {}, options);
  };
  return detail::collective_of(context, queue, name, make, mine, all);
}
/// Rank r sends part d of `from` to part r of rank d's `to`; all parts have as many elements.
template <class Exec>
ViewCollective<Exec> alltoall(Context& context, const Queue<Exec>& queue, std::string_view name, const auto& from,
                              const auto& to, CollectiveOptions options = {}) {
  const auto make = [&](const Slice& source, const Slice& target) {
    return sluice::alltoall(context, name, source, target, options);
  };
  return detail::collective_of(context, queue, name, make, from, to);
}
/// `to` of each rank gets the elements of all ranks, combined one by one. `to` may be `from`.
template <class Exec, class From>
ViewCollective<Exec> allreduce(Context& context, const Queue<Exec>& queue, std::string_view name, Op op,
                               const From& from, const auto& to, CollectiveOptions options = {}) {
  const auto make = [&](const Slice& source, const Slice& target) {
    return sluice::allreduce(context, name, op, detail::number_of<From>(), source, target, options);
  };
  return detail::collective_of(context, queue, name, make, from, to);
}
/// `to` of `root` gets the elements of all ranks, combined one by one. `to` counts at `root` only, and may be `from`.
template <class Exec, class From>
ViewCollective<Exec> reduce(Context& context, const Queue<Exec>& queue, std::string_view name, Op op, const From& from,
                            const auto& to, Rank root, CollectiveOptions options = {}) {
  const auto make = [&](const Slice& source, const Slice& target) {
    return sluice::reduce(context, name, op, detail::number_of<From>(), source, target, root, options);
  };
  return detail::collective_of(context, queue, name, make, from, to);
}
/// `to` of rank r gets part r of the elements of all ranks, combined one by one; all parts have as many elements.
template <class Exec, class From>
ViewCollective<Exec> reduce_scatter(Context& context, const Queue<Exec>& queue, std::string_view name, Op op,
                                    const From& from, const auto& to, CollectiveOptions options = {}) {
  const auto make = [&](const Slice& source, const Slice& target) {
    return sluice::reduce_scatter(context, name, op, detail::number_of<From>(), source, target, {}, options);
  };
  return detail::collective_of(context, queue, name, make, from, to);
}
/// `to` of rank r gets the elements of ranks 0 to r, combined one by one. `to` may be `from`.
template <class Exec, class From>
ViewCollective<Exec> scan(Context& context, const Queue<Exec>& queue, std::string_view name, Op op, const From& from,
                          const auto& to, CollectiveOptions options = {}) {
  const auto make = [&](const Slice& source, const Slice& target) {
    return sluice::scan(context, name, op, detail::number_of<From>(), source, target, options);
  };
  return detail::collective_of(context, queue, name, make, from, to);
}

}  // namespace sluice::kokkos
