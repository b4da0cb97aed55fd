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
#define SLUICE_GET(call, ...)                                                        \
  calls.call = reinterpret_cast<hipError_t (*)(__VA_ARGS__)>(dlsym(library, #call)); \
  if (calls.call == nullptr) return std::string("the HIP runtime has no ") + #call;
  SLUICE_HIP_CALLS(SLUICE_GET)
#undef SLUICE_GET
  calls.hipLaunchHostFunc = reinterpret_cast<decltype(calls.hipLaunchHostFunc)>(dlsym(library, "hipLaunchHostFunc"));
  calls.hipStreamGetDevice = reinterpret_cast<decltype(calls.hipStreamGetDevice)>(dlsym(library, "hipStreamGetDevice"));
  return {};
}

}  // namespace sluice::device
