// SPDX-License-Identifier: Apache-2.0
// Addresses of a rank's endpoints, as its peers get to know them.
#pragma once

#include <string>
#include <vector>

#include "backends/transport.hpp"
#include "base/network.hpp"

namespace sluice::backends::ofi {

/// A place in a rank's registered memory, by the remote address and key that its peers use.
struct Spot {
  std::uint64_t address = 0;
  std::uint64_t key = 0;
};

/// One endpoint.
struct EndpointAddress {
  std::string device;
  std::string network;  ///< that the device is on; empty: not known
  base::Endpoint ip;    ///< version 0: it has none
  Blob name;            ///< for the peer's address table
  Spot flushes;         ///< unused bytes

  /// "eth0 (10.0.0.1)", for people.
  std::string text() const;
};

struct Address {
  std::string provider;
  std::vector<EndpointAddress> endpoints;
};

/// `blob` gets one more piece, from which `pieces` takes it.
void append(Blob& blob, const Blob& piece);
/// The pieces from byte `at` on.
/// @throws std::runtime_error for a blob that ends too early.
std::vector<Blob> pieces(const Blob& blob, std::size_t at);

Blob pack(const Address& address);
/// @throws std::runtime_error for a blob that ends too early.
Address unpack(const Blob& blob);

}  // namespace sluice::backends::ofi
