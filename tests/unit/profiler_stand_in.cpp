// SPDX-License-Identifier: Apache-2.0
// Stands in for profilers: NVTX's listener and ROCTX's library. Both write their events into the file
// that SLUICE_USER_RANGES names, a line of thread, word and text.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

namespace {

void write_down(const char* word, const char* text) {
  const char* const file = std::getenv("SLUICE_USER_RANGES");
  if (file == nullptr) return;
  std::array<char, 256> line{};
  const int bytes = std::snprintf(line.data(), line.size(), "%d %s %s\n", static_cast<int>(::gettid()), word, text);
  const int fd = ::open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (::write(fd, line.data(), static_cast<std::size_t>(bytes)) != bytes) std::abort();
  ::close(fd);
}

}  // namespace

extern "C" {

int roctxRangePushA(const char* text) {
  write_down("begin", text);
  return 0;
}

int roctxRangePop() {
  write_down("end", "");
  return 0;
}

void roctxMarkA(const char* text) { write_down("mark", text); }

#ifdef NVTX_VERSION

static nvtxDomainHandle_t nvtx_domain(const char* name) {
  write_down("domain", name);
  return reinterpret_cast<nvtxDomainHandle_t>(&write_down);
}

static int nvtx_begin(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  return roctxRangePushA(event->message.ascii);
}

static int nvtx_end(nvtxDomainHandle_t) { return roctxRangePop(); }

static void nvtx_mark(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) { roctxMarkA(event->message.ascii); }

/// NVTX calls it, of the library that NVTX_INJECTION64_PATH names, with a function that finds its tables.
NVTX_DYNAMIC_EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) != 1) return 0;
  const auto set = [&](unsigned which, auto* function) {
    *table[which] = reinterpret_cast<NvtxFunctionPointer>(function);
  };
  set(NVTX_CBID_CORE2_DomainCreateA, nvtx_domain);
  set(NVTX_CBID_CORE2_DomainRangePushEx, nvtx_begin);
  set(NVTX_CBID_CORE2_DomainRangePop, nvtx_end);
  set(NVTX_CBID_CORE2_DomainMarkEx, nvtx_mark);
  return 1;
}

#endif

}  // extern "C"
