// SPDX-License-Identifier: Apache-2.0
#include "backends/mpi/stage.hpp"

#include "device/copy.hpp"

namespace sluice::backends::mpi {

Stage::Stage(const Slots& source, int depth) : source_(source) {
  try {
    memory_ = device::allocate(source.slot_bytes * static_cast<std::size_t>(depth), false);
    slots_ = {memory_.extent(), source.slot_bytes, depth};
    if (source.memory.driver == nullptr) return;
    device::Driver& driver = *source.memory.driver;
    const auto gpu = driver.find(source.memory.data);
    if (!gpu) throw device::GpuError("the memory to send is no GPU's any more");
    device::reach(driver, memory_.extent());
    stream_.emplace(driver, gpu->device, copied_.word);
  } catch (...) {
    base::give_back(copied_);
    throw;
  }
}

const std::byte* Stage::copy(device::Watch& watch, std::uint64_t epoch, Range part) {
  std::byte* const to = slots_.at(epoch) + part.offset;
  if (last_ != epoch) {
    last_ = epoch;
    const std::byte* const from = source_.at(epoch) + part.offset;
    if (!stream_) {
      device::copy({}, to, from, part.bytes);
    } else {
      stream_->give(watch, ++copies_, [&](device::Lane lane) { device::copy(lane, to, from, part.bytes); });
    }
  }
  return at_rest(watch) && !watch.failed() ? to : nullptr;
}

}  // namespace sluice::backends::mpi
