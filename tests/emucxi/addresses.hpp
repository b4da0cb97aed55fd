// SPDX-License-Identifier: Apache-2.0
// Addresses of endpoints. Opaque to programs and 8 bytes long, as on cxi: here an IPv4 address and a port.
#pragma once

#include <rdma/fi_domain.h>

#include <cstddef>

namespace emucxi {

class Domain;

class Addresses : public fid_av {
 public:
  using Fid = fid_av;

  Addresses(Domain& domain, fid_av* wrapped, void* context);

  Domain& domain() const { return domain_; }

  fid_av* const inner;
  int users = 0;  // endpoints; with the domain's lock held

 private:
  Domain& domain_;
};

int open_addresses(fid_domain* domain, fi_av_attr* attributes, fid_av** addresses, void* context);

/// fi_getname for an endpoint of `sockets`.
int packed_name(fid_ep* inner, void* address, std::size_t* bytes);

}  // namespace emucxi
