// SPDX-License-Identifier: Apache-2.0
// sluice-info: what this build and this machine can do.
#include <sluice/run.hpp>

#include <cstdio>
#include <string_view>

namespace {

constexpr const char* kUsage = "usage: sluice-info [--json]\n";

int print(bool json) {
  std::fputs(sluice::info(json).c_str(), stdout);
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
