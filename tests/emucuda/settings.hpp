// SPDX-License-Identifier: Apache-2.0
// Settings from the environment, read by cuInit.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace emucuda {

struct Settings {
  std::size_t devices = 2;                   // EMUCUDA_DEVICES
  bool peers = true;                         // EMUCUDA_PEERS, a GPU reaches the memory of another
  bool native_atomics = true;                // EMUCUDA_NATIVE_ATOMICS, a GPU's atomics in the memory of another
  std::chrono::milliseconds deadlock{5000};  // EMUCUDA_DEADLOCK_MS
  bool can_flush = false;                    // EMUCUDA_FLUSH
  std::chrono::milliseconds held_up{0};      // EMUCUDA_HELD_UP_MS; 0: not checked
  std::size_t resident = 0;                  // EMUCUDA_RESIDENT, kernels of a device at a time; 0: any number
  bool lazy = true;                          // CUDA_MODULE_LOADING, the driver's own
  std::uint64_t slow_us = 0;                 // EMUCUDA_SLOW_US
  std::uint64_t seed = 1;                    // EMUCUDA_SEED
  std::size_t queues = 8;                    // CUDA_DEVICE_MAX_CONNECTIONS, the driver's own
  bool priorities = true;                    // EMUCUDA_PRIORITIES, streams of a higher one have queues of their own
  bool makes_ours = true;                    // EMUCUDA_STREAMS_OF_PRIORITY, and not only such as are of none
  bool pools_recycle = false;                // EMUCUDA_POOLS_RECYCLE
  bool imports = true;                       // EMUCUDA_IMPORTS
  bool word_operations = true;               // EMUCUDA_WORD_OPERATIONS
  std::string kernels;                       // EMUCUDA_KERNELS
};

/// Nothing, and a line on stderr, if a variable has a bad value.
std::optional<Settings> settings_from_environment();

}  // namespace emucuda
