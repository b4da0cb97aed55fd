// SPDX-License-Identifier: Apache-2.0
// Memory of cuMemCreate, and pools of memory.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "tests/emucuda/block.hpp"
#include "tests/emucuda/cuda_api.hpp"

namespace emucuda {

/// Handles count their references as CUDA says: create, import and retain make a handle each, release ends one.
struct Physical {
  std::shared_ptr<Block> block;
  int device;
};

struct Pool {
  Pool(std::optional<int> on, unsigned types, bool is_imported, std::shared_ptr<Block> named)
      : device(on), handle_types(types), imported(is_imported), access(on ? std::uint64_t{1} << *on : 0),
        name(std::move(named)) {}

  std::optional<int> device;  // none: CUDA_VISIBLE_DEVICES hides it from the importer
  unsigned handle_types;
  bool imported;
  std::atomic<bool> exported{false};
  std::atomic<std::uint64_t> access;  // a bit for each device that was let in, its own included
  std::shared_ptr<Block> name;        // what its descriptor refers to, if it can be shared
};

}  // namespace emucuda
