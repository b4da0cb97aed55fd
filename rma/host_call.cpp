// SPDX-License-Identifier: Apache-2.0
#include "rma/host_call.hpp"

namespace sluice::rma {

void Links::close(base::Limit& limit) {
  peers.close(limit);
  for (auto* const met : {&origins, &targets})
    for (auto& [rank, signals] : *met) signals.close(limit);
  fence.close(limit);
}

std::uint64_t HostCall::add(Rank rank, std::size_t offset, std::uint64_t value) {
  return links_.peers.add(rank, offset, value, limit_);
}

void HostCall::subtract_later(Rank rank, std::size_t offset, std::uint64_t lock) {
  links_.peers.subtract(rank, offset, lock, limit_);
}

}  // namespace sluice::rma
