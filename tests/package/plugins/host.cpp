// SPDX-License-Identifier: Apache-2.0
// The first plug-in's run has all ranks; the second's is refused.
#include <dlfcn.h>

#include <cstdio>

namespace {

using Run = int (*)(int, char**, int*);

Run load(const char* plugin) {
  void* const handle = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  return handle == nullptr ? nullptr : reinterpret_cast<Run>(dlsym(handle, "plugin_run"));
}

}  // namespace

int main(int argc, char** argv) {
  const Run first = load(FIRST);
  const Run second = load(SECOND);
  if (first == nullptr || second == nullptr) return 3;
  int sizes[2] = {0, 0};
  const int codes[2] = {first(argc, argv, &sizes[0]), second(argc, argv, &sizes[1])};
  std::printf("first: %d ranks, exit code %d; second: %d ranks, exit code %d\n", sizes[0], codes[0], sizes[1],
              codes[1]);
  return sizes[0] == 2 && codes[0] == 0 && sizes[1] == 0 && codes[1] == 2 ? 0 : 4;
}
