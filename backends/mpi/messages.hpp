// SPDX-License-Identifier: Apache-2.0
// The part of MPI that this backend uses: messages between the ranks of one communicator. over_mpi.cpp, which is part
// of the library that links MPI, implements it, and gives it to this library when the program starts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice::backends::mpi {

/// The address of a rank of Sluice for messages.
struct Address {
  std::array<std::uint64_t, 2> communicator{};  ///< its name: 128 random bits
  std::int32_t rank = 0;                        ///< of MPI, in the communicator
  std::int32_t station = 0;                     ///< tells those apart that share a rank of MPI
};

/// The messages of one station. A message is a head of at most `kMostHead` bytes, and may have a body behind it, which
/// is a message of MPI of its own: its receiver learns from the head where the body belongs, and how long it is. Heads
/// and bodies from one sender arrive in the order in which they were sent. Any thread may call these, one at a time.
/// Errors of MPI are thrown as std::runtime_error.
class Messages {
 public:
  /// Heads of this size leave without an answer from the receiver in every MPI that we know.
  static constexpr std::size_t kMostHead = 2048;

  /// A send or receive under way: the requests of MPI. Empty: it has ended.
  using Operation = std::vector<std::uint64_t>;

  /// The head of a message, and the sender's rank of MPI. Valid until the next call of `next`.
  struct Arrived {
    std::span<const std::byte> head;  ///< empty: no message has arrived
    int from = 0;
  };

  virtual ~Messages() = default;
  const Address& address() const noexcept { return address_; }

  /// Starts to send. Both parts are read until their operations have ended. An empty body is not sent.
  virtual void send(const Address& to, std::span<const std::byte> head, Operation& of_head,
                    std::span<const std::byte> body, Operation& of_body) = 0;
  /// The next message for this station. Never waits.
  virtual Arrived next() = 0;
  /// Starts to receive the body of the message whose head was the last one of `next` from there. It has exactly so many
  /// bytes. Call it for each body, in the order of the heads.
  virtual void receive(int from, std::span<std::byte> body, Operation& operation) = 0;
  /// Returns whether the operation has ended, so that its memory is ours again. Never waits.
  virtual bool ended(Operation& operation) = 0;
  /// The operation counts as ended from now on. A receive is cancelled. A send is left to MPI, and will not be
  /// received.
  virtual void abandon(Operation& operation, bool receive) noexcept = 0;

 protected:
  explicit Messages(const Address& address) : address_(address) {}

 private:
  Address address_;
};

/// Gives messages to the backend.
struct Source {
  std::string (*why_not)();             ///< why MPI cannot be used now; empty: it can
  std::unique_ptr<Messages> (*open)();  ///< a new station. @throws std::exception
};

/// For static objects of the library that links MPI; not thread-safe.
[[gnu::visibility("default")]] void provide(const Source& given) noexcept;

}  // namespace sluice::backends::mpi
