// SPDX-License-Identifier: Apache-2.0
// sluice-info: the features of this build and this machine.
#include <sluice/run.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

constexpr const char* kUsage = "usage: sluice-info [--json]\n";

int print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  std::fprintf(stderr, "sluice-info: cannot write to standard output: %s\n", std::strerror(errno));
  return 1;
}

// The list comes first: a user with a bad variable needs it.
int print_info(bool json) {
  const int code = print(sluice::info(json));
  try {
    sluice::check_environment();
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "sluice-info: %s\n", error.what());
    return 2;
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) return print_info(false);
  const std::string_view argument = argv[1];
  if (argc == 2 && argument == "--json") return print_info(true);
  if (argc == 2 && (argument == "--help" || argument == "-h")) return print(kUsage);
  std::fprintf(stderr, "sluice-info: it takes --json or nothing, not '%s'\n", argv[argc == 2 ? 1 : 2]);
  return 2;
}
