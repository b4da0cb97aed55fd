// SPDX-License-Identifier: Apache-2.0
// Common to the tests of windows of a GPU's memory.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/conformance/gpu_cases.hpp"
#include "tests/conformance/windows.hpp"

namespace sluice::test {

/// Rank 0 has a window of the case's target memory, and every rank a target of it, and memory of the source's kind.
struct GpuSide {
  GpuSide(Context& in, std::size_t window_bytes, std::size_t local_bytes)
      : context(in), local(in, one.source, local_bytes) {
    if (!one.inline_order) gpu = std::make_unique<GpuStream>();
    if (in.rank() == 0) {
      memory = std::make_unique<Piece>(in, one.target, window_bytes);
      poison_in_gpu(memory->slice());
      window = in.window(kWindow, memory->slice(), 2);
    }
    target = in.target(0, kWindow);
  }

  Stream stream() const { return gpu == nullptr ? Stream() : gpu->stream(); }
  void flush() {
    target.flush(stream());
    context.synchronize(stream());
  }
  /// Flushes, and returns when every rank has.
  void meet() {
    flush();
    board().meet(context);
  }
  Slice piece(std::size_t offset, std::size_t bytes) const { return local.slice().slice(offset, bytes); }
  /// Stores bytes now, in memory of any kind.
  static void store(const Slice& to, std::span<const std::byte> bytes) {
    if (!bytes.empty()) gpu_copy(to.data(), bytes.data(), bytes.size());
  }
  static void stamp(const Slice& to, const Stamp& with) {
    std::vector<std::byte> bytes(to.bytes());
    fill(bytes, with);
    store(to, bytes);
  }

  const GpuCase& one = testing::WithParamInterface<GpuCase>::GetParam();
  Context& context;
  std::unique_ptr<GpuStream> gpu;
  Piece local;
  std::unique_ptr<Piece> memory;  // rank 0's
  Window window;
  Target target;
};

/// The cases in which all peers map the memory.
inline std::vector<GpuCase> gpu_window_cases(bool inline_order, std::size_t bytes) {
  std::vector<GpuCase> all;
  for (const Ground& ground : gpu_grounds()) {
    if (ground.name != "threads" && ground.name != "shm") continue;
    for (const auto& [source, target] :
         {std::pair(Whose::hosts, Whose::ours), std::pair(Whose::ours, Whose::ours),
          std::pair(Whose::users, Whose::users), std::pair(Whose::hosts, Whose::pooled)}) {
      if (by_hip() && ground.processes && target == Whose::pooled) continue;  // it gives pools to no other process
      all.push_back({ground, inline_order, source, target, 1, bytes});
    }
  }
  return all;
}

}  // namespace sluice::test
