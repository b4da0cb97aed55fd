// SPDX-License-Identifier: Apache-2.0
// What one call of ours gives to a GPU's stream. Operations on words are gathered, so that the stream gets as few
// operations as possible.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/words.hpp"
#include "device/driver.hpp"
#include "device/kernels.hpp"

namespace sluice::device {

struct GpuSlice;

/// While it lives the stream's GPU is the calling thread's current one. All of it throws GpuError.
class GpuCall {
 public:
  explicit GpuCall(Stream stream) : GpuCall(stream, device::driver(stream.kind())->device_of(stream.handle())) {}
  /// Where it is known of which GPU the stream is.
  GpuCall(Stream stream, int device)
      : driver_(*device::driver(stream.kind())), stream_(stream.handle()), device_(device), current_(driver_, device) {}
  GpuCall(const GpuCall&) = delete;
  GpuCall& operator=(const GpuCall&) = delete;

  Driver& driver() const noexcept { return driver_; }
  int device() const noexcept { return device_; }

  /// Later operations wait until the word is reached.
  void wait(const base::Word& word, std::uint64_t at_least) {
    if (puts_ != 0) issue();
    add({WordOp::Kind::wait, const_cast<base::Word*>(&word), at_least});
    waits_ = true;
  }
  /// Once all operations before have happened; of those that a kernel copies, the last. The processor may see it later
  /// than the operations after it, none of which is a wait.
  void write(base::Word& word, std::uint64_t value);
  /// The same where only the stream's own operation may do it: registers of a device.
  void write(void* word, std::uint64_t value);
  /// By the copy engine.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);
  /// By the host, when the stream comes to it: memory of the processor, all of it, which the driver need not have.
  void copy_by_host(std::byte* to, const std::byte* from, std::size_t bytes);
  /// By a kernel, which must reach both: one for all such copies in a row, with the words that are written next.
  void copy_by_kernel(std::byte* to, const std::byte* from, std::size_t bytes);
  void launch(const Launch& what) {
    issue();
    driver_.launch(device_, stream_, what);
  }
  void call(void (*function)(void*), void* argument) {
    issue();
    driver_.call(stream_, function, argument);
  }
  /// Gives the stream what was gathered; the last thing that is called.
  void issue();

 private:
  friend class Traced;
  static constexpr std::size_t kMost = OperateArgs::kMost;
  /// Issues what must happen before a copy: a wait. Writes may leave behind later copies, in one operation with those
  /// of other channels.
  void begin_copy();
  void operate();
  void launch_puts();
  void add(const WordOp& op) {
    if (count_ == kMost) issue();
    ops_[count_++] = op;
  }

  Driver& driver_;
  void* stream_;
  int device_;
  OnDevice current_;
  GpuSlice* slice_ = nullptr;  // of the timeline, under way
  // Gathered: operations on words, and then what a kernel does.
  std::array<WordOp, kMost> ops_;
  std::size_t count_ = 0;
  bool waits_ = false;  // among them
  SmallPutsArgs small_;
  std::size_t puts_ = 0;
  std::size_t words_ = 0;
  std::size_t largest_ = 0;  // of the puts, in bytes
};

}  // namespace sluice::device
