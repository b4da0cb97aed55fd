// SPDX-License-Identifier: Apache-2.0
#include "tests/emucuda/deadlock.hpp"

#include <cstdio>
#include <cstdlib>

namespace emucuda {

void report_deadlock(const std::string& what) {
  std::fprintf(stderr, "emucuda: deadlock: %s\n", what.c_str());
  std::abort();
}

std::string where(const Stream& stream) {
  char text[96];
  std::snprintf(text, sizeof text, "a stream that is parked at word 0x%llx, for the value %llu",
                static_cast<unsigned long long>(stream.parked_at.load()),
                static_cast<unsigned long long>(stream.parked_for.load()));
  return text;
}

}  // namespace emucuda
