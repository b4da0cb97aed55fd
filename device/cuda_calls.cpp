// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_calls.hpp"

#include <dlfcn.h>

#include "device/vendors.hpp"

namespace sluice::device {

std::string load(CudaCalls& calls) {
  constexpr int kVersion = 12000;  // the oldest whose calls are as we use them
  constexpr const char* kTooOld = "the CUDA driver is older than version 12.0";
  void* const library = dlopen(kCudaLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "there is no CUDA driver (libcuda.so.1)";
  const auto find = reinterpret_cast<decltype(&::cuGetProcAddress)>(dlsym(library, "cuGetProcAddress_v2"));
  if (find == nullptr) return kTooOld;
  const auto get = [&](const char* name, void** call) {
    return find(name, call, kVersion, CU_GET_PROC_ADDRESS_DEFAULT, nullptr) == CUDA_SUCCESS && *call != nullptr;
  };
#define SLUICE_GET(call) \
  if (!get(#call, reinterpret_cast<void**>(&calls.call))) return kTooOld;
  SLUICE_CUDA_CALLS(SLUICE_GET)
  SLUICE_GET(cuStreamGetCaptureInfo)
#undef SLUICE_GET
  return {};
}

}  // namespace sluice::device
