// SPDX-License-Identifier: Apache-2.0
#include "rma/host_call.hpp"

namespace sluice::rma {

void Links::close(base::Limit& limit) {
  peers.close(limit);
  for (auto* const met : {&origins, &targets})
    for (auto& [rank, signals] : *met) signals.close(limit);
  fence.close(limit);
}

}  // namespace sluice::rma
