// SPDX-License-Identifier: Apache-2.0
// For tests on the emulated GPU: the library's own stream there, and which streams and threads wait.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <thread>

#include "device/handshake.hpp"
#include "tests/await_answer.hpp"
#include "tests/mpis/order.hpp"

namespace stream_mpi_test {

template <class Function>
Function* of_driver(const char* name) {
  auto* const found = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  expect(found != nullptr, "an emulated driver");
  return found;
}

/// A stream waits at a word.
inline bool is_parked(CUstream stream) {
  static auto* const by_driver = of_driver<int(CUstream)>("emucuda_parked");
  return by_driver(stream) != 0;
}

/// The library's own stream on the GPU of a stream of the program.
class OwnStream {
 public:
  explicit OwnStream(const Order& order) {
    const sluice::device::Handshake handshake(sluice::Stream::cuda(order.stream->cuda));
    stream_ = static_cast<CUstream>(handshake.own_stream().handle());
  }
  /// How many operations it was given.
  unsigned long long submitted() const { return of_driver<unsigned long long(CUstream)>("emucuda_submitted")(stream_); }
  /// A thread waits for it.
  bool is_awaited() const {
    static auto* const by_driver = of_driver<int(CUstream)>("emucuda_awaited");
    return by_driver(stream_) != 0;
  }
  /// The driver takes so many operations from now on, and refuses the next one.
  void refuse_after(unsigned taken) const { of_driver<void(CUstream, unsigned)>("emucuda_refuse_of")(stream_, taken); }
  /// Holds up what it is given from now on, until `open` is true.
  void hold(std::atomic<bool>& open) const {
    constexpr auto wait = [](void* until) { static_cast<std::atomic<bool>*>(until)->wait(false); };
    expect(cuLaunchHostFunc(stream_, wait, &open) == CUDA_SUCCESS, "work of the library's own stream");
  }

 private:
  CUstream stream_ = nullptr;
};

/// Holds the library's own stream up until the program's stream waits, or a thread waits for the library's, or
/// `passed`.
class HeldUp {
 public:
  HeldUp(const Order& order, const std::atomic<bool>& passed)
      : own_(order), opener_([this, &passed, stream = order.stream->cuda] {
          await_or_abort([&] {
            std::this_thread::yield();
            return passed || is_parked(stream) || own_.is_awaited();
          });
          open_ = true;
          open_.notify_all();
        }) {
    own_.hold(open_);
  }
  HeldUp(const HeldUp&) = delete;
  HeldUp& operator=(const HeldUp&) = delete;
  /// After the wait of the host for the program's stream.
  ~HeldUp() { opener_.join(); }
  const OwnStream& own() const { return own_; }
  bool open() const { return open_; }

 private:
  OwnStream own_;
  std::atomic<bool> open_ = false;
  std::thread opener_;
};

}  // namespace stream_mpi_test
