// SPDX-License-Identifier: Apache-2.0
#include "device/hip_calls.hpp"

#include <dlfcn.h>

#include "device/vendors.hpp"

namespace sluice::device {

// The structures of the header are those of its major version.
#define SLUICE_TEXT(number) #number
#define SLUICE_TEXT_OF(macro) SLUICE_TEXT(macro)
const char* const kHipLibrary = "libamdhip64.so." SLUICE_TEXT_OF(HIP_VERSION_MAJOR);

std::string load(HipCalls& calls) {
  void* const library = dlopen(kHipLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::string("there is no HIP runtime (") + kHipLibrary + ")";
  const auto get = [library](auto& call) {
    call.function = reinterpret_cast<decltype(call.function)>(dlsym(library, call.name));
    return call.function != nullptr;
  };
#define SLUICE_GET(call, ...) \
  if (!get(calls.call)) return std::string("the HIP runtime has no ") + calls.call.name;
  SLUICE_HIP_CALLS(SLUICE_GET)
#undef SLUICE_GET
  get(calls.LaunchHostFunc);
  get(calls.StreamGetDevice);
  return {};
}

}  // namespace sluice::device
