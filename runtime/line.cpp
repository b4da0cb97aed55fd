// SPDX-License-Identifier: Apache-2.0
#include "runtime/line.hpp"

#include <string>

namespace sluice::runtime {
namespace {

Slice new_memory(const std::shared_ptr<const Services>& services, Rank rank, std::size_t bytes) {
  auto block = base::make_here<detail::Block>();
  block->world = services;
  block->rank = rank;
  block->allocation = device::allocate(bytes, true);
  block->extent = block->allocation.extent();
  for (const auto& [name, transport] : services->transports) block->pins.push_back(transport->pin(block->extent));
  std::byte* const data = block->extent.data;
  return detail::SliceAccess::make(std::move(block), data, bytes);
}

}  // namespace

Opening line_opening(const std::shared_ptr<const Services>& services, const Opening& of, ChannelKey key, int depth,
                     std::size_t slot) {
  ChannelOptions options;
  options.depth = depth;
  Slice memory = new_memory(services, of.rank, static_cast<std::size_t>(depth) * slot);
  return {std::move(key), of.rank, of.peer, std::move(memory), options, of.name, {}, -1, true};
}

}  // namespace sluice::runtime
