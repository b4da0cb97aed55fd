// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/stage.hpp"

#include "device/copy.hpp"

namespace sluice::backends::ofi {

Stage::Stage(Rail& rail, std::size_t piece_bytes, int pieces, const device::Extent& source) {
  const std::size_t stride = whole_lines(piece_bytes);
  memory_ = device::allocate(stride * static_cast<std::size_t>(pieces), false);
  registered_ = rail.registered(memory_.extent());
  for (int i = 0; i < pieces; ++i)
    pieces_.push_back({memory_.extent().data + stride * static_cast<std::size_t>(i), nullptr});
  if (source.driver == nullptr) return;
  try {
    const auto gpu = source.driver->find(source.data);
    if (!gpu) throw device::GpuError("the memory to send is no GPU's any more");
    device::reach(*source.driver, memory_.extent());
    copy_stream_.emplace(*source.driver, gpu->device, copied_.word);
  } catch (...) {
    base::give_back(copied_);
    throw;
  }
}

void Stage::copy(device::Watch& watch, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (!copy_stream_) return device::copy({}, to, from, bytes);
  copy_stream_->give(watch, ++copies_, [&](device::Lane lane) { device::copy(lane, to, from, bytes); });
}

std::pair<std::byte*, bool> Stage::room(std::uint64_t epoch, std::size_t at) noexcept {
  const Piece& piece = pieces_[next_];
  if (piece.sender != nullptr && piece.sender->posted) return {nullptr, false};
  return {piece.data, std::exchange(filled_, {epoch, at}) == std::pair(epoch, at)};
}

void Stage::sent(const Operation& operation) noexcept {
  pieces_[next_].sender = &operation;
  next_ = (next_ + 1) % pieces_.size();
  filled_ = {};
}

}  // namespace sluice::backends::ofi
