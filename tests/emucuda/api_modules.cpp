// SPDX-License-Identifier: Apache-2.0
// Modules and launches.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>

#include "tests/emucuda/driver.hpp"
#include "tests/emucuda/kernel.hpp"

namespace emucuda {

struct Module {
  explicit Module(Context& owner) : context(owner) {}

  Context& context;
  std::mutex mutex;
  std::set<std::string> loaded;  // kernels

  /// False if it was loaded before.
  bool load(const char* name) {
    const std::lock_guard lock(mutex);
    return loaded.insert(name).second;
  }
};

struct Function {
  Context& context;
  CUmodule module;
  std::string name;
};

}  // namespace emucuda

using namespace emucuda;

namespace {

constexpr std::uint64_t kThreadsOfBlock = 1024;
using Dimensions = std::array<unsigned, 3>;

/// Copies of the arguments, which the caller may change or free after the launch.
struct Arguments {
  std::vector<std::vector<char>> values;

  void add(const void* from, std::size_t bytes) {
    const char* const begin = static_cast<const char*>(from);
    values.emplace_back(begin, begin + bytes);
  }
};

CUresult copy_parameters(const Function& function, const Kernel& kernel, void** parameters, Arguments& arguments) {
  if (!kernel.parameters) {
    std::fprintf(stderr, "emucuda: the launch of %s needs emucuda_kernel_parameters\n", function.name.c_str());
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < kernel.parameters->size(); ++i) arguments.add(parameters[i], (*kernel.parameters)[i]);
  return CUDA_SUCCESS;
}

/// One buffer with all arguments, which the kernel gets as its only parameter.
CUresult copy_buffer(void** extra, Arguments& arguments) {
  const void* buffer = nullptr;
  const std::size_t* bytes = nullptr;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
    if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = static_cast<const std::size_t*>(extra[1]);
  }
  if (!buffer || !bytes) return CUDA_ERROR_INVALID_VALUE;
  arguments.add(buffer, *bytes);
  return CUDA_SUCCESS;
}

/// By value: what a kernel writes to its parameters, the next launch of a graph must not see.
CUresult run_kernel(Turn& turn, EmucudaKernel kernel, Arguments arguments, Dimensions grid, Dimensions block) {
  std::vector<void*> parameters;
  for (auto& value : arguments.values) parameters.push_back(value.data());
  turn.run_kernel([&] {
    in_stream_function() = true;
    kernel(parameters.data(), grid.data(), block.data());
    in_stream_function() = false;
  });
  return CUDA_SUCCESS;
}

bool valid(const Dimensions& grid, const Dimensions& block) {
  const auto positive = [](unsigned extent) { return extent > 0; };
  const std::uint64_t threads = std::uint64_t{block[0]} * block[1] * block[2];
  return std::all_of(grid.begin(), grid.end(), positive) && threads > 0 && threads <= kThreadsOfBlock &&
         grid[1] <= 65535 && grid[2] <= 65535 && block[2] <= 64;
}

CUresult launch(CUfunction handle, Dimensions grid, Dimensions block, CUstream stream_handle, void** parameters,
                void** extra) {
  StreamPtr stream;
  if (const CUresult error = use_stream(stream_handle, stream)) return error;
  const auto function = driver().functions.find(handle);
  if (!function || &function->context != &stream->context) return CUDA_ERROR_INVALID_HANDLE;
  const auto kernel = kernels().find(function->name);
  if (!kernel || !valid(grid, block) || (parameters && extra)) return CUDA_ERROR_INVALID_VALUE;
  Arguments arguments;
  CUresult error = CUDA_SUCCESS;
  if (parameters) error = copy_parameters(*function, *kernel, parameters, arguments);
  if (extra) error = copy_buffer(extra, arguments);
  if (error) return error;
  for (const auto& value : arguments.values) given().argument_bytes += value.size();
  stream->context.submit(stream, [run = kernel->run, arguments, grid, block](Turn& turn) {
    return run_kernel(turn, run, arguments, grid, block);
  });
  return CUDA_SUCCESS;
}

/// A lazy driver loads a kernel at its first use, and waits for that as for a module.
CUresult load(Module& module, const char* name) {
  if (!driver().settings().lazy || !module.load(name)) return CUDA_SUCCESS;
  if (const CUresult error = driver().captures.use_unsafely()) return error;
  return module.context.synchronize("cuModuleGetFunction");
}

CUresult use_function(CUfunction handle) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  return driver().functions.find(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* handle, const void* image) {
  Context* context = nullptr;
  if (const CUresult error = use_context_unsafely(context)) return error;
  if (!handle || !image) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = context->synchronize("cuModuleLoadData")) return error;
  driver().modules.add(std::make_shared<Module>(*context), handle);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule* handle, const void* image, unsigned int, CUjit_option*, void**) {
  return cuModuleLoadData(handle, image);
}

CUresult cuModuleUnload(CUmodule handle) {
  Context* context = nullptr;
  if (const CUresult error = use_context_unsafely(context)) return error;
  if (const CUresult error = context->synchronize("cuModuleUnload")) return error;
  if (!driver().modules.take(handle)) return CUDA_ERROR_INVALID_HANDLE;
  driver().functions.forget_if([&](const Function& function) { return function.module == handle; });
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* handle, CUmodule module_handle, const char* name) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  const auto module = driver().modules.find(module_handle);
  if (!handle || !name) return CUDA_ERROR_INVALID_VALUE;
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (!kernels().find(name)) return CUDA_ERROR_NOT_FOUND;
  if (const CUresult error = load(*module, name)) return error;
  driver().functions.add(std::make_shared<Function>(Function{module->context, module_handle, name}), handle);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal(CUdeviceptr*, size_t*, CUmodule, const char*) {
  if (const CUresult error = use_driver()) return error;
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int, CUstream stream,
                        void** parameters, void** extra) {
  return launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, stream, parameters, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  return launch(function, {config->gridDimX, config->gridDimY, config->gridDimZ},
                {config->blockDimX, config->blockDimY, config->blockDimZ}, config->hStream, parameters, extra);
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute, int) { return use_function(handle); }

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  if (const CUresult error = use_function(handle)) return error;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? static_cast<int>(kThreadsOfBlock) : 0;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads, size_t) {
  if (const CUresult error = use_function(handle)) return error;
  if (!blocks || threads < 1) return CUDA_ERROR_INVALID_VALUE;
  *blocks = 2048 / threads;
  return CUDA_SUCCESS;
}
}
