// SPDX-License-Identifier: Apache-2.0
// A module that is loaded late.
#include <cstdlib>

extern "C" void free_it(void* block) { std::free(block); }
