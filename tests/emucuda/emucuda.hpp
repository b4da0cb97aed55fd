// SPDX-License-Identifier: Apache-2.0
// Exports of the emulated driver besides CUDA's functions: kernels are host functions here, which tests register; and
// it refuses operations on request. For programs that are not written for it, cuInit calls `void emucuda_kernels()` of
// the library that EMUCUDA_KERNELS names.
#pragma once

#include <cuda.h>

#include <cstddef>

#pragma GCC visibility push(default)
extern "C" {

/// `params` are copies, as cuLaunchKernel makes them; device pointers among them must go through emucuda_alias.
using EmucudaKernel = void (*)(void** params, unsigned grid[3], unsigned block[3]);

/// From now on cuModuleGetFunction finds `name`, in every module. It runs once a launch, not once a thread.
void emucuda_register_kernel(const char* name, EmucudaKernel kernel);

/// The sizes of the kernel's parameters, which a launch must copy. Without them a launch may only use `extra`, or
/// nothing.
void emucuda_kernel_parameters(const char* name, std::size_t count, const std::size_t* bytes);

/// The address at which this process can access the bytes that a device sees at `pointer`; null if that is no memory,
/// or freed. The bytes that follow are good up to the end of the allocation, or of the mapping.
void* emucuda_alias(CUdeviceptr pointer);

/// The first `taken` operations that the calling thread gives to streams from now on are done; the next `refused` are
/// not done, and return CUDA_ERROR_OUT_OF_MEMORY, unless `at_once` only once the earlier operations of the stream are
/// done; then all are taken again.
void emucuda_refuse(unsigned taken, unsigned refused, int at_once);

/// As emucuda_refuse with `refused` 1 and `at_once`, for the operations that any thread gives to `stream`. Replaces
/// what an earlier call has left.
void emucuda_refuse_of(CUstream stream, unsigned taken);

/// How many operations the stream was given so far.
unsigned long long emucuda_submitted(CUstream stream);

/// 1 if the stream waits at a word now; else 0.
int emucuda_parked(CUstream stream);

/// 1 if a thread is in cuStreamSynchronize for the stream now; else 0.
int emucuda_awaited(CUstream stream);

/// The calling thread's current context fails for good, as when a kernel has used an address that is none: it keeps
/// `error`, what its streams were given is not done any more, and what waits on them ends.
void emucuda_fail(CUresult error);

/// Counts the calls of the calling thread so far, of any kind, and bytes of kernels' arguments.
void emucuda_given(unsigned long long* calls, unsigned long long* argument_bytes);
}
#pragma GCC visibility pop
