// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace emucxi {

class Endpoint;

/// Gives an endpoint its tables of calls.
void set_endpoint_ops(Endpoint& endpoint);

}  // namespace emucxi
