// SPDX-License-Identifier: Apache-2.0
// How ranks find each other: each has a listening socket, whose name is made of the job and the rank, and a second one
// for the ranks of other hosts if the job spans hosts. Ranks that are threads of one process have mailboxes instead.
#pragma once

#include "base/env.hpp"
#include "base/fd.hpp"

#include <sluice/types.hpp>

#include <sys/socket.h>

#include <string>
#include <vector>

#include "peers/mailbox.hpp"
#include "peers/roster.hpp"

namespace sluice::runtime {

/// The position of a rank in its job, and the socket or mailbox of the rank.
struct [[gnu::visibility("default")]] Place {
  Rank rank = 0;
  int size = 1;
  std::string job;
  base::Fd listener;
  Roster roster{};
  base::Fd tcp_listener{};  ///< for ranks of other hosts; empty: there are none
  Mailbox mailbox{};        ///< of a rank that is a thread and so has no listener; empty: the rank is a process

  /// How many of the job's first `ranks` ranks are on this host.
  int here_among(int ranks) const noexcept;
  int node_rank() const noexcept { return here_among(rank); }
  int node_size() const noexcept { return here_among(size); }
};

/// The places of `ranks` threads of this process. `job`: the name of the job; empty: a new one. @throws
/// std::runtime_error if the process may not open enough files
std::vector<Place> threads(int ranks, std::string job = {});

/// The place that sluice-run gave this process. Takes ownership of the inherited descriptors.
/// @throws std::invalid_argument if the launcher's variables do not fit together.
Place launched(const base::Env& env);

/// A name that no other job has: 128 random bits, in hexadecimal.
[[gnu::visibility("default")]] std::string new_job();

/// 128 random bits, which no other process can guess. Not the job's name, which every user of the machine can read.
[[gnu::visibility("default")]] Secret new_secret();

/// Listens as this rank. The socket's name is abstract: it is no file, and vanishes with its last descriptor, also
/// after kill -9. Call before any rank may connect: a name that is not found means that the rank has ended.
/// @throws std::system_error
[[gnu::visibility("default")]] base::Fd listen_as(const std::string& job, Rank rank);

/// Connects without blocking.
/// @returns an empty Fd and errno if that is not possible. ECONNREFUSED: the rank has ended; EAGAIN: its backlog is
/// full, try again.
base::Fd connect_to(const std::string& job, Rank peer);

/// The process at the other end; its number is 0 if this kernel does not show it.
ucred process_behind(const base::Fd& connection) noexcept;

/// True if the process at the other end belongs to the same user: the name of a job is no secret.
bool trusted(const base::Fd& connection);

}  // namespace sluice::runtime
