// SPDX-License-Identifier: Apache-2.0
#include "tests/emucuda/settings.hpp"

#include <cstdlib>

#include "tests/emucuda/start.hpp"
#include "tests/layer/environment.hpp"

namespace emucuda {

std::optional<Settings> settings_from_environment() {
  layer::Environment environment("emucuda");
  Settings settings;
  settings.devices = environment.number("EMUCUDA_DEVICES", settings.devices);
  settings.peers = !environment.is("EMUCUDA_PEERS", "0", "1");
  settings.native_atomics = !environment.is("EMUCUDA_NATIVE_ATOMICS", "0", "1");
  settings.deadlock = std::chrono::milliseconds(environment.number("EMUCUDA_DEADLOCK_MS", 5000, 1));
  settings.word_operations = !environment.is("EMUCUDA_WORD_OPERATIONS", "0", "1");
  settings.can_flush = environment.is("EMUCUDA_FLUSH", "1", "0");
  settings.pools_recycle = environment.is("EMUCUDA_POOLS_RECYCLE", "1", "0");
  settings.makes_ours = !environment.is("EMUCUDA_STREAMS_OF_PRIORITY", "0", "1");
  settings.imports = !environment.is("EMUCUDA_IMPORTS", "0", "1");
  settings.held_up = std::chrono::milliseconds(environment.number("EMUCUDA_HELD_UP_MS", 0));
  settings.resident = environment.number("EMUCUDA_RESIDENT", settings.resident);
  settings.lazy = !environment.is("CUDA_MODULE_LOADING", "EAGER", "LAZY");
  settings.slow_us = environment.number("EMUCUDA_SLOW_US", 0);
  settings.seed = environment.number("EMUCUDA_SEED", settings.seed);
  settings.queues = environment.number("CUDA_DEVICE_MAX_CONNECTIONS", settings.queues, 1);
  settings.priorities = !environment.is("EMUCUDA_PRIORITIES", "0", "1");
  if (const char* const library = std::getenv("EMUCUDA_KERNELS")) settings.kernels = library;
  if (!environment.good) return std::nullopt;
  return settings;
}

int version() {
  static const auto chosen = layer::Environment("emucuda").number("EMUCUDA_VERSION", CUDA_VERSION, 1000);
  return static_cast<int>(chosen);
}

CUresult start() {
  static const auto chosen = layer::Environment("emucuda").number("EMUCUDA_INIT", CUDA_SUCCESS);
  return static_cast<CUresult>(chosen);
}

}  // namespace emucuda
