// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace emucxi {

class Domain;

/// Gives a domain its tables of calls.
void set_domain_ops(Domain& domain);

}  // namespace emucxi
