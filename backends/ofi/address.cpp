// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/address.hpp"

#include <span>

namespace sluice::backends::ofi {
namespace {

Blob blob_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string text_in(const Blob& piece) { return {reinterpret_cast<const char*>(piece.data()), piece.size()}; }

/// The parts of a fixed size.
struct Numbers {
  base::Endpoint ip;
  Spot flushes;
};

}  // namespace

std::string EndpointAddress::text() const {
  return ip.version == 0 ? device : device + " (" + base::address_text(ip) + ")";
}

void append(Blob& blob, const Blob& piece) {
  const Blob length = bytes_of(static_cast<std::uint32_t>(piece.size()));
  blob.insert(blob.end(), length.begin(), length.end());
  blob.insert(blob.end(), piece.begin(), piece.end());
}

std::vector<Blob> pieces(const Blob& blob, std::size_t at) {
  std::vector<Blob> all;
  while (at < blob.size()) {
    const auto length = value_in<std::uint32_t>(blob, at);
    at += sizeof length;
    if (blob.size() - at < length) throw std::runtime_error("an address, or a list of names, that ends too early");
    const auto first = blob.begin() + static_cast<std::ptrdiff_t>(at);
    all.emplace_back(first, first + length);
    at += length;
  }
  return all;
}

Blob pack(const Address& address) {
  Blob blob;
  append(blob, blob_of(address.provider));
  for (const EndpointAddress& endpoint : address.endpoints) {
    append(blob, blob_of(endpoint.device));
    append(blob, blob_of(endpoint.network));
    append(blob, endpoint.name);
    append(blob, bytes_of(Numbers{endpoint.ip, endpoint.flushes}));
  }
  return blob;
}

Address unpack(const Blob& blob) {
  constexpr std::size_t kOfEndpoint = 4;
  const std::vector<Blob> all = pieces(blob, 0);
  if (all.size() % kOfEndpoint != 1) throw std::runtime_error("an address that ends too early");
  Address address{text_in(all.front()), {}};
  for (std::size_t i = 1; i < all.size(); i += kOfEndpoint) {
    const auto numbers = value_of<Numbers>(all[i + 3]);
    address.endpoints.push_back({text_in(all[i]), text_in(all[i + 1]), numbers.ip, all[i + 2], numbers.flushes});
  }
  return address;
}

}  // namespace sluice::backends::ofi
