// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <stdexcept>

#include "base/fd.hpp"
#include "base/fork.hpp"

namespace sluice::backends::ofi {

/// Descriptors that libfabric will open at a time of its own. They are counted until the last owner is destroyed.
/// Without room for them libfabric may hang, or fail and not say so.
using Expected = std::shared_ptr<void>;

/// @throws std::runtime_error if there is no room for `more`
inline Expected expect_descriptors(std::size_t more) {
  static base::OnePerProcess<std::atomic<std::size_t>> all;  // of all ranks
  const std::size_t expected = all->fetch_add(more) + more;  // some of these are open already
  if (base::make_room_for_descriptors(expected) || base::make_room_for_descriptors(more))
    return {nullptr, [more](void*) { all->fetch_sub(more); }};
  all->fetch_sub(more);
  throw std::runtime_error(base::lack_of_descriptors(more));
}

}  // namespace sluice::backends::ofi
