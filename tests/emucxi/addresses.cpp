// SPDX-License-Identifier: Apache-2.0
#include "tests/emucxi/addresses.hpp"

#include <netinet/in.h>
#include <rdma/fi_cm.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/emucxi/domain.hpp"
#include "tests/layer/tables.hpp"

namespace emucxi {
namespace {

struct Packed {
  std::uint32_t host;
  std::uint16_t port;
  std::uint16_t unused;
};
static_assert(sizeof(Packed) == 8);

sockaddr_in unpacked(const Packed& packed) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = packed.host;
  address.sin_port = packed.port;
  return address;
}

/// As libfabric specifies: copies as much as fits, and sets `bytes` to the whole size.
int give(const sockaddr_in& address, void* to, std::size_t* bytes) {
  const Packed packed = {address.sin_addr.s_addr, address.sin_port, 0};
  const std::size_t room = *bytes;
  *bytes = sizeof(packed);
  std::memcpy(to, &packed, std::min(room, sizeof(packed)));
  return room < sizeof(packed) ? -FI_ETOOSMALL : 0;
}

fid_av* inner_of(fid_av* handle) { return static_cast<Addresses*>(handle)->inner; }

int insert(fid_av* handle, const void* addresses, std::size_t count, fi_addr_t* inserted, std::uint64_t flags,
           void* context) {
  std::vector<Packed> packed(count);
  std::memcpy(packed.data(), addresses, count * sizeof(Packed));
  std::vector<sockaddr_in> sockets(count);
  std::transform(packed.begin(), packed.end(), sockets.begin(), unpacked);
  return fi_av_insert(inner_of(handle), sockets.data(), count, inserted, flags, context);
}

int remove(fid_av* handle, fi_addr_t* addresses, std::size_t count, std::uint64_t flags) {
  return fi_av_remove(inner_of(handle), addresses, count, flags);
}

int lookup(fid_av* handle, fi_addr_t peer, void* address, std::size_t* bytes) {
  sockaddr_in found{};
  std::size_t length = sizeof(found);
  if (const int bad = fi_av_lookup(inner_of(handle), peer, &found, &length)) return bad;
  return give(found, address, bytes);
}

fi_ops addresses_ops = layer::calls<fi_ops>([](fi_ops& has) { has.close = layer::close_part<Addresses>; });
fi_ops_av av_ops = layer::calls<fi_ops_av>([](fi_ops_av& has) {
  has.insert = insert;
  has.remove = remove;
  has.lookup = lookup;
});

}  // namespace

Addresses::Addresses(Domain& owner, fid_av* wrapped, void* context)
    : Part({{FI_CLASS_AV, context, &addresses_ops}, &av_ops}, owner), inner(wrapped) {}

Addresses::~Addresses() { fi_close(&inner->fid); }

int open_addresses(fid_domain* domain, fi_av_attr* attributes, fid_av** addresses, void* context) {
  auto& owner = *static_cast<Domain*>(domain);
  fi_av_attr wanted = attributes ? *attributes : fi_av_attr{};
  wanted.type = FI_AV_TABLE;
  fid_av* inner = nullptr;
  if (const int bad = fi_av_open(owner.inner, &wanted, &inner, nullptr)) return bad;
  *addresses = new Addresses(owner, inner, context);
  return 0;
}

int packed_name(fid_ep* inner, void* address, std::size_t* bytes) {
  sockaddr_in name{};
  std::size_t length = sizeof(name);
  if (const int bad = fi_getname(&inner->fid, &name, &length)) return bad;
  return give(name, address, bytes);
}

}  // namespace emucxi
