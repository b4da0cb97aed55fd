// SPDX-License-Identifier: Apache-2.0
// What a conformance test on a GPU is run with.
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tests/conformance/cases.hpp"

namespace sluice::test {

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

/// All grounds; none where the filter of this run names no GPU.
std::vector<Ground> gpu_grounds();

Peers peers_of(const GpuCase& one, int ranks = 2);

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

}  // namespace sluice::test
