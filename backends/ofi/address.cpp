// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/address.hpp"

#include <cstring>
#include <stdexcept>

namespace sluice::backends::ofi {
namespace {

void append(Blob& blob, const void* data, std::size_t bytes) {
  const auto length = static_cast<std::uint32_t>(bytes);
  const auto* const from = static_cast<const std::byte*>(data);
  blob.insert(blob.end(), reinterpret_cast<const std::byte*>(&length), reinterpret_cast<const std::byte*>(&length + 1));
  blob.insert(blob.end(), from, from + bytes);
}

void append(Blob& blob, const std::string& text) { append(blob, text.data(), text.size()); }

/// The pieces of a blob, one after another.
class Pieces {
 public:
  explicit Pieces(const Blob& blob, std::size_t at = 0) : blob_(blob), at_(at) {}

  bool left() const noexcept { return at_ < blob_.size(); }
  Blob next() {
    std::uint32_t length = 0;
    take(&length, sizeof length);
    if (blob_.size() - at_ < length) throw std::runtime_error(kTooEarly);
    const auto first = blob_.begin() + static_cast<std::ptrdiff_t>(at_);
    at_ += length;
    return {first, first + length};
  }
  std::string next_text() {
    const Blob piece = next();
    return {reinterpret_cast<const char*>(piece.data()), piece.size()};
  }
  template <class Value>
  Value next_value() {
    Value value{};
    const Blob piece = next();
    if (piece.size() != sizeof value) throw std::runtime_error(kTooEarly);
    std::memcpy(&value, piece.data(), sizeof value);
    return value;
  }

 private:
  static constexpr const char* kTooEarly = "an address, or a list of names, that ends too early";

  void take(void* to, std::size_t bytes) {
    if (blob_.size() - at_ < bytes) throw std::runtime_error(kTooEarly);
    std::memcpy(to, blob_.data() + at_, bytes);
    at_ += bytes;
  }

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

void append(Blob& blob, const Blob& piece) { append(blob, piece.data(), piece.size()); }

std::vector<Blob> pieces(const Blob& blob, std::size_t at) {
  std::vector<Blob> all;
  for (Pieces rest(blob, at); rest.left();) all.push_back(rest.next());
  return all;
}

Blob pack(const Address& address) {
  Blob blob;
  append(blob, address.provider);
  for (const EndpointAddress& endpoint : address.endpoints) {
    const Numbers numbers{endpoint.ip, endpoint.flushes, endpoint.flushes_key};
    append(blob, endpoint.device);
    append(blob, endpoint.network);
    append(blob, endpoint.name);
    append(blob, &numbers, sizeof numbers);
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
    const auto numbers = pieces.next_value<Numbers>();
    endpoint.ip = numbers.ip;
    endpoint.flushes = numbers.flushes;
    endpoint.flushes_key = numbers.flushes_key;
    address.endpoints.push_back(std::move(endpoint));
  }
  return address;
}

}  // namespace sluice::backends::ofi
