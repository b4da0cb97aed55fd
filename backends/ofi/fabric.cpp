// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/fabric.hpp"

#include <dlfcn.h>

#include <array>
#include <csignal>
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
class KeepSignals {
 public:
  KeepSignals() {
    for (int i = 1; i < kSignals; ++i) sigaction(i, nullptr, &before_.at(static_cast<std::size_t>(i)));
  }
  KeepSignals(const KeepSignals&) = delete;
  KeepSignals& operator=(const KeepSignals&) = delete;
  ~KeepSignals() {
    for (int i = 1; i < kSignals; ++i) sigaction(i, &before_.at(static_cast<std::size_t>(i)), nullptr);
  }

 private:
  static constexpr int kSignals = 32;  // those of real time are not touched
  std::array<struct sigaction, kSignals> before_{};
};

Library load() {
  const KeepSignals kept;
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
