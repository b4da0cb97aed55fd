// SPDX-License-Identifier: Apache-2.0
#include "device/profiler.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "base/fork.hpp"
#include "base/trace.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define SLUICE_HAS_NVTX
#endif

namespace sluice::device {
namespace {

using base::trace::Listener;

#ifdef SLUICE_HAS_NVTX

nvtxDomainHandle_t nvtx_domain() {
  static auto* const domain = nvtxDomainCreateA("sluice");
  return domain;
}

nvtxEventAttributes_t nvtx_event(const char* text) {
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = text;
  return event;
}

std::optional<Listener> find_nvtx() {
  return Listener{[](const char* text) {
                    const auto event = nvtx_event(text);
                    nvtxDomainRangePushEx(nvtx_domain(), &event);
                  },
                  [] { nvtxDomainRangePop(nvtx_domain()); },
                  [](const char* text) {
                    const auto event = nvtx_event(text);
                    nvtxDomainMarkEx(nvtx_domain(), &event);
                  }};
}

#else

std::optional<Listener> find_nvtx() { return std::nullopt; }

#endif

/// Of ROCTX, whose header few machines have.
struct Roctx {
  int (*push)(const char*) = nullptr;
  int (*pop)() = nullptr;
  void (*mark)(const char*) = nullptr;

  bool whole() const { return push != nullptr && pop != nullptr && mark != nullptr; }
};

Roctx& roctx() {
  static Roctx functions;
  return functions;
}

/// The library that the profilers of today bring, or that of those before.
void* open_roctx(int flags) {
  static constexpr std::array<const char*, 3> kNames = {"librocprofiler-sdk-roctx.so.1",
                                                        "librocprofiler-sdk-roctx.so.0", "libroctx64.so.4"};
  for (const char* const name : kNames) {
    if (void* const library = ::dlopen(name, RTLD_NOW | flags)) return library;
  }
  return nullptr;
}

/// Names have no domain there: they say whose they are.
std::string ours(const char* text) { return std::string("sluice: ") + text; }

std::optional<Listener> find_roctx(int flags) {
  void* const library = open_roctx(flags);
  if (library == nullptr) return std::nullopt;
  const auto set = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
  };
  set(roctx().push, "roctxRangePushA");
  set(roctx().pop, "roctxRangePop");
  set(roctx().mark, "roctxMarkA");
  if (!roctx().whole()) return std::nullopt;
  return Listener{[](const char* text) { roctx().push(ours(text).c_str()); }, [] { roctx().pop(); },
                  [](const char* text) { roctx().mark(ours(text).c_str()); }};
}

/// What NVIDIA's profilers set for the programs that they start.
bool under_nvidias() { return std::getenv("NVTX_INJECTION64_PATH") != nullptr; }

std::optional<Listener> find(std::string_view which) {
  if (which == "nvtx") return find_nvtx();
  if (which == "roctx") return find_roctx(0);
  if (which == "none") return std::nullopt;
  return under_nvidias() ? find_nvtx() : find_roctx(RTLD_NOLOAD);
}

struct Chosen {
  std::mutex mutex;
  bool yes = false;
};
base::OnePerProcess<Chosen> g_chosen;

}  // namespace

bool has_nvtx() noexcept {
#ifdef SLUICE_HAS_NVTX
  return true;
#else
  return false;
#endif
}

void use_profiler(std::string_view which) {
  const std::lock_guard lock(g_chosen->mutex);
  if (g_chosen->yes) return;
  if (const auto listener = find(which)) {
    base::trace::listen(*listener);
  } else if (which == "nvtx") {
    throw std::invalid_argument("environment variable SLUICE_RANGES=nvtx: built without NVTX");
  } else if (which == "roctx") {
    throw std::invalid_argument("environment variable SLUICE_RANGES=roctx: its library cannot be loaded");
  }
  g_chosen->yes = true;
}

}  // namespace sluice::device
