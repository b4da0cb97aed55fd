// SPDX-License-Identifier: Apache-2.0
// Kernels are host functions that tests have registered; a module is a name for all of them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/emucuda/emucuda.hpp"

namespace emucuda {

struct Kernel {
  EmucudaKernel run = nullptr;
  std::optional<std::vector<std::size_t>> parameters;  // sizes
};

class Kernels {
 public:
  void add(const std::string& name, EmucudaKernel run);
  void set_parameters(const std::string& name, std::vector<std::size_t> bytes);
  /// As it is now; none if it was not registered.
  std::optional<Kernel> find(const std::string& name) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Kernel> kernels_;
};

/// Registered before cuInit or after.
Kernels& kernels();

/// Has the library register its own. False, and a line on stderr, if it has none.
bool load_kernels(const std::string& library);

}  // namespace emucuda
