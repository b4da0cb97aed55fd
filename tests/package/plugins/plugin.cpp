// SPDX-License-Identifier: Apache-2.0
#include <sluice/sluice.hpp>

extern "C" [[gnu::visibility("default")]] int plugin_run(int argc, char** argv, int* size) {
  return sluice::run(argc, argv, [size](sluice::Context& context) { *size = context.size(); });
}
