// SPDX-License-Identifier: Apache-2.0
// What kernels are made of, for CUDA, HIP and the host: words that another processor reads or writes meanwhile, the
// threads of a block, and how a kernel is declared. The only file with a word of a vendor's device language in it. It
// needs no vendor header and no device library, so that a compiler alone makes the kernels.
#pragma once

#include <cstdint>

#if !defined(__CUDACC__) && !defined(__HIP__)
#include <atomic>
#include <thread>
#endif

namespace sluice::device::kernel {

#if defined(__HIP__)

#define SLUICE_DEVICE __attribute__((device)) inline
#define SLUICE_KERNEL extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, 1024))) void

SLUICE_DEVICE std::uint64_t load_acquire(const std::uint64_t& word) {
  return __hip_atomic_load(&word, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}

SLUICE_DEVICE void store_release(std::uint64_t& word, std::uint64_t value) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
#if defined(__GFX9__)
  // The fence starts to write the cache back. clang 19, like others until early 2026, leaves out the wait for its end
  // if no store of this thread is under way (llvm/llvm-project pull request 178316; test:
  // Images.hip_waits_for_the_cache).
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
#endif
  __hip_atomic_store(&word, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

SLUICE_DEVICE void pause() { __builtin_amdgcn_s_sleep(1); }

struct Block {
  SLUICE_DEVICE std::uint32_t index() const { return __builtin_amdgcn_workitem_id_x(); }
  SLUICE_DEVICE std::uint32_t size() const { return __builtin_amdgcn_workgroup_size_x(); }
  SLUICE_DEVICE void sync() const {
    // Of the device, not of the block: at that scope a wave does not wait for its stores, only for their order, and the
    // release of another wave waits for its own stores alone.
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
  }
};

#elif defined(__CUDACC__)

#define SLUICE_DEVICE __device__ inline
#define SLUICE_KERNEL extern "C" __global__ __launch_bounds__(1024) void

// PTX, because <cuda/atomic> says the same and takes five seconds more to compile.
SLUICE_DEVICE std::uint64_t load_acquire(const std::uint64_t& word) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.b64 %0, [%1];" : "=l"(value) : "l"(&word) : "memory");
  return value;
}

// Cumulative: what other threads stored before a barrier that this thread has passed comes first, too.
SLUICE_DEVICE void store_release(std::uint64_t& word, std::uint64_t value) {
  asm volatile("st.release.sys.b64 [%0], %1;" ::"l"(&word), "l"(value) : "memory");
}

SLUICE_DEVICE void pause() { __nanosleep(20); }

struct Block {
  SLUICE_DEVICE std::uint32_t index() const { return threadIdx.x; }
  SLUICE_DEVICE std::uint32_t size() const { return blockDim.x; }
  SLUICE_DEVICE void sync() const { __syncthreads(); }
};

#else

#define SLUICE_DEVICE inline

SLUICE_DEVICE std::uint64_t load_acquire(const std::uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

SLUICE_DEVICE void store_release(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

SLUICE_DEVICE void pause() { std::this_thread::yield(); }

#endif

}  // namespace sluice::device::kernel
