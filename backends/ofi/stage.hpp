// SPDX-License-Identifier: Apache-2.0
// Memory that the provider cannot reach: what moves goes through memory of ours that it can. A sender sends it in
// pieces, so that one is on its way while the next is copied; the receiver's side is in landing.cpp.
#pragma once

#include <utility>

#include "backends/ofi/rail.hpp"
#include "device/copy_stream.hpp"

namespace sluice::backends::ofi {

/// In front of what lands in a staged slot: where it belongs.
struct StageHeader {
  static constexpr std::size_t kBytes = 64;  // a line, so that the payload begins at one
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

constexpr std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// The sender's side: room for pieces, which are used in turn.
class Stage {
 public:
  /// For what comes from `source`. @throws GpuError
  Stage(Rail& rail, std::size_t piece_bytes, int pieces, const device::Extent& source);
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  ~Stage() { base::give_back(copied_); }

  void* desc() const { return registered_->desc(); }
  /// Room for `bytes` at `at` of `epoch`, and whether they are there already, because a try to send them found the
  /// provider busy. Null: all pieces are on their way.
  std::pair<std::byte*, bool> room(std::uint64_t epoch, std::size_t at) noexcept;
  /// Copies into that room. From a GPU's memory a stream of ours copies, and no thread waits for it; a copy that its
  /// driver refuses fails the watch.
  void copy(device::Watch& watch, std::byte* to, const std::byte* from, std::size_t bytes);
  /// All that was copied is there, or never will be, and the watch has failed. Else the source is still read, and the
  /// room written.
  bool copied(device::Watch& watch) noexcept { return !copy_stream_ || copy_stream_->has_completed(watch, copies_); }
  /// The piece of `room` is on its way with `operation`.
  void sent(const Operation& operation) noexcept;

 private:
  struct Piece {
    std::byte* data = nullptr;
    const Operation* sender = nullptr;
  };

  device::Allocation memory_;
  std::shared_ptr<Registration> registered_;
  std::vector<Piece> pieces_;
  base::Progress& copied_ = base::take_progress();
  std::optional<device::CopyStream> copy_stream_;  // of a GPU's memory
  std::uint64_t copies_ = 0;                       // given to it
  std::size_t next_ = 0;
  std::pair<std::uint64_t, std::size_t> filled_{};  // epoch and offset of what is in the next piece; epoch 0: nothing
};

}  // namespace sluice::backends::ofi
