// SPDX-License-Identifier: Apache-2.0
// Contexts on an MPI communicator, and MPI as a way to start. MPI carries the name of the job and the addresses of its
// ranks; all other messages go through Sluice's own sockets.
#include "backends/mpi/over_mpi.hpp"
#include "base/env.hpp"
#include "base/fd.hpp"
#include "base/fork.hpp"
#include "base/network.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "launch/start.hpp"
#include "peers/bootstrap.hpp"
#include "runtime/context.hpp"

#include <sluice/error.hpp>
#include <sluice/mpi.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::runtime {
namespace {

[[noreturn]] void fail(Code code, Rank rank, const std::string& what) { throw Error(code, rank, -1, 0, 0, what); }

// For communicators whose owner made MPI return errors.
void check(int result) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  fail(Code::transport, -1, std::string("MPI failed while a context was opened: ") + text.data());
}

/// The number that a function of MPI puts where its last argument points.
template <class Function, class... Arguments>
int ask(Function function, Arguments... arguments) {
  int answer = 0;
  check(function(arguments..., &answer));
  return answer;
}

/// False before MPI_Init and after MPI_Finalize.
bool mpi_runs() { return ask(MPI_Initialized) != 0 && ask(MPI_Finalized) == 0; }

// The value of rank 0, on all ranks.
template <class Container>
Container from_rank_zero(Container value, MPI_Comm ranks) {
  check(MPI_Bcast(value.data(), static_cast<int>(value.size()), MPI_BYTE, 0, ranks));
  return value;
}

// The values of all ranks, by rank.
template <class Value>
std::vector<Value> from_all(const Value& mine, MPI_Comm ranks) {
  std::vector<Value> all(static_cast<std::size_t>(ask(MPI_Comm_size, ranks)));
  check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, ranks));
  return all;
}

// Returns when all ranks have bound their sockets. Throws on all ranks if one could not.
void listen_together(Place& place, bool several_hosts, const std::string& interface, MPI_Comm ranks) {
  std::string why = "another rank cannot listen for its peers";
  int mine = 0;
  try {
    place.listener = listen_as(place.job, place.rank);
    if (several_hosts) {
      const base::Endpoint address = base::own_address(interface);
      if (base::loopback(address)) {
        throw std::invalid_argument("this host is to be reached at " + base::text_of(address) +
                                    ", by which other hosts reach themselves (SLUICE_INTERFACE)");
      }
      place.tcp_listener = base::listen_on(address);
    }
    mine = 1;
  } catch (const std::exception& error) {
    why = error.what();
  }
  int all = 0;
  check(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, ranks));
  if (all == 0) fail(Code::out_of_resources, place.rank, why);
}

Place find_place(MPI_Comm communicator, const base::Env& env) {
  if (communicator == MPI_COMM_NULL || ask(MPI_Comm_test_inter, communicator) != 0)
    throw std::invalid_argument("mpi::context takes an intracommunicator, not an intercommunicator or MPI_COMM_NULL");
  MPI_Comm ranks = MPI_COMM_NULL;
  check(MPI_Comm_dup(communicator, &ranks));
  const std::unique_ptr<MPI_Comm, decltype([](MPI_Comm* duplicate) { MPI_Comm_free(duplicate); })> owner(&ranks);
  const Rank rank = ask(MPI_Comm_rank, ranks);
  const int size = ask(MPI_Comm_size, ranks);
  const std::vector<base::Host> hosts = from_all(base::this_host(), ranks);
  const bool several_hosts = std::ranges::count(hosts, hosts.front()) < size;
  Place place{rank, size, from_rank_zero(new_job(), ranks), {}, {}, {}};
  listen_together(place, several_hosts, env.interface, ranks);
  if (!several_hosts) return place;
  const auto secret = from_rank_zero(new_secret(), ranks);
  const auto number = std::ranges::find(hosts, hosts[static_cast<std::size_t>(rank)]) - hosts.begin();
  const Home mine{base::own_end(place.tcp_listener), static_cast<std::uint32_t>(number)};
  place.roster = Roster(Roster::write(secret, from_all(mine, ranks)), size);
  return place;
}

/// The backend of that name calls MPI from Sluice's own thread, and needs a communicator for it.
bool names_mpi(const base::Env& env, const Options& options) {
  const auto words = base::words_of(options.backends.empty() ? env.backends : options.backends);
  return std::ranges::find(words, "mpi") != words.end();
}

Context open_on(MPI_Comm communicator, const base::Env& env, const Options& options) {
  Place place = find_place(communicator, env);
  const backends::mpi::ForNextContext messages(communicator, names_mpi(env, options));
  return open_context(std::move(place), env, options);
}

/// MPI_Finalize would wait for ever for a rank that hangs because this one has failed. Without MPI_Finalize the
/// launcher ends all ranks at once, before they can report which peer they lost. So a rank that failed gives the others
/// the time that sluice-run gives, and then ends the job.
void finalize(MPI_Comm farewell, Outcome outcome) {
  MPI_Request everyone = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(farewell, &everyone));
  const auto deadline = outcome == Outcome::done ? Clock::time_point::max() : Clock::now() + kGrace;
  const auto all_arrived = [&](int* answer) { return MPI_Test(&everyone, answer, MPI_STATUS_IGNORE); };
  while (ask(all_arrived) == 0) {
    // Not the duplicate: MPICH then ends this rank alone, and its launcher waits for the others for ever.
    if (Clock::now() >= deadline) MPI_Abort(MPI_COMM_WORLD, exit_code(outcome));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // other ranks may need the core
  }
  MPI_Comm_free(&farewell);
  MPI_Finalize();
}

/// Why MPI has not found all ranks that the launcher has started; empty if it has, or the launcher does not tell.
std::string missing_ranks(const OtherLauncher& launcher) {
  const int size = ask(MPI_Comm_size, MPI_COMM_WORLD);
  if (size < launcher.ranks) {
    return launcher.said + ": a launcher started this program as one of " + std::to_string(launcher.ranks) +
           " ranks or more, and MPI_Init found " + std::to_string(size) +
           ": the launcher is that of another MPI than the program was built with";
  }
  if (!launcher.told && size == 1) warn_of_one_rank(launcher);
  return {};
}

}  // namespace
}  // namespace sluice::runtime

sluice::Context sluice::mpi::context(MPI_Comm communicator, const Options& options) {
  try {
    if (!runtime::mpi_runs())
      runtime::fail(Code::misuse, -1, "mpi::context needs an MPI that is initialised and not yet finalised");
    const base::Env env = runtime::settings(options);
    return runtime::open_on(communicator, env, options);
  } catch (const std::invalid_argument& error) {
    runtime::fail(Code::bad_argument, -1, error.what());
  } catch (const std::system_error& error) {
    runtime::fail(Code::out_of_resources, -1, error.what());
  }
}

/// MPI as a way to start. CMakeLists.txt gives this name to the linker, so that programs keep this file.
extern "C" SLUICE_EXPORT sluice::runtime::Outcome sluice_mpi_starter(const sluice::runtime::Start& start,
                                                                     const sluice::runtime::OtherLauncher& launcher) {
  using namespace sluice::runtime;
  const sluice::base::Origin origin;
  MPI_Comm farewell = MPI_COMM_NULL;  // null: the program has initialised MPI, and finalises it
  if (ask(MPI_Initialized) == 0) {
    auto [argc, argv] = std::pair(start.argc, start.argv);
    int provided = 0;  // without the backend, Sluice calls MPI from this thread alone
    const int level = names_mpi(start.env, start.options) ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
    check(MPI_Init_thread(&argc, &argv, level, &provided));
    check(MPI_Comm_dup(MPI_COMM_WORLD, &farewell));
  }
  const auto open = [&] { return open_on(MPI_COMM_WORLD, start.env, start.options); };
  const std::string why = missing_ranks(launcher);
  const Outcome outcome =
      why.empty() ? run_rank(ask(MPI_Comm_rank, MPI_COMM_WORLD), open, start.body) : Outcome::failed;
  // A forked child of a rank is no rank.
  if (farewell != MPI_COMM_NULL && origin.here() && mpi_runs()) finalize(farewell, outcome);
  if (!why.empty()) throw std::invalid_argument(why);
  return outcome;
}

[[maybe_unused]] const bool g_registered = (sluice::runtime::register_starter(&sluice_mpi_starter), true);
