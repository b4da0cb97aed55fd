// SPDX-License-Identifier: Apache-2.0
// The operations that one call of ours gives to a GPU's stream. It gathers operations on words, so that the stream gets
// as few operations as possible.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/words.hpp"
#include "device/driver.hpp"
#include "device/kernels.hpp"
#include "device/retire.hpp"

namespace sluice::device {

struct GpuSlice;

/// While it lives, the stream's GPU is the calling thread's current one, and nothing that waits for idle streams
/// begins. All functions throw GpuError.
class GpuCall {
 public:
  explicit GpuCall(Stream stream) : GpuCall(stream, device::driver(stream.kind())->device_of(stream.handle())) {}
  /// For callers that know the stream's GPU.
  GpuCall(Stream stream, int device)
      : driver_(*device::driver(stream.kind())), stream_(stream.handle()), device_(device), current_(driver_, device) {}

  Driver& driver() const noexcept { return driver_; }
  void* stream() const noexcept { return stream_; }
  int device() const noexcept { return device_; }

  /// Later operations wait until the word is reached.
  void wait(const base::Word& word, std::uint64_t at_least) {
    if (puts_ != 0) issue();
    add({WordOp::Kind::wait, const_cast<base::Word*>(&word), at_least});
    waits_ = true;
  }
  /// Writes once all operations before have happened; of copies by a kernel, only the last. The processor may see the
  /// value later than the operations after it, none of which is a wait.
  void write(base::Word& word, std::uint64_t value);
  /// Writes a register of a device, which only the stream's own operation may do.
  void write(void* word, std::uint64_t value);
  /// Copies by the copy engine.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);
  /// Copies by the host, in the stream's order: any host memory, also memory that the driver was not given.
  void copy_by_host(std::byte* to, const std::byte* from, std::size_t bytes);
  /// Copies by a kernel, which must reach both sides. One kernel makes all such copies in a row, and writes the words
  /// behind them.
  void copy_by_kernel(std::byte* to, const std::byte* from, std::size_t bytes);
  void launch(const Launch& what) {
    issue();
    driver_.launch(device_, stream_, what);
  }
  void call(void (*function)(void*), void* argument) {
    issue();
    driver_.call(stream_, function, argument);
  }
  /// Gives the stream the gathered operations. Must be the last call.
  void issue();

  GpuSlice* slice = nullptr;  ///< of the timeline, under way (traced.cpp)

 private:
  static constexpr std::size_t kMost = OperateArgs::kMost;
  /// Issues operations that must precede a copy: waits. Writes may follow later copies, in one operation with the
  /// writes of other channels.
  void begin_copy();
  void operate();
  void launch_puts();
  void add(const WordOp& op) {
    if (count_ == kMost) issue();
    ops_[count_++] = op;
  }

  std::shared_lock<std::shared_mutex> giving_ = giving_work();
  Driver& driver_;
  void* stream_;
  int device_;
  OnDevice current_;
  // Gathered: operations on words, and behind them the puts of a kernel.
  std::array<WordOp, kMost> ops_;
  std::size_t count_ = 0;
  bool waits_ = false;  // among them
  SmallPutsArgs small_;
  std::size_t puts_ = 0;
  std::size_t words_ = 0;
  std::size_t largest_ = 0;  // of the puts, in bytes
};

}  // namespace sluice::device
