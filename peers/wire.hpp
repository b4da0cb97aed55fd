// SPDX-License-Identifier: Apache-2.0
// One way from a rank to another: a line in one process, a UNIX socket on one host, TCP between hosts. Each carries
// whole packets.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/fd.hpp"
#include "peers/mailbox.hpp"

namespace sluice::runtime {

/// What the two ends of a TCP socket must know before they believe each other.
using Secret = std::array<std::byte, 16>;

/// A stranger from another host that has said nothing for this long is none of us.
inline constexpr std::chrono::seconds kSilence{5};
/// The kernel doubles its pauses between two tries to connect; a new socket does not.
inline constexpr std::chrono::seconds kCallAgain{2};
inline constexpr std::chrono::milliseconds kCallPause{100};

/// On TCP whoever connects first sends the secret, and is answered with its complement; only then do packets flow, each
/// after its length (4 bytes). So a rank knows that its peer has taken the connection, and an echo is no peer.
class Wire {
 public:
  enum class Sent : std::uint8_t {
    yes,
    later,    ///< no room now: again with the same packet when the socket is ready
    starved,  ///< no memory or descriptors: again a little later
    over      ///< the other end is gone; `error` says why
  };

  Wire() noexcept = default;
  /// Between threads of this process.
  static Wire inside(LineEnd line);
  /// A connected UNIX socket (SOCK_SEQPACKET).
  static Wire here(base::Fd socket);
  /// A TCP socket that connects, or is connected.
  static Wire calling(base::Fd socket, const Secret& secret);
  /// A TCP socket that was accepted.
  static Wire called(base::Fd socket, const Secret& secret);

  explicit operator bool() const noexcept { return socket_ || line_; }
  /// Empty: a line, which wakes the rank itself.
  const base::Fd& socket() const noexcept { return socket_; }
  /// The other end has closed it.
  bool hung_up() const;
  /// What to poll for, besides its end, to go on sending.
  short wanted(bool unsent) const noexcept;

  /// @throws std::logic_error for descriptors on TCP, std::invalid_argument as base::send_packet
  Sent send(std::span<const std::byte> bytes, std::span<const int> fds);
  /// Nothing: no whole packet yet. `closed`: the other end is gone, or no peer.
  /// @throws std::system_error if this process has no room for the packet's descriptors; the packet waits.
  std::optional<base::Packet> receive();

  /// The other end has answered: it is there, though perhaps a stranger.
  bool reached() const noexcept { return !tcp_ || said_ > 0; }
  /// The two ends know each other.
  bool open() const noexcept { return !tcp_ || (said_ == kHand && heard_ == kHand); }
  /// Why the wire is over (errno); 0: the other end closed it, or it is no peer.
  int error() const noexcept { return error_; }

 private:
  static constexpr std::size_t kHand = sizeof(Secret);

  Wire(base::Fd socket, bool caller, const Secret& say, const Secret& expect);
  Sent send_inside(std::span<const std::byte> bytes, std::span<const int> fds);
  Sent send_here(std::span<const std::byte> bytes, std::span<const int> fds);
  Sent send_framed(std::span<const std::byte> bytes);
  std::optional<base::Packet> receive_here();
  std::optional<base::Packet> receive_framed();
  bool shake();
  bool say();
  bool hear();
  bool fill(std::size_t bytes);
  bool read_some(std::span<std::byte> into, std::size_t& count);
  void end(int error) noexcept;

  base::Fd socket_;
  LineEnd line_;
  bool tcp_ = false;
  bool caller_ = false;
  bool over_ = false;
  int error_ = 0;
  Secret say_{};
  Secret expect_{};
  Secret answer_{};
  std::size_t said_ = 0;
  std::size_t heard_ = 0;
  std::size_t sent_ = 0;  // of the packet that is being sent, with its length
  std::vector<std::byte> coming_;
  std::size_t come_ = 0;
};

}  // namespace sluice::runtime
