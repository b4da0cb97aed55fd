// SPDX-License-Identifier: Apache-2.0
// sluice::run and sluice::run_threads: find the launcher of this process, and run its ranks.
#include "launch/start.hpp"

#include "backends/transport.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "base/threads.hpp"
#include "base/timeline_file.hpp"
#include "base/trace.hpp"
#include "device/profiler.hpp"
#include "peers/bootstrap.hpp"
#include "runtime/context.hpp"

#include <sluice/error.hpp>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::runtime {
namespace {

Starter g_starter = nullptr;

Outcome run_place(Place place, const Start& start, InsideRun inside = {}) {
  const Rank rank = place.rank;
  return run_rank(
      rank, [&] { return open_context(std::move(place), start.env, start.options); }, start.body, std::move(inside));
}

/// @param job  its name; empty: a new one
Outcome run_places(int ranks, const Start& start, const std::string& job = {}) {
  if (ranks < 1) throw std::invalid_argument("the number of ranks must be 1 or more, not " + std::to_string(ranks));
  std::atomic<Outcome> outcome{Outcome::done};
  const auto run_one = [&](Place place, InsideRun inside) {
    const base::Origin origin;
    const bool first = place.rank == 0;
    const Outcome mine = run_place(std::move(place), start, std::move(inside));
    // A child of fork that leaves the body of a rank above 0 has this thread alone, and no `run` to return from.
    if (!origin.here() && !first) std::_Exit(exit_code(mine));
    Outcome none = Outcome::done;
    if (mine != Outcome::done) outcome.compare_exchange_strong(none, mine);
  };
  // If a thread cannot be started, the places without one are closed before the threads are joined: so their peers
  // lose them. In a child of fork that leaves the body, the threads do not run, and must not be joined.
  auto others = base::make_here<std::vector<std::jthread>>();
  std::vector<Place> places = threads(ranks, job);
  std::vector<InsideRun> inside(places.size());  // counts also ranks that have not begun when the first calls `exit`
  for (std::size_t rank = 1; rank < places.size(); ++rank) {
    try {
      others->emplace_back([&run_one, place = std::move(places[rank]), counted = std::move(inside[rank])]() mutable {
        run_one(std::move(place), std::move(counted));
      });
    } catch (const std::system_error& reason) {
      throw base::no_thread("rank " + std::to_string(rank), reason.code().value());
    }
  }
  run_one(std::move(places[0]), std::move(inside[0]));
  others.reset();
  return outcome;
}

Outcome run_start(const Start& start) {
  const base::Env& env = start.env;
  if (env.threads > 0) return run_places(env.threads, start, env.job);
  if (env.rank >= 0 || env.size > 0 || env.listen_fd >= 0 || env.hosts_fd >= 0 || env.tcp_fd >= 0 || !env.job.empty()) {
    Place place = launched(env);
    become_rank(place.rank);
    return run_place(std::move(place), start);
  }
  const auto launcher = other_launcher();
  if (launcher && g_starter != nullptr) return g_starter(start, *launcher);
  if (launcher && launcher->ranks > 1) {
    throw std::invalid_argument(launcher->said +
                                ": a launcher started this program as one of several ranks, and it is not linked with "
                                "Sluice::mpi: link it, or start with sluice-run");
  }
  if (launcher && !launcher->told) warn_of_one_rank(*launcher);
  return run_places(1, start);
}

void check_backends(std::string_view chosen, const char* where) {
  for (const std::string_view word : base::words_of(chosen)) {
    const auto found = backends::find_backend(word);
    if (found && found->why_not.empty()) continue;
    const std::string named = std::string(where) + "=" + std::string(chosen) + ": ";
    if (found) throw std::invalid_argument(named + found->name + " is not usable here: " + found->why_not);
    std::string text = named + "there is no backend \"" + std::string(word) + "\" (there are: ";
    const char* separator = "";
    for (const backends::Backend& row : backends::backends()) (text += std::exchange(separator, ", ")) += row.name;
    throw std::invalid_argument(text += ')');
  }
}

void say_what_ended(Rank rank, std::string_view what) {
  base::write_line("sluice: rank " + std::to_string(rank) + ": " + std::string(what));
}

}  // namespace

void register_starter(Starter starter) noexcept { g_starter = starter; }

Outcome run_rank(Rank rank, const std::function<Context()>& open, const Body& body, InsideRun inside) {
  inside.begin(rank);
  std::optional<Context> context;
  Outcome outcome = Outcome::failed;
  try {
    context.emplace(open());
    body(*context);
    outcome = Outcome::done;
  } catch (const Error& error) {
    say_what_ended(rank, error.what());
    if (error.code() == Code::peer_lost) outcome = Outcome::lost_peer;
  } catch (const std::exception& error) {
    say_what_ended(rank, error.what());
  } catch (...) {
    say_what_ended(rank, "something was thrown that is no std::exception");
  }
  if (context) end_context(*context, outcome != Outcome::done);
  return outcome;
}

int guarded(const std::string& name, const std::function<int()>& work) {
  try {
    const std::uint64_t untold = base::untold_reported();
    const int code = work();
    return code == 0 && (base::trace::lost() || base::untold_reported() != untold) ? 1 : code;
  } catch (const std::invalid_argument& error) {
    base::write_line(name + ": " + error.what());
    return 2;
  } catch (const std::exception& error) {
    base::write_line(name + ": " + error.what());
    return 1;
  }
}

base::Env checked_env() {
  base::Env env = base::read_env();
  check_backends(env.backends, "environment variable SLUICE_BACKENDS");
  base::trace::check_timeline(env.trace);
  device::use_profiler(env.ranges);
  return env;
}

base::Env settings(const Options& options) {
  base::fill_standard_descriptors();  // else libfabric's sockets would get their numbers
  base::Env env = checked_env();
  check_backends(options.backends, "the option backends");
  base::set_level(env.log);
  env.launcher_fd = -1;  // `run` alone checks that the number is still that of sluice-run's pipe
  if (!env.passed_over.empty() && env.rank <= 0) {  // one line for each job
    std::string names;
    for (const std::string& name : env.passed_over) names += (names.empty() ? "" : ", ") + name;
    base::log(base::LogLevel::info, "environment variables of our build or of Kubernetes are passed over: " + names);
  }
  return env;
}

}  // namespace sluice::runtime

int sluice::run(int argc, char** argv, const Body& body, const Options& options) {
  return runtime::guarded("sluice", [&] {
    if (!base::first_run_in_process()) {
      throw std::invalid_argument(
          "sluice::run may be called once a process, also where two plug-ins have a copy of the library each, and in "
          "no child of fork (sluice::run_threads any number of times)");
    }
    base::Env env = runtime::settings(options);
    const base::Fd launcher = runtime::join_launcher(base::read_env());
    base::forget_launcher();
    env.launcher_fd = launcher.get();
    const runtime::Outcome outcome = runtime::run_start({argc, argv, body, options, env});
    if (outcome == runtime::Outcome::lost_peer) runtime::report().lost_peer = true;
    return runtime::exit_code(outcome);
  });
}

int sluice::run_threads(int ranks, const Body& body, const Options& options) {
  return runtime::guarded("sluice", [&] {
    const base::Env env = runtime::settings(options);
    return runtime::exit_code(runtime::run_places(ranks, {0, nullptr, body, options, env}));
  });
}

void sluice::check_environment() { runtime::checked_env(); }
