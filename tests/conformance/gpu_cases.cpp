// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/gpu_cases.hpp"

#include <algorithm>
#include <cstdlib>

namespace sluice::test {

std::string name_of(const GpuCase& one) {
  constexpr const char* kWhose[] = {"hosts", "ours", "users", "pooled", "unshared"};
  return one.ground.name + (one.inline_order ? "_inline_cuda_" : "_cuda_") + kWhose[static_cast<int>(one.source)] +
         "_to_" + kWhose[static_cast<int>(one.target)] + "_d" + std::to_string(one.depth) + "_" +
         std::to_string(one.bytes) + "B";
}

std::ostream& operator<<(std::ostream& out, const GpuCase& one) { return out << name_of(one); }

std::vector<GpuCase> only(std::vector<GpuCase> cases, bool (*wanted)(const GpuCase&)) {
  std::erase_if(cases, [&](const GpuCase& one) { return !wanted(one); });
  return cases;
}

std::vector<Ground> gpu_grounds() {
  if (GTEST_FLAG_GET(filter).find("cuda") == std::string::npos) return {};
  std::vector<Ground> all = all_grounds();
  for (const Ground& ground : grounds()) {
    if (ground.network) all.push_back(ground);
  }
  return all;
}

std::vector<GpuCase> one_case_on(std::initializer_list<std::string_view> names) {
  std::vector<GpuCase> cases;
  for (const Ground& ground : gpu_grounds()) {
    if (std::ranges::find(names, ground.name) != names.end()) cases.push_back({.ground = ground});
  }
  return cases;
}

Peers peers_of(const GpuCase& one, int ranks) {
  Peers peers;
  peers.ranks = ranks;
  peers.processes = one.ground.processes;
  peers.backend = one.ground.backend;
  return peers;
}

bool by_hip() {
  const char* const vendors = std::getenv("SLUICE_GPUS");
  return vendors != nullptr && vendors == std::string_view("hip");
}

void run_on_two_gpus(const GpuCase& one, const char* visible, const Body& body) {
  constexpr std::size_t kGpus = Board::kWords - 1;
  enum Found : std::uint64_t { kUnknown, kFew, kApart, kPeers };
  run_peers(peers_of(one), [&](Context& context) {
    if (context.rank() == 0) {
      board().set(kGpus, gpus() < 2 ? kFew : gpus_reach_each_other() ? kPeers : kApart);
    } else {
      board().await(kGpus, kFew);
      ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);  // before this process looks
    }
    if (board().word(kGpus) == kPeers) return body(context);
    if (context.rank() != 0) return;
    const bool few = board().word(kGpus) == kFew;
    skipped_here(few ? "ranks on two GPUs: there is only one" : "ranks on two GPUs: these have no peer access");
  });
}

void run_on_two_gpus(const GpuCase& one, const Body& body) {
  run_on_two_gpus(one, "1,0", body);
  if (one.target != Whose::ours) run_on_two_gpus(one, "1", body);
}

void run_on_two_gpus_of_a_process(const GpuCase& one, const Body& body) {
  run_peers(peers_of(one), [&](Context& context) {
    if (gpus_reach_each_other()) {
      use_gpu_of_thread(context.rank());
      return body(context);
    }
    if (context.rank() == 0) skipped_here("two GPUs in a process: there is one, or they have no peer access");
  });
}

std::vector<GpuCase> two_gpu_cases(bool processes) {
  std::vector<GpuCase> cases;
  for (const Ground& ground : gpu_grounds()) {
    if (ground.processes != processes) continue;
    for (const Whose whose : {Whose::ours, Whose::users}) {
      cases.push_back({ground, false, whose, whose, 1, 13});
      cases.push_back({ground, false, whose, whose, 3, 100'000});
    }
  }
  return cases;
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

void poison_in_gpu(const Slice& slots) {
  std::vector<std::byte> bytes(slots.bytes());
  poison(bytes);
  gpu_copy(slots.data(), bytes.data(), bytes.size());
}

std::vector<std::byte> bytes_in_gpu(const Slice& slots) {
  std::vector<std::byte> bytes(slots.bytes());
  gpu_copy(bytes.data(), slots.data(), bytes.size());
  return bytes;
}

}  // namespace sluice::test
