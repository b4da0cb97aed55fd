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
  const auto get = [&](auto& call) {
    void** const function = reinterpret_cast<void**>(&call.function);
    return find(call.name, function, kVersion, CU_GET_PROC_ADDRESS_DEFAULT, nullptr) == CUDA_SUCCESS &&
           *function != nullptr;
  };
#define SLUICE_GET(name) \
  if (!get(calls.name)) return kTooOld;
  SLUICE_CUDA_CALLS(SLUICE_GET)
  SLUICE_GET(StreamGetCaptureInfo)
#undef SLUICE_GET
  return {};
}

std::string CudaCalls::text_of(Result result) const {
  const char* text = nullptr;
  return GetErrorName(result, &text) == CUDA_SUCCESS ? text : "an unknown error";
}

std::string CudaCalls::version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace sluice::device
