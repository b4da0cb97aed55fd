// SPDX-License-Identifier: Apache-2.0
#include "device/profiler.hpp"

#include <dlfcn.h>

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

// Functions of ROCTX, whose header few machines have.
int (*g_push)(const char*) = nullptr;
int (*g_pop)() = nullptr;
void (*g_mark)(const char*) = nullptr;

/// ROCTX has no domains, so the names tell the library.
std::string ours(const char* text) { return std::string("sluice: ") + text; }

std::optional<Listener> find_roctx(int flags) {
  void* library = nullptr;  // of today's profilers, or of earlier ones
  for (const char* const name : {"librocprofiler-sdk-roctx.so.1", "librocprofiler-sdk-roctx.so.0", "libroctx64.so.4"}) {
    if (library == nullptr) library = ::dlopen(name, RTLD_NOW | flags);
  }
  if (library == nullptr) return std::nullopt;
  const auto set = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
  };
  set(g_push, "roctxRangePushA");
  set(g_pop, "roctxRangePop");
  set(g_mark, "roctxMarkA");
  if (g_push == nullptr || g_pop == nullptr || g_mark == nullptr) return std::nullopt;
  return Listener{[](const char* text) { g_push(ours(text).c_str()); }, [] { g_pop(); },
                  [](const char* text) { g_mark(ours(text).c_str()); }};
}

std::optional<Listener> find(std::string_view which) {
  if (which == "nvtx") return find_nvtx();
  if (which == "roctx") return find_roctx(0);
  if (which == "none") return std::nullopt;
  // NVIDIA's profilers set this variable for the programs that they start.
  return std::getenv("NVTX_INJECTION64_PATH") != nullptr ? find_nvtx() : find_roctx(RTLD_NOLOAD);
}

base::OnePerProcess<base::Guarded<bool>> g_chosen;

}  // namespace

bool has_nvtx() noexcept { return find_nvtx().has_value(); }

void use_profiler(std::string_view which) {
  const std::lock_guard lock(g_chosen->mutex);
  if (g_chosen->value) return;
  if (const auto listener = find(which)) {
    base::trace::listen(*listener);
  } else if (which == "nvtx") {
    throw std::invalid_argument("environment variable SLUICE_RANGES=nvtx: built without NVTX");
  } else if (which == "roctx") {
    throw std::invalid_argument("environment variable SLUICE_RANGES=roctx: its library cannot be loaded");
  }
  g_chosen->value = true;
}

}  // namespace sluice::device
