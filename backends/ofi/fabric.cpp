// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/fabric.hpp"

#include <dlfcn.h>

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

Library load() {
  Library library;
  void* const handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
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

Info duplicate(const fi_info& info) {
  Info copy(library().dupinfo(&info));
  if (copy == nullptr) throw std::bad_alloc();
  return copy;
}

std::string text_of(long code) { return library().strerror(static_cast<int>(code < 0 ? -code : code)); }

void check(long code, const char* what) {
  if (code < 0) throw std::runtime_error(std::string("libfabric: ") + what + ": " + text_of(code));
}

}  // namespace sluice::backends::ofi
