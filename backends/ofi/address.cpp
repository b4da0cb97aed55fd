// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/address.hpp"

#include <span>

namespace sluice::backends::ofi {
namespace {

void append_text(Blob& blob, const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  append(blob, Blob(bytes.begin(), bytes.end()));
}

/// The pieces of a blob, one after another.
class Pieces {
 public:
  explicit Pieces(const Blob& blob, std::size_t at = 0) : blob_(blob), at_(at) {}

  bool left() const noexcept { return at_ < blob_.size(); }
  Blob next() {
    const auto length = value_in<std::uint32_t>(blob_, at_);
    at_ += sizeof length;
    if (blob_.size() - at_ < length) throw std::runtime_error("an address, or a list of names, that ends too early");
    const auto first = blob_.begin() + static_cast<std::ptrdiff_t>(at_);
    at_ += length;
    return {first, first + length};
  }
  std::string next_text() {
    const Blob piece = next();
    return {reinterpret_cast<const char*>(piece.data()), piece.size()};
  }

 private:
  const Blob& blob_;
  std::size_t at_;
};

/// The parts of a fixed size.
struct Numbers {
  base::Endpoint ip;
  std::uint64_t flushes = 0;
  std::uint64_t flushes_key = 0;
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
  for (Pieces rest(blob, at); rest.left();) all.push_back(rest.next());
  return all;
}

Blob pack(const Address& address) {
  Blob blob;
  append_text(blob, address.provider);
  for (const EndpointAddress& endpoint : address.endpoints) {
    const Numbers numbers{endpoint.ip, endpoint.flushes, endpoint.flushes_key};
    append_text(blob, endpoint.device);
    append_text(blob, endpoint.network);
    append(blob, endpoint.name);
    append(blob, bytes_of(numbers));
  }
  return blob;
}

Address unpack(const Blob& blob) {
  Pieces pieces(blob);
  Address address{pieces.next_text(), {}};
  while (pieces.left()) {
    EndpointAddress endpoint;
    endpoint.device = pieces.next_text();
    endpoint.network = pieces.next_text();
    endpoint.name = pieces.next();
    const auto numbers = value_of<Numbers>(pieces.next());
    endpoint.ip = numbers.ip;
    endpoint.flushes = numbers.flushes;
    endpoint.flushes_key = numbers.flushes_key;
    address.endpoints.push_back(std::move(endpoint));
  }
  return address;
}

}  // namespace sluice::backends::ofi
