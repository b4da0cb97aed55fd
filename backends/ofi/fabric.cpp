// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/fabric.hpp"

#include <dlfcn.h>

#include <csignal>
#include <iterator>
#include <stdexcept>

namespace sluice::backends::ofi {
namespace {

/// The version of a function whose structures are those of the oldest headers that this is compiled with.
template <class Function>
void find(void* handle, Function& function, const char* name, const char* version, std::string& why_not) {
  function = reinterpret_cast<Function>(dlvsym(handle, name, version));
  if (function == nullptr) function = reinterpret_cast<Function>(dlsym(handle, name));
  if (function == nullptr) why_not = std::string("libfabric.so.1 has no ") + name;
}

/// Undoes what the libraries that libfabric brings do to signals: psm handles those that end a program, and then leaves
/// a file where it ran.
void* open_and_keep_signals(const char* name) {
  struct sigaction before[32] = {};  // signals of real time are not touched
  for (int i = 1; i < std::ssize(before); ++i) sigaction(i, nullptr, &before[i]);
  void* const handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  for (int i = 1; i < std::ssize(before); ++i) sigaction(i, &before[i], nullptr);
  return handle;
}

Library load() {
  Library library;
  void* const handle = open_and_keep_signals("libfabric.so.1");
  if (handle == nullptr) {
    library.why_not = std::string("libfabric cannot be loaded: ") + dlerror();
    return library;
  }
  find(handle, library.getinfo, "fi_getinfo", "FABRIC_1.3", library.why_not);
  find(handle, library.dupinfo, "fi_dupinfo", "FABRIC_1.3", library.why_not);
  find(handle, library.freeinfo, "fi_freeinfo", "FABRIC_1.3", library.why_not);
  find(handle, library.fabric, "fi_fabric", "FABRIC_1.1", library.why_not);
  find(handle, library.strerror, "fi_strerror", "FABRIC_1.0", library.why_not);
  find(handle, library.version, "fi_version", "FABRIC_1.0", library.why_not);
  return library;
}

}  // namespace

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

Info duplicate(const fi_info* info) {
  Info copy(library().dupinfo(info));
  if (copy == nullptr) throw std::bad_alloc();
  return copy;
}

std::string text_of(long code) { return library().strerror(static_cast<int>(code < 0 ? -code : code)); }

void check(long code, const char* what) {
  if (code < 0) throw std::runtime_error(std::string("libfabric: ") + what + ": " + text_of(code));
}

}  // namespace sluice::backends::ofi
