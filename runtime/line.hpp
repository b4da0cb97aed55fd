// SPDX-License-Identifier: Apache-2.0
// Lines: channels inside of the library, by which targets and the owner of a window talk. A line is a part of another
// end, which tells of failures in its place.
#pragma once

#include <memory>
#include <utility>

#include "runtime/channel.hpp"
#include "runtime/handles.hpp"
#include "runtime/registry.hpp"

namespace sluice::runtime {

/// An end of a line, as `of` would open it: `depth` slots of `slot` bytes in new memory.
Opening line_opening(const std::shared_ptr<const Services>& services, const Opening& of, ChannelKey key, int depth,
                     std::size_t slot);

/// Opens an end of a line. @throws Error
template <class Handle, class Core>
Handle open_line(const std::shared_ptr<const Services>& services, Opening what) {
  auto core = base::make_here<Core>(services, std::move(what));
  services->registry.open(*core);
  return detail::ChannelAccess::make<Handle>(std::move(core));
}

}  // namespace sluice::runtime
