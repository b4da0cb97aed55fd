// SPDX-License-Identifier: Apache-2.0
// Addresses of endpoints. Opaque to programs and 8 bytes long, as on cxi: here an IPv4 address and a port.
#pragma once

#include <rdma/fi_domain.h>

#include <cstddef>

#include "tests/layer/object.hpp"

namespace emucxi {

class Domain;

/// `users` are endpoints.
class Addresses : public layer::Part<fid_av, Domain> {
 public:
  Addresses(Domain& owner, fid_av* wrapped, void* context);
  ~Addresses();

  fid_av* const inner;
};

int open_addresses(fid_domain* domain, fi_av_attr* attributes, fid_av** addresses, void* context);

/// fi_getname for an endpoint of `sockets`.
int packed_name(fid_ep* inner, void* address, std::size_t* bytes);

}  // namespace emucxi
