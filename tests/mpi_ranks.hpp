// SPDX-License-Identifier: Apache-2.0
// Runs the program of a test again, as the ranks of a program of MPI.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

namespace mpi_ranks {

struct Ended {
  int code;
  std::string output;
};

inline std::string this_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

/// Runs a command of the shell, with its errors in its output. Code -1: a signal has ended it.
inline Ended run(const std::string& command) {
  Ended ended{-1, {}};
  FILE* const pipe = popen((command + " 2>&1 </dev/null").c_str(), "r");
  if (pipe == nullptr) return ended;
  std::array<char, 4096> part{};
  while (const std::size_t bytes = fread(part.data(), 1, part.size(), pipe)) ended.output.append(part.data(), bytes);
  const int status = pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

/// The launcher, with a limit for ranks that hang. MPI spins, so beside other programs its ranks take ten times as
/// long.
inline std::string launcher(int ranks) { return "timeout 100 " MPIEXEC " -n " + std::to_string(ranks) + " "; }

/// Runs ranks of stream MPI. `names`: of the programs that the ranks run. `settings`: variables of the environment.
/// `killed`: a rank is killed. A shell hides that from MPICH's launcher, which would end the others.
inline Ended run_ranks(int ranks, const std::string& names, const std::string& settings, bool killed = false,
                       const std::string& how = "--programs") {
  const std::string rank =
      "env SLUICE_TIMEOUT=10s SLUICE_CONNECT_TIMEOUT=10s " + settings + " " + this_program() + " " + how + " " + names;
  return run(launcher(ranks) + (killed ? "-disable-auto-cleanup sh -c 'trap \"\" USR1; " + rank + "; true'" : rank));
}

inline void expect_passed(int ranks, const std::string& names, const std::string& settings = "") {
  const Ended ended = run_ranks(ranks, names, settings);
  EXPECT_EQ(ended.code, 0) << names << " with " << settings << ": " << ended.output;
  EXPECT_NE(("\n" + ended.output).find("\npassed\n"), std::string::npos) << ended.output;
}

}  // namespace mpi_ranks
