// SPDX-License-Identifier: Apache-2.0
// Connections that carry whole packets in one direction: a line in one process, a UNIX socket on one host, TCP between
// hosts.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "base/words.hpp"
#include "peers/mailbox.hpp"

namespace sluice::runtime {

using base::Clock;

/// The two ends of a TCP connection accept each other only if both know it.
using Secret = std::array<std::byte, 16>;

/// Connecting starts anew with another socket after this time: the kernel doubles the pauses between its attempts.
inline constexpr std::chrono::seconds kCallAgain{2};
/// The pause after an attempt that has failed.
inline constexpr std::chrono::milliseconds kCallPause{100};

/// True if an error (errno; 0: none) means that the peer closed its end, also by dying; else the network has failed.
bool closed_by_peer(int error) noexcept;

/// The timeout for `poll`: a minute at most; -1 if `then` is `time_point::max`.
int milliseconds_until(Clock::time_point then);

/// Waits for events of one descriptor; not beyond the deadline, and a minute at most. Returns those that there are.
short poll_one(const base::Fd& fd, short wanted, Clock::time_point deadline = {});

/// On TCP the caller, which connects, sends the secret, and the other end answers with its complement; only then do
/// packets flow, each after its length (4 bytes). So a rank knows that its peer has taken the connection, and an echo
/// is no peer.
class Wire {
 public:
  enum class Sent : std::uint8_t {
    yes,
    later,    ///< no room now: again with the same packet when the socket is ready
    starved,  ///< no memory or descriptors: again a little later
    closed    ///< the other end is closed, or lost; `error` says why
  };

  Wire() noexcept = default;
  /// Between threads of this process.
  explicit Wire(LineEnd line) noexcept : line_(std::move(line)) {}
  /// A connected UNIX socket (SOCK_SEQPACKET).
  explicit Wire(base::Fd socket) noexcept : socket_(std::move(socket)) {}
  /// A TCP socket that is connected, or is connecting.
  static Wire calling(base::Fd socket, const Secret& secret) { return {std::move(socket), secret, true}; }
  /// A TCP socket that was accepted.
  static Wire called(base::Fd socket, const Secret& secret) { return {std::move(socket), secret, false}; }

  explicit operator bool() const noexcept { return socket_ || line_; }
  /// Empty for a line: its wakers wake the ranks.
  const base::Fd& socket() const noexcept { return socket_; }
  /// The other end is closed.
  bool hung_up() const;
  /// The events to poll for: those that let a packet be sent, if there is an unsent one, or the handshake go on.
  short wanted(bool unsent) const noexcept;

  /// @throws std::logic_error for descriptors on TCP, std::invalid_argument as base::send_packet
  Sent send(std::span<const std::byte> bytes, std::span<const int> fds);
  /// The next packet, if a whole one has arrived. `closed`: the other end is closed, or does not know the secret.
  /// @throws std::system_error if this process has no room for the packet's descriptors; the packet waits.
  std::optional<base::Packet> receive();

  /// The other host has answered, though its end may not know the secret.
  bool reached() const noexcept { return !tcp_ || secret_sent_ > 0; }
  /// The two ends know each other.
  bool open() const noexcept { return !tcp_ || (secret_sent_ == say_.size() && proved_); }
  /// Why the wire is closed (errno); 0: the other end closed it.
  int error() const noexcept { return error_; }

 private:
  Wire(base::Fd socket, const Secret& secret, bool caller);
  Sent send_framed(std::span<const std::byte> bytes);
  Sent send_rest(std::span<const std::byte> head, std::span<const std::byte> body, std::size_t& sent);
  std::optional<base::Packet> receive_framed();
  bool shake_hands();
  bool check_secret();
  bool receive_up_to(std::size_t bytes);
  void end(int error) noexcept;

  base::Fd socket_;
  LineEnd line_;
  bool tcp_ = false;
  bool caller_ = false;
  bool ended_ = false;
  int error_ = 0;
  Secret say_{};
  Secret expect_{};
  std::size_t secret_sent_ = 0;  // bytes of `say_` that have been sent
  bool proved_ = false;          // `expect_` has been received
  std::size_t sent_ = 0;         // of the packet that is being sent, with its length
  std::vector<std::byte> incoming_;
  std::size_t received_ = 0;
};

/// A connection whose other end has not identified itself yet.
struct PendingConnection {
  Wire wire;
  /// When a caller on another host must have shown that it knows the secret.
  Clock::time_point until = Clock::now() + std::chrono::seconds(5);
};

/// Adds the sockets to wait for. Returns when the first of the connections is to be dropped.
Clock::time_point prepare_pending(const std::vector<PendingConnection>& all, std::vector<pollfd>& sockets);

/// Receives from all. Calls `identify(wire, bytes)` for the first packet of each, and then drops what is left of it.
template <class Identify>
void hear_pending(std::vector<PendingConnection>& all, Identify identify) {
  std::erase_if(all, [&](PendingConnection& one) {
    const auto packet = one.wire.receive();  // carries no descriptors
    if (!packet) return !one.wire.open() && Clock::now() >= one.until;
    if (!packet->closed) identify(one.wire, packet->bytes);
    return true;
  });
}

}  // namespace sluice::runtime
