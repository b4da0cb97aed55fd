// SPDX-License-Identifier: Apache-2.0
// The way of a put around memory that MPI does not reach: a copy of it, in memory of ours.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/transport.hpp"
#include "device/copy_stream.hpp"

namespace sluice::backends::mpi {

class Stage {
 public:
  /// Room for `depth` slots of `source`. @throws device::GpuError
  Stage(const Slots& source, int depth);
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  ~Stage() { base::give_back(copied_); }

  /// Copies the part, once for each epoch. A GPU's memory is copied by a stream of ours, for which no thread waits: the
  /// result is null until the copy is there. Epochs come in order. A copy that the driver refuses fails the watch.
  const std::byte* copy(device::Watch& watch, std::uint64_t epoch, Range part);
  /// All that was copied is there, or never will be, and the watch has failed.
  bool at_rest(device::Watch& watch) noexcept { return !stream_ || stream_->has_completed(watch, copies_); }

 private:
  Slots source_;
  Slots slots_;
  device::Allocation memory_;
  base::Progress& copied_ = base::take_progress();
  std::optional<device::CopyStream> stream_;  // of a GPU's memory
  std::uint64_t copies_ = 0;                  // given to it
  std::uint64_t last_ = 0;                    // epoch that was copied
};

}  // namespace sluice::backends::mpi
