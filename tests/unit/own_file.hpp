// SPDX-License-Identifier: Apache-2.0
// Files of a test, which tests of other runs on this machine do not touch.
#pragma once

#include <gtest/gtest.h>

#include <unistd.h>

#include <string>

namespace sluice::tests {

inline std::string own_file(const std::string& name) {
  return testing::TempDir() + "sluice_" + std::to_string(::getpid()) + "_" + name;
}

}  // namespace sluice::tests
