// SPDX-License-Identifier: Apache-2.0
// The parts of kernels for CUDA, HIP and the host: words that another processor reads or writes at the same time, and
// groups of threads that act together. No other file uses a vendor's device language. This one needs no vendor header
// and no device library, so a compiler alone can make the kernels.
#pragma once

#include <cstdint>

#if !defined(__CUDACC__) && !defined(__HIP__)
#include <atomic>
#include <thread>
#endif

#if defined(__HIP__)
#define SLUICE_DEVICE __attribute__((device)) inline
#define SLUICE_KERNEL extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, 1024))) void
#elif defined(__CUDACC__)
#define SLUICE_DEVICE __device__ inline
#define SLUICE_KERNEL extern "C" __global__ __launch_bounds__(1024) void
#else
#define SLUICE_DEVICE inline
#endif

namespace sluice::kernel {

#if defined(__HIP__)

SLUICE_DEVICE std::uint64_t load_acquire(const std::uint64_t& word) {
  return __hip_atomic_load(&word, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}

/// Call it after a release fence, which starts to write the cache back. clang 19, like others until early 2026, omits
/// the wait for the end of that if this thread has no store under way (llvm/llvm-project pull request 178316; test:
/// Images.hip_waits_for_the_cache).
SLUICE_DEVICE void wait_for_cache() {
#if defined(__GFX9__)
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
#endif
}

/// Makes all earlier stores of this thread visible to every other processor.
SLUICE_DEVICE void write_back() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
  wait_for_cache();
}

SLUICE_DEVICE void store_release(std::uint64_t& word, std::uint64_t value) {
  write_back();
  __hip_atomic_store(&word, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

/// Does not order earlier stores.
SLUICE_DEVICE void store_relaxed(std::uint64_t& word, std::uint64_t value) {
  __hip_atomic_store(&word, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

/// The other side stores `theirs` and then loads `mine`. At least one of the two loads sees the other side's store.
SLUICE_DEVICE std::uint64_t store_then_load(std::uint64_t& mine, std::uint64_t value, const std::uint64_t& theirs) {
  store_release(mine, value);
  write_back();
  return __hip_atomic_load(&theirs, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}

/// Orders all accesses of this thread before it and behind it, for every processor.
SLUICE_DEVICE void fence() {
  write_back();
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
  wait_for_cache();
}

// Words and halves of words that are changed in one step, for every processor. They do not order other accesses.
template <class T>
SLUICE_DEVICE T load_relaxed(const T& number) {
  return __hip_atomic_load(&number, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class T>
SLUICE_DEVICE T fetch_add(T& number, T value) {
  return __hip_atomic_fetch_add(&number, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class T>
SLUICE_DEVICE T exchange(T& number, T value) {
  return __hip_atomic_exchange(&number, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
/// Stores `desired` if the number is `expected`. Returns the number before.
template <class T>
SLUICE_DEVICE T compare_exchange(T& number, T expected, T desired) {
  __hip_atomic_compare_exchange_strong(&number, &expected, desired, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                       __HIP_MEMORY_SCOPE_SYSTEM);
  return expected;
}

SLUICE_DEVICE void pause() { __builtin_amdgcn_s_sleep(1); }

#elif defined(__CUDACC__)

// PTX, because <cuda/atomic> does the same and takes five seconds more to compile.
SLUICE_DEVICE std::uint64_t load_acquire(const std::uint64_t& word) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.b64 %0, [%1];" : "=l"(value) : "l"(&word) : "memory");
  return value;
}

// Cumulative: it also orders the stores that other threads made before their last barrier with this thread.
SLUICE_DEVICE void store_release(std::uint64_t& word, std::uint64_t value) {
  asm volatile("st.release.sys.b64 [%0], %1;" ::"l"(&word), "l"(value) : "memory");
}

/// Does not order earlier stores.
SLUICE_DEVICE void store_relaxed(std::uint64_t& word, std::uint64_t value) {
  asm volatile("st.relaxed.sys.b64 [%0], %1;" ::"l"(&word), "l"(value) : "memory");
}

/// The other side stores `theirs` and then loads `mine`. At least one of the two loads sees the other side's store.
SLUICE_DEVICE std::uint64_t store_then_load(std::uint64_t& mine, std::uint64_t value, const std::uint64_t& theirs) {
  store_release(mine, value);
  asm volatile("fence.sc.sys;" ::: "memory");
  return load_acquire(theirs);
}

/// Orders all accesses of this thread before it and behind it, for every processor.
SLUICE_DEVICE void fence() { asm volatile("fence.sc.sys;" ::: "memory"); }

// Words and halves of words that are changed in one step, for every processor. They do not order other accesses.
SLUICE_DEVICE std::uint32_t load_relaxed(const std::uint32_t& number) {
  std::uint32_t value;
  asm volatile("ld.relaxed.sys.b32 %0, [%1];" : "=r"(value) : "l"(&number) : "memory");
  return value;
}
SLUICE_DEVICE std::uint64_t load_relaxed(const std::uint64_t& number) {
  std::uint64_t value;
  asm volatile("ld.relaxed.sys.b64 %0, [%1];" : "=l"(value) : "l"(&number) : "memory");
  return value;
}
SLUICE_DEVICE std::uint32_t fetch_add(std::uint32_t& number, std::uint32_t value) {
  std::uint32_t old;
  asm volatile("atom.relaxed.sys.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(&number), "r"(value) : "memory");
  return old;
}
SLUICE_DEVICE std::uint64_t fetch_add(std::uint64_t& number, std::uint64_t value) {
  std::uint64_t old;
  asm volatile("atom.relaxed.sys.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(&number), "l"(value) : "memory");
  return old;
}
SLUICE_DEVICE std::uint32_t exchange(std::uint32_t& number, std::uint32_t value) {
  std::uint32_t old;
  asm volatile("atom.relaxed.sys.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(&number), "r"(value) : "memory");
  return old;
}
SLUICE_DEVICE std::uint64_t exchange(std::uint64_t& number, std::uint64_t value) {
  std::uint64_t old;
  asm volatile("atom.relaxed.sys.exch.b64 %0, [%1], %2;" : "=l"(old) : "l"(&number), "l"(value) : "memory");
  return old;
}
/// Stores `desired` if the number is `expected`. Returns the number before.
SLUICE_DEVICE std::uint32_t compare_exchange(std::uint32_t& number, std::uint32_t expected, std::uint32_t desired) {
  std::uint32_t old;
  asm volatile("atom.relaxed.sys.cas.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : "l"(&number), "r"(expected), "r"(desired)
               : "memory");
  return old;
}
SLUICE_DEVICE std::uint64_t compare_exchange(std::uint64_t& number, std::uint64_t expected, std::uint64_t desired) {
  std::uint64_t old;
  asm volatile("atom.relaxed.sys.cas.b64 %0, [%1], %2, %3;"
               : "=l"(old)
               : "l"(&number), "l"(expected), "l"(desired)
               : "memory");
  return old;
}

SLUICE_DEVICE void pause() { __nanosleep(20); }

#else

SLUICE_DEVICE std::uint64_t load_acquire(const std::uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

SLUICE_DEVICE void store_release(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

/// Does not order earlier stores.
SLUICE_DEVICE void store_relaxed(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_relaxed);
}

/// The other side stores `theirs` and then loads `mine`. At least one of the two loads sees the other side's store.
SLUICE_DEVICE std::uint64_t store_then_load(std::uint64_t& mine, std::uint64_t value, const std::uint64_t& theirs) {
  std::atomic_ref(mine).store(value, std::memory_order_seq_cst);
  return __atomic_load_n(&theirs, __ATOMIC_SEQ_CST);
}

/// Orders all accesses of this thread before it and behind it, for every processor: on the host the changes below do.
SLUICE_DEVICE void fence() {}

// Words and halves of words that are changed in one step, for every processor.
template <class T>
SLUICE_DEVICE T load_relaxed(const T& number) {
  return __atomic_load_n(&number, __ATOMIC_RELAXED);
}
template <class T>
SLUICE_DEVICE T fetch_add(T& number, T value) {
  return std::atomic_ref(number).fetch_add(value);
}
template <class T>
SLUICE_DEVICE T exchange(T& number, T value) {
  return std::atomic_ref(number).exchange(value);
}
/// Stores `desired` if the number is `expected`. Returns the number before.
template <class T>
SLUICE_DEVICE T compare_exchange(T& number, T expected, T desired) {
  std::atomic_ref(number).compare_exchange_strong(expected, desired);
  return expected;
}

SLUICE_DEVICE void pause() { std::this_thread::yield(); }

#endif

/// Like `store_release`, to a register of a device: exactly one store of all bytes. PTX does not promise of other
/// stores that they are neither merged nor repeated (test: Images.cuda_stores_to_registers_once).
SLUICE_DEVICE void store_to_register(std::uint64_t& to, std::uint64_t value) {
#if defined(__CUDACC__) && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1202  // the first with PTX 8.2
  asm volatile("fence.acq_rel.sys;\n\tst.mmio.relaxed.sys.b64 [%0], %1;" ::"l"(&to), "l"(value) : "memory");
#else
  store_release(to, value);
#endif
}

/// A group of one thread. A group of your own needs these four members.
struct Thread {
  /// The number of the calling thread in the group, from 0.
  SLUICE_DEVICE std::uint32_t index() const { return 0; }
  /// The number of threads.
  SLUICE_DEVICE std::uint32_t size() const { return 1; }
  /// A barrier of the group. Each thread then sees what the others wrote before it.
  SLUICE_DEVICE void sync() const {}
  /// Returns thread 0's `value` in all threads.
  SLUICE_DEVICE std::uint64_t from_first(std::uint64_t value) const { return value; }
};

#if defined(__HIP__)

/// All threads of a wavefront, all of them active.
struct Warp {
  SLUICE_DEVICE std::uint32_t index() const {
    return __builtin_amdgcn_mbcnt_hi(~0U, __builtin_amdgcn_mbcnt_lo(~0U, 0));
  }
  SLUICE_DEVICE std::uint32_t size() const { return __builtin_amdgcn_wavefrontsize(); }
  SLUICE_DEVICE void sync() const {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    wait_for_cache();
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
  }
  SLUICE_DEVICE std::uint64_t from_first(std::uint64_t value) const {
    const auto low = static_cast<std::uint32_t>(__builtin_amdgcn_readfirstlane(static_cast<int>(value)));
    const auto high = static_cast<std::uint32_t>(__builtin_amdgcn_readfirstlane(static_cast<int>(value >> 32)));
    return std::uint64_t{high} << 32 | low;
  }
};

/// All threads of a workgroup.
struct Block {
  SLUICE_DEVICE std::uint32_t index() const {
    return __builtin_amdgcn_workitem_id_x() +
           __builtin_amdgcn_workgroup_size_x() *
               (__builtin_amdgcn_workitem_id_y() +
                __builtin_amdgcn_workgroup_size_y() * __builtin_amdgcn_workitem_id_z());
  }
  SLUICE_DEVICE std::uint32_t size() const {
    return std::uint32_t{__builtin_amdgcn_workgroup_size_x()} * __builtin_amdgcn_workgroup_size_y() *
           __builtin_amdgcn_workgroup_size_z();
  }
  SLUICE_DEVICE void sync() const {
    // The scope is the device, not the workgroup: at the scope of a workgroup a wave waits only for the order of its
    // stores, not for the stores, and a later release by another wave waits only for the stores of that wave.
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    wait_for_cache();
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
  }
  SLUICE_DEVICE std::uint64_t from_first(std::uint64_t value) const {
    static __attribute__((shared)) std::uint64_t first;
    sync();  // all threads have read the value of the call before
    if (index() == 0) first = value;
    sync();
    return first;
  }
};

/// The position of this block in its grid, and the number of blocks in x.
struct Grid {
  SLUICE_DEVICE std::uint32_t x() const { return __builtin_amdgcn_workgroup_id_x(); }
  SLUICE_DEVICE std::uint32_t y() const { return __builtin_amdgcn_workgroup_id_y(); }
  SLUICE_DEVICE std::uint32_t size_x() const { return __builtin_amdgcn_grid_size_x() / Block().size(); }
};

#elif defined(__CUDACC__)

/// All threads of a warp, all of them active.
struct Warp {
  SLUICE_DEVICE std::uint32_t index() const {
    std::uint32_t lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
  }
  SLUICE_DEVICE std::uint32_t size() const { return 32; }
  SLUICE_DEVICE void sync() const { __syncwarp(); }
  SLUICE_DEVICE std::uint64_t from_first(std::uint64_t value) const { return __shfl_sync(0xffffffffU, value, 0); }
};

/// All threads of a block.
struct Block {
  SLUICE_DEVICE std::uint32_t index() const {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  }
  SLUICE_DEVICE std::uint32_t size() const { return blockDim.x * blockDim.y * blockDim.z; }
  SLUICE_DEVICE void sync() const { __syncthreads(); }
  SLUICE_DEVICE std::uint64_t from_first(std::uint64_t value) const {
    __shared__ std::uint64_t first;
    sync();  // all threads have read the value of the call before
    if (index() == 0) first = value;
    sync();
    return first;
  }
};

/// The position of this block in its grid, and the number of blocks in x.
struct Grid {
  SLUICE_DEVICE std::uint32_t x() const { return blockIdx.x; }
  SLUICE_DEVICE std::uint32_t y() const { return blockIdx.y; }
  SLUICE_DEVICE std::uint32_t size_x() const { return gridDim.x; }
};

#endif

}  // namespace sluice::kernel
