// SPDX-License-Identifier: Apache-2.0
// Starts the program of a test again, under mpiexec.
#pragma once

#include "tests/unit/program.hpp"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace sluice::tests {

/// `ranks` processes of this program with the arguments "--as WHAT". `backends`: SLUICE_BACKENDS; null: as it is.
inline Program start_mpiexec(const std::string& ranks, const std::string& what, const char* backends = nullptr) {
  std::string self = std::filesystem::read_symlink("/proc/self/exe");
  std::string as = what;
  std::string count = ranks;
  return Program([&] {
    if (backends != nullptr) ::setenv("SLUICE_BACKENDS", backends, 1);
    // Open MPI needs these as root, and with fewer cores than ranks.
    for (const char* const allowed :
         {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"}) {
      ::setenv(allowed, "1", 1);
    }
    char command[] = "mpiexec";
    char ranks_flag[] = "-n";
    char as_flag[] = "--as";
    std::array<char*, 7> arguments = {command, ranks_flag, count.data(), self.data(), as_flag, as.data(), nullptr};
    ::execvp(command, arguments.data());
    return 127;
  });
}

inline Result mpiexec(const std::string& ranks, const std::string& what, const char* backends = nullptr) {
  return start_mpiexec(ranks, what, backends).result();
}

}  // namespace sluice::tests
