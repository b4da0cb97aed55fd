// SPDX-License-Identifier: Apache-2.0
// TCP between hosts: addresses, sockets that never block, and links that are given up only after a while.
#pragma once

#include "base/fd.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

namespace sluice::base {

/// An IP address and a port, as they travel between hosts.
struct Endpoint {
  std::array<std::uint8_t, 16> address{};  ///< as on the wire; IPv4 uses the first four bytes
  std::uint16_t port = 0;
  std::uint16_t version = 0;  ///< 4 or 6; 0: none

  bool operator==(const Endpoint&) const = default;
};

/// "192.0.2.1:80" or "[2001:db8::1]:80".
std::string text_of(const Endpoint& endpoint);

/// The address of a host, by name or number; IPv4 if it has both. It may take a name server's time.
/// @throws std::runtime_error if there is none.
Endpoint resolve(const std::string& host, std::uint16_t port);

/// What `chosen` means: an address of this host, or the name of an interface that is up and has one. Empty: the first
/// interface that is up and no loopback; the loopback if there is none. The port is 0. Prefers IPv4; never link-local.
/// @throws std::invalid_argument if there is no such address here.
[[gnu::visibility("default")]] Endpoint own_address(const std::string& chosen);

/// Listens; port 0: one that is free. @throws std::system_error
[[gnu::visibility("default")]] Fd listen_on(const Endpoint& endpoint);
/// Every address of this host, of the same version and with the same port.
Endpoint everywhere(const Endpoint& endpoint);

/// The address and port of this end of a socket. @throws std::system_error
[[gnu::visibility("default")]] Endpoint own_end(const Fd& socket);

/// Begins to connect, and does not wait: the socket becomes writable when that has succeeded or failed.
/// @returns an empty Fd with errno left if it cannot even begin.
Fd begin_connect(const Endpoint& endpoint);

/// Takes one connection that waits, if any; else an empty Fd, with errno.
Fd accept_one(const Fd& listener);

/// Small packets leave at once, and the connection breaks when the other host has not answered for `timeout`; one that
/// is away for less is not noticed. At most half as long again passes before a vanished host is (3 s for 1 s).
void keep_alive(const Fd& socket, std::chrono::nanoseconds timeout) noexcept;

}  // namespace sluice::base
