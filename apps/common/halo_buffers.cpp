// SPDX-License-Identifier: Apache-2.0
#include "apps/common/halo_buffers.hpp"

namespace apps {
namespace {

constexpr std::size_t kCacheLine = 64;

// A slot of its own cache lines: its two ends are written and read on different cores.
std::size_t slot_bytes(Index cells, std::size_t cell_bytes) {
  const std::size_t bytes = static_cast<std::size_t>(cells) * cell_bytes;
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

}  // namespace

HaloBuffers::HaloBuffers(sluice::Context& context, const Halo& halo, std::size_t cell_bytes, sluice::Space space) {
  std::size_t total = 0;
  for (const Message& message : halo.messages) {
    const std::size_t out = slot_bytes(message.out_cells, cell_bytes);
    const std::size_t in = slot_bytes(message.in_cells, cell_bytes);
    places_.push_back({total, out, total + kSlots * out, in});
    total += kSlots * (out + in);
  }
  if (total == 0) return;
  memory_ = context.allocate(total, space);
  base_ = memory_.data();
}

}  // namespace apps
