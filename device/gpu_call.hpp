// SPDX-License-Identifier: Apache-2.0
// What one call of ours gives to a GPU's stream. Operations on words are gathered, so that the stream gets as few
// operations as possible.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/words.hpp"
#include "device/driver.hpp"

namespace sluice::device {

/// While it lives the stream's GPU is the calling thread's current one. All of it throws GpuError.
class GpuCall {
 public:
  explicit GpuCall(Stream stream);
  GpuCall(const GpuCall&) = delete;
  GpuCall& operator=(const GpuCall&) = delete;

  Driver& driver() const noexcept { return driver_; }
  int device() const noexcept { return device_; }

  /// Later operations wait until the word is reached.
  void wait(const base::Word& word, std::uint64_t at_least) {
    add({WordOp::Kind::wait, const_cast<base::Word*>(&word), at_least});
    waits_ = true;
  }
  /// Once all operations before have happened. The processor may see it later than the operations after it, none of
  /// which is a wait.
  void write(base::Word& word, std::uint64_t value) { write(static_cast<void*>(&word), value); }
  void write(void* word, std::uint64_t value) { add({WordOp::Kind::write, word, value}); }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);
  void launch(const Launch& what) {
    issue();
    driver_.launch(stream_, what);
  }
  void call(void (*function)(void*), void* argument) {
    issue();
    driver_.call(stream_, function, argument);
  }
  /// Gives the stream what was gathered; the last thing that is called.
  void issue();

 private:
  static constexpr std::size_t kMost = 64;
  void add(const WordOp& op) {
    if (count_ == kMost) issue();
    ops_[count_++] = op;
  }

  Driver& driver_;
  void* stream_;
  int device_;
  OnDevice current_;
  std::array<WordOp, kMost> ops_;
  std::size_t count_ = 0;
  bool waits_ = false;  // among what is gathered
};

}  // namespace sluice::device
