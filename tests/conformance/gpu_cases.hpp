// SPDX-License-Identifier: Apache-2.0
// Parameters of a conformance test on a GPU.
#pragma once

#include <initializer_list>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/cases.hpp"

namespace sluice::test {

/// The size of memory that has an allocation of its own. Smaller ones share an allocation, which is kept.
inline constexpr std::size_t kOwnAllocation = 1024 * 1024;

/// Whose memory a slice is: the host's, ours, or the user's, of cudaMalloc or of a pool that can be shared or cannot.
enum class Whose { hosts, ours, users, pooled, unshared };

struct GpuCase {
  Ground ground;
  bool inline_order = false;  ///< program order instead of a GPU's stream
  Whose source = Whose::ours;
  Whose target = Whose::ours;
  int depth = 1;
  std::size_t bytes = 64;
};

std::string name_of(const GpuCase& one);
std::ostream& operator<<(std::ostream& out, const GpuCase& one);

struct GpuCaseName {
  std::string operator()(const testing::TestParamInfo<GpuCase>& info) const { return name_of(info.param); }
};

/// The cases for which `wanted` is true.
std::vector<GpuCase> only(std::vector<GpuCase> cases, bool (*wanted)(const GpuCase&));
/// Not program order.
inline bool on_gpu_stream(const GpuCase& one) { return !one.inline_order; }

/// True if the GPUs' streams are HIP's: SLUICE_GPUS=hip.
bool by_hip();

/// All grounds; none where the filter of this run names no GPU.
std::vector<Ground> gpu_grounds();
/// One case on each of those of these names.
std::vector<GpuCase> one_case_on(std::initializer_list<std::string_view> names);

Peers peers_of(const GpuCase& one, int ranks = 2);

/// Runs `body` in two ranks, each a process with a GPU of its own. If there is one GPU, or two without peer access,
/// it says so, as `skipped_here` does, and does nothing. `visible`: CUDA_VISIBLE_DEVICES of rank 1; "1,0": it sees
/// both; "1": its own alone.
void run_on_two_gpus(const GpuCase& one, const char* visible, const Body& body);
/// Runs `body` with both visible, then with its own alone. With memory of ours only the first: if the driver refuses
/// that of a hidden GPU, it goes through the host (GpuPairsHidden.reach_memory_of_ours_on_a_hidden_gpu), where neither
/// graphs nor kernels put.
void run_on_two_gpus(const GpuCase& one, const Body& body);

/// Runs `body` in two ranks of one process: rank 0 uses GPU 0, rank 1 uses GPU 1.
void run_on_two_gpus_of_a_process(const GpuCase& one, const Body& body);

/// Cases of such a test: the grounds whose ranks are processes, or threads, and memory of ours and of the
/// user's.
std::vector<GpuCase> two_gpu_cases(bool processes = true);

/// So many bytes.
class Piece {
 public:
  Piece(Context& context, Whose whose, std::size_t bytes);
  const Slice& slice() const { return slice_; }

 private:
  // They outlive the slice.
  std::unique_ptr<GpuBuffer> users_;
  std::unique_ptr<PooledBuffer> pooled_;
  Slice slice_;
};

/// So many bytes of it, wherever it is.
void poison_in_gpu(const Slice& slots);
std::vector<std::byte> bytes_in_gpu(const Slice& slots);

/// True if the driver can refuse operations on request; else reports that a test is left out.
inline bool may_refuse_operations() {
  if (!Refusals::possible()) skipped_here("operations that a driver refuses: this one cannot be told to");
  return Refusals::possible();
}

/// True if the call failed as the refusal of a driver does, here or at the peer.
template <class F>
bool has_failed(const F& call) {
  try {
    call();
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(name(error.code()), std::string(name(Code::transport))) << error.what();
    return true;
  }
}

inline void expect_told(const std::string& description, const std::string& what) {
  EXPECT_NE(description.find(what), std::string::npos) << what << " is not in: " << description;
}

}  // namespace sluice::test
