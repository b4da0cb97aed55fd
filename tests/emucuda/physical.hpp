// SPDX-License-Identifier: Apache-2.0
// What cuMemCreate makes, and pools of memory.
#pragma once

#include <atomic>
#include <memory>

#include "tests/emucuda/block.hpp"
#include "tests/emucuda/cuda_api.hpp"

namespace emucuda {

/// Handles count their references as CUDA says: create, import and retain make a handle each, release ends one.
struct Physical {
  std::shared_ptr<Block> block;
  int device;
};

struct Pool {
  Pool(int on, unsigned types, bool is_imported, std::uint64_t let_in, std::shared_ptr<Block> named)
      : device(on), handle_types(types), imported(is_imported), access(let_in), name(std::move(named)) {}

  int device;
  unsigned handle_types;
  bool imported;
  std::atomic<std::uint64_t> access;  // a bit for each device that was let in, its own included
  std::shared_ptr<Block> name;        // what its descriptor refers to, if it can be shared
};

}  // namespace emucuda
