// SPDX-License-Identifier: Apache-2.0
// Parses the command line of sluice-run.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::runtime {

/// Address at which host 0 of a job that spans hosts listens for the others.
struct MeetingPoint {
  std::string host;
  std::uint16_t port = 0;
};

/// Which ranks read the standard input of sluice-run; the others have /dev/null.
enum class Readers : std::uint8_t { first, all, none };

/// The command line of sluice-run.
struct Request {
  int ranks = 0;  ///< on this host
  bool threads = false;
  bool keep_going = false;
  int status = 0;           ///< print the waits of the sluice-run that is this process, and start nothing; 0: not given
  std::string_view answer;  ///< to --help or --version, which start nothing; empty: neither was given
  Readers readers = Readers::first;
  std::optional<std::chrono::seconds> kill_after;  ///< from SIGTERM or SIGINT to SIGKILL; nothing: no limit
  std::string trace;                               ///< value for SLUICE_TRACE; empty: unchanged
  bool bind = false;                               ///< to cores of the affinity mask, each rank to others
  bool verbose = false;                            ///< tell how ranks share the cores
  std::string finish;                              ///< timeline to finish, and nothing else; empty: none
  int hosts = 1;
  int host = 0;
  MeetingPoint meet;  ///< if there are several hosts
  std::vector<char*> command;
};

/// @param arguments  without the program's own name; they must live as long as the result
/// @throws std::invalid_argument with one line for the user
Request parse_launch(std::span<char*> arguments);

}  // namespace sluice::runtime
