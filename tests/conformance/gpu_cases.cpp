// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/gpu_cases.hpp"

namespace sluice::test {

std::string name_of(const GpuCase& one) {
  constexpr const char* kWhose[] = {"hosts", "ours", "users", "pooled", "unshared"};
  return one.ground.name + (one.inline_order ? "_inline_cuda_" : "_cuda_") + kWhose[static_cast<int>(one.source)] +
         "_to_" + kWhose[static_cast<int>(one.target)] + "_d" + std::to_string(one.depth) + "_" +
         std::to_string(one.bytes) + "B";
}

std::ostream& operator<<(std::ostream& out, const GpuCase& one) { return out << name_of(one); }

std::vector<Ground> gpu_grounds() {
  if (GTEST_FLAG_GET(filter).find("cuda") == std::string::npos) return {};
  std::vector<Ground> all = all_grounds();
  for (const Ground& ground : grounds()) {
    if (ground.network) all.push_back(ground);
  }
  return all;
}

Peers peers_of(const GpuCase& one, int ranks) {
  Peers peers;
  peers.ranks = ranks;
  peers.processes = one.ground.processes;
  peers.backend = one.ground.backend;
  return peers;
}

Piece::Piece(Context& context, Whose whose, std::size_t bytes) {
  constexpr std::size_t kBefore = 64;  // not where the allocation begins
  if (whose == Whose::users) {
    users_ = std::make_unique<GpuBuffer>(kBefore + bytes);
    slice_ = context.region(users_->data() + kBefore, bytes).all();
  } else if (whose == Whose::pooled || whose == Whose::unshared) {
    const auto kind = whose == Whose::pooled ? PoolKind::shareable : PoolKind::unshared;
    pooled_ = std::make_unique<PooledBuffer>(kind, kBefore + bytes);
    slice_ = context.region(pooled_->data() + kBefore, bytes).all();
  } else {
    slice_ = context.allocate(bytes, whose == Whose::ours ? Space::device : Space::host).all();
  }
}

}  // namespace sluice::test
