// SPDX-License-Identifier: Apache-2.0
// libfabric's verbs reads all names of the kernel's functions, twice, in each process that looks for any provider:
// about half the system time of a small test over a network. Ranks of the conformance suite see an empty list.
#include <dlfcn.h>

#include <cstdio>
#include <string_view>

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the names are glibc's own
extern "C" std::FILE* fopen(const char* path, const char* mode) {
  using Open = std::FILE*(const char*, const char*);
  static Open* const open = reinterpret_cast<Open*>(::dlsym(RTLD_NEXT, "fopen"));
  return open(std::string_view(path) == "/proc/kallsyms" ? "/dev/null" : path, mode);
}
