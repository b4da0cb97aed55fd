// SPDX-License-Identifier: Apache-2.0
#include "apps/common/session.hpp"

#include "apps/common/description.hpp"
#include "apps/common/usage_error.hpp"

#include <filesystem>
#include <set>
#include <system_error>
#include <vector>

namespace apps {
namespace {

std::unique_ptr<HostCollectives> open_collectives(sluice::Context& context, Comm comm) {
  return is_mpi(comm) ? make_mpi_collectives() : make_sluice_collectives(context);
}

// The reason why a file cannot be written; empty if all can.
std::string first_fault(const CommonOptions& options, std::vector<std::string> files) {
  files.insert(files.end(), {options.csv, options.json, options.image, options.field, options.trace});
  std::erase(files, "");
  std::set<std::filesystem::path> places;
  for (const std::string& file : files) {
    std::error_code unknown;
    // Absolute first: for a relative file that does not exist yet, "./a" and "a" have different canonical forms.
    std::filesystem::path place = std::filesystem::absolute(file, unknown);
    if (!unknown) place = std::filesystem::weakly_canonical(place, unknown);
    if (unknown || std::filesystem::is_other(place, unknown)) continue;  // outputs may share a terminal or a pipe
    if (!places.insert(place).second) return file + " is asked for twice: each output needs a file of its own";
  }
  try {
    for (const std::string& file : files) check_writable(file);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

Session::Session(sluice::Context& context_in, const CommonOptions& options_in, const Decomposition& decomposition_in)
    : context(context_in), options(options_in), rank(context_in.rank()), decomposition(decomposition_in),
      collectives(open_collectives(context, options.comm)) {}

std::unique_ptr<Exchange> Session::open_exchange(const Links& links, sluice::Stream stream) {
  switch (options.comm) {
    case Comm::sluice:
    case Comm::copies: return make_sluice_exchange(context, links, stream);
    case Comm::mpi: return make_mpi_exchange(links, MpiRequests::each_time);
    case Comm::mpi_persistent: return make_mpi_exchange(links, MpiRequests::persistent);
    case Comm::none: break;
  }
  return make_no_exchange();
}

Result Session::result(const std::string& app) const {
  Result result;
  result.app = app;
  result.comm = name(options.comm);
  result.stream = name(options.stream);
  result.nx = decomposition.mesh().nx;
  result.ny = decomposition.mesh().ny;
  result.nz = decomposition.mesh().nz;
  result.ranks = decomposition.ranks();
  return result;
}

void check_outputs(sluice::Context& context, const CommonOptions& options, const std::vector<std::string>& others) {
  const std::string fault = context.rank() == 0 ? first_fault(options, others) : "";
  // Closes the channels before anything is thrown: an exception that unwinds them would be a failure to ranks that
  // still wait for the result.
  const double faults = open_collectives(context, options.comm)->sum(fault.empty() ? 0 : 1);
  if (faults > 0) throw UsageError(fault);
}

std::string backend_of(const Session& session, const std::string& description) {
  if (session.options.comm != Comm::sluice) return name(session.options.comm);
  const Description mine = read_description(description);
  return joined(of_all_ranks(mine, *session.collectives, session.decomposition.ranks()).backends);
}

void take_slowest(Result& result, HostCollectives& collectives) {
  std::vector<double> times = {result.create_s, result.solve_s};
  if (result.phases) times.insert(times.end(), result.phases->begin(), result.phases->end());
  collectives.max(times);
  result.create_s = times[0];
  result.solve_s = times[1];
  if (result.phases) std::copy(times.begin() + 2, times.end(), result.phases->begin());
}

}  // namespace apps
