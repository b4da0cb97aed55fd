// SPDX-License-Identifier: Apache-2.0
// The drivers of this build: the only file that knows which vendors there are.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/text.hpp"
#include "device/vendor_driver.hpp"

namespace sluice::device {
namespace {

struct Vendor {
  std::string_view name;
  Stream::Kind kind;
  const char* library;
  Driver& (*driver)();
};

/// Returns the value of a variable of the environment; "": it is not set.
std::string_view value_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

/// Returns the vendors that the environment allows, the same in the whole process.
const std::vector<Vendor>& vendors() {
  static const std::vector<Vendor> allowed = [] {
    std::vector<Vendor> all = {
#ifdef SLUICE_HAS_CUDA
        {"cuda", Stream::Kind::cuda, kCudaLibrary, cuda_driver},
#endif
#ifdef SLUICE_HAS_HIP
        {"hip", Stream::Kind::hip, kHipLibrary, hip_driver},
#endif
    };
    const auto words = base::words_of(value_of("SLUICE_GPUS"));
    if (!words.empty()) std::erase_if(all, [&](const Vendor& one) { return std::ranges::count(words, one.name) == 0; });
    return all;
  }();
  return allowed;
}

}  // namespace

std::vector<Driver*> drivers() {
  std::vector<Driver*> all;
  for (const Vendor& vendor : vendors()) all.push_back(&vendor.driver());
  return all;
}

std::vector<Driver*> drivers_in_use() {
  std::vector<Driver*> all;
  for (const Vendor& vendor : vendors()) {
    void* const library = dlopen(vendor.library, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) continue;
    dlclose(library);  // one count less; it stays
    if (vendor.driver().why_not().empty()) all.push_back(&vendor.driver());
  }
  return all;
}

bool words_by_kernels() {
  static const bool chosen = value_of("SLUICE_GPU_WAITS") == "kernel";
  return chosen;
}

Driver* driver(Stream::Kind kind) {
  for (const Vendor& vendor : vendors()) {
    if (vendor.kind == kind) return &vendor.driver();
  }
  return nullptr;
}

Driver* any_driver() {
  for (const Vendor& vendor : vendors()) {  // loads no more drivers than needed
    if (vendor.driver().why_not().empty()) return &vendor.driver();
  }
  return nullptr;
}

}  // namespace sluice::device
