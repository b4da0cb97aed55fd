// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/rivals/mpi.hpp"

#include "apps/bench/rivals/make_mpi.hpp"

#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

namespace bench {
namespace {

// MPICH and Open MPI read these when they start, and choose a network by them.
constexpr std::array kNetworkVariables = {"MPIR_CVAR_CH4_NETMOD", "MPIR_CVAR_NOLOCAL", "FI_PROVIDER", "UCX_TLS",
                                          "OMPI_MCA_pml",         "OMPI_MCA_mtl",      "OMPI_MCA_btl"};

// Returns the text from `label` to the end of its line, without blanks at its begin; nothing without that label.
std::string_view value_of(std::string_view text, std::string_view label) {
  const auto at = text.find(label);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + label.size());
  text = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text;
}

// MPICH's text has a line for each setting. Open MPI's has one line, which begins with the version.
std::string version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> buffer{};
  int length = 0;
  MPI_Get_library_version(buffer.data(), &length);
  const std::string_view text(buffer.data(), static_cast<std::size_t>(length));
  if (const auto mpich = value_of(text, "MPICH Version:"); !mpich.empty())
    return "MPICH " + std::string(mpich) + ", " + std::string(value_of(text, "MPICH Device:"));
  return std::string(text.substr(0, text.find_first_of(",\n")));
}

}  // namespace

bool under_mpi() {
  int running = 0;
  MPI_Initialized(&running);
  return running != 0;
}

bool mpi_windows_are_ours() {
  Dl_info put{};
  void* const address = ::dlsym(RTLD_DEFAULT, "MPI_Put");
  return address != nullptr && ::dladdr(address, &put) != 0 &&
         std::string_view(put.dli_fname).find("libsluice_mpi_rma") != std::string_view::npos;
}

std::string mpi_library() {
  std::string text = version();
  for (const char* name : kNetworkVariables) {
    if (const char* const value = std::getenv(name)) text += std::string(", ") + name + "=" + value;
  }
  return text;
}

std::unique_ptr<Contender> make_mpi_ping_pong(MpiMode mode, const Workload& workload) {
  switch (mode) {
    case MpiMode::send_recv: return make_send_recv_ping_pong(workload);
    case MpiMode::persistent: return make_persistent_ping_pong(workload);
    case MpiMode::put_flush: return make_put_flush_ping_pong(workload, false);
    case MpiMode::put_flush_user: return make_put_flush_ping_pong(workload, true);
    case MpiMode::pscw: return make_pscw_ping_pong(workload);
    case MpiMode::fence: break;
  }
  return make_fence_ping_pong(workload);
}

std::unique_ptr<Contender> make_mpi_flood(MpiMode mode, const Workload& workload) {
  switch (mode) {
    case MpiMode::send_recv: return make_send_recv_flood(workload);
    case MpiMode::persistent: return make_persistent_flood(workload);
    case MpiMode::put_flush: return make_put_flush_flood(workload, false);
    case MpiMode::put_flush_user: return make_put_flush_flood(workload, true);
    case MpiMode::pscw:
    case MpiMode::fence: break;
  }
  throw std::logic_error("no flood of messages in this mode of MPI");
}

}  // namespace bench
