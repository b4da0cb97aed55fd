// SPDX-License-Identifier: Apache-2.0
// A message that is made anew each time, and found by communicator, peer, tag and order.
#pragma once

#include "dialects/common/layout.hpp"

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

namespace sluice::stream_mpi {

class Lane;

enum class Direction : std::uint8_t { send, receive };

/// One way, between a buffer of the program and a lane. It is added to its lane by the host, in the order by which it
/// is matched; started by a stream; and complete when the lane has moved its bytes, or has failed.
class Transfer {
 public:
  /// `lane`: null for MPI_PROC_NULL, with which it is complete at once.
  Transfer(std::shared_ptr<Lane> lane, Layout layout, int peer, int tag);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  /// The buffer may lie in a GPU's memory. Before `add`.
  void look_for_gpu_memory();
  /// Takes the next place of the lane. Once, before `start`.
  static void add(const std::shared_ptr<Transfer>& message);
  /// From now on the buffer is used.
  void start();
  /// Fails the lane of an incomplete message, since later messages would be matched wrongly. No thread uses the buffer
  /// afterwards.
  void abandon(const char* why);
  /// Fails a message that has no place in its lane.
  void cancel();

  /// The stream that starts the message, in terms of the dialect. Weak: the thread of a stream cannot destroy it.
  std::optional<std::weak_ptr<void>> owner;

  // Any thread.
  bool complete() const noexcept { return complete_.load(std::memory_order_acquire); }
  bool succeeded() const noexcept { return complete() && failure_ == nullptr; }
  /// @throws the failure of a complete message
  void check() const;
  /// Writes the peer, the tag and the number of bytes of a complete message.
  void describe(MPI_Status* status) const;

  // Called by the lane of the message, one thread at a time.

  bool started() const noexcept { return started_.load(std::memory_order_acquire); }
  /// Before the first part. Later calls do nothing.
  void begin(Direction direction);
  /// Behind the last part.
  void end(Direction direction);
  void fail(std::exception_ptr failure) noexcept;
  std::size_t room() const noexcept { return layout_.bytes(); }

  struct Moved {
    std::byte* at = nullptr;
    std::size_t bytes = 0;  ///< of the message; the receiver learns it from the first part
    std::size_t moved = 0;
    bool begun = false;  ///< the first part is sent or received
  };
  Moved parts;

 private:
  std::shared_ptr<Lane> lane_;
  Layout layout_;
  int peer_;
  int tag_;
  bool on_gpu_ = false;            // the buffer, which the processor does not touch
  std::vector<std::byte> packed_;  // if it is, or if the elements do not follow each other
  std::atomic<bool> started_ = false;
  std::atomic<bool> complete_ = false;
  std::exception_ptr failure_;
};

}  // namespace sluice::stream_mpi
