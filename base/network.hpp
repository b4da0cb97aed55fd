// SPDX-License-Identifier: Apache-2.0
// TCP between hosts: addresses, sockets that never block, and time limits of connections.
#pragma once

#include "base/fd.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

struct sockaddr;

namespace sluice::base {

/// An IP address and a port, in the form that hosts send each other.
struct Endpoint {
  std::array<std::uint8_t, 16> address{};  ///< as on the wire; IPv4 uses the first four bytes
  std::uint16_t port = 0;
  std::uint16_t version = 0;  ///< 4 or 6; 0: none
  std::uint32_t zone = 0;     ///< the number, on this host, of the interface of a link-local address of IPv6

  bool operator==(const Endpoint&) const = default;
};

/// Reads an address in digits, without a port. Version 0: the text is none.
Endpoint parse_address(const std::string& text);
/// Returns version 0 for a socket address of another family.
Endpoint endpoint_of(const sockaddr* socket) noexcept;
/// Puts the address of `endpoint` into a socket address of the same version.
void replace_address(sockaddr& socket, const Endpoint& endpoint) noexcept;

/// "192.0.2.1", "2001:db8::1" or "fe80::1%eth0".
std::string address_text(const Endpoint& endpoint);
/// "192.0.2.1:80", "[2001:db8::1]:80" or "[fe80::1%eth0]:80".
[[gnu::visibility("default")]] std::string text_of(const Endpoint& endpoint);

/// True for an address that every host has for itself.
[[gnu::visibility("default")]] bool loopback(const Endpoint& endpoint) noexcept;
/// True for an address that is valid on one network only.
bool link_local(const Endpoint& endpoint) noexcept;

/// Returns all addresses of a host, by name or number, in the order in which to try them: the system's order, with the
/// two versions of IP in turn. May wait for a name server.
/// @throws std::runtime_error if the host has no address now; it may have one later.
std::vector<Endpoint> resolve(const std::string& host, std::uint16_t port);

/// Returns the address that `chosen` names: an address of this host, or the name of an interface that is up and has
/// one. Empty: the first interface that is up and no loopback, else the loopback. The port is 0. Prefers IPv4; never
/// link-local. Waits a few seconds for an interface that is coming up.
/// @throws std::invalid_argument if there is no such address here.
[[gnu::visibility("default")]] Endpoint own_address(const std::string& chosen);

/// Returns all addresses of an interface, by its name or one address; never link-local.
std::vector<Endpoint> addresses_of(const std::string& interface);

/// True if an interface other than the loopback is up and cannot be used yet: its link has just come up, is dormant, or
/// the system still checks that its address is free. `without_carrier`: links without a carrier count too.
bool interface_comes_up(bool without_carrier = false);

/// True if a socket can have this address of this host now.
bool usable(const Endpoint& endpoint);

/// Way of packets from one address of this host to another host's, by the kernel's routes.
enum class Way : std::uint8_t {
  none,    ///< there is no route
  itself,  ///< the other address is this host's too
  other,   ///< through an interface that does not have the source address
  own      ///< through the interface of the source address
};
/// Sends no packet. Empty: the kernel does not tell.
std::optional<Way> way(const Endpoint& from, const Endpoint& to);

/// Listens at an address; port 0: at a free port. @throws std::system_error
[[gnu::visibility("default")]] Fd listen_on(const Endpoint& endpoint);
/// Listens at every address of this host, of both versions of IP where it has both. @throws std::system_error
Fd listen_everywhere(std::uint16_t port);

/// Returns the address and port of this end of a socket, as IPv4 if it is mapped into IPv6. @throws std::system_error
[[gnu::visibility("default")]] Endpoint own_end(const Fd& socket);

/// Begins to connect, and does not wait: the socket becomes writable when the connection has succeeded or failed.
/// @returns an empty Fd, and errno, if connecting cannot begin.
Fd begin_connect(const Endpoint& endpoint);

/// Accepts one pending connection, if any; else returns an empty Fd, with errno.
Fd accept_one(const Fd& listener);

/// Makes small packets leave at once, and the connection break when the other host has not answered for `timeout`.
/// Shorter absences have no effect. At most half of `timeout` more passes before a vanished host is noticed (3 s for 1
/// s).
void keep_alive(const Fd& socket, std::chrono::nanoseconds timeout) noexcept;

}  // namespace sluice::base
