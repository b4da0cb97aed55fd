// SPDX-License-Identifier: Apache-2.0
// sluice-info: what this build and this machine can do.
#include <sluice/run.hpp>

#include <cstdio>
#include <stdexcept>
#include <string_view>

namespace {

constexpr const char* kUsage = "usage: sluice-info [--json]\n";

// The list comes first: it is what a person with a bad variable needs.
int print(bool json) {
  std::fputs(sluice::info(json).c_str(), stdout);
  try {
    sluice::check_environment();
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "sluice-info: %s\n", error.what());
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) return print(false);
  const std::string_view argument = argv[1];
  if (argc == 2 && argument == "--json") return print(true);
  if (argc == 2 && (argument == "--help" || argument == "-h")) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  std::fprintf(stderr, "sluice-info: it takes --json or nothing, not '%s'\n", argv[argc == 2 ? 1 : 2]);
  return 2;
}
