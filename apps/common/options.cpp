// SPDX-License-Identifier: Apache-2.0
#include "apps/common/options.hpp"

#include "apps/common/choice.hpp"
#include "apps/common/image.hpp"
#include "apps/common/report.hpp"
#include "apps/common/usage_error.hpp"

#include <CLI/CLI.hpp>

#include <fmt/format.h>
#include <sluice/run.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

namespace apps {
namespace {

const Choices<Comm> kComms = {{"sluice", Comm::sluice},
                              {"copies", Comm::copies},
                              {"mpi", Comm::mpi},
                              {"mpi_persistent", Comm::mpi_persistent},
                              {"none", Comm::none}};
const Choices<StreamKind> kStreams = {
    {"program", StreamKind::inline_}, {"host", StreamKind::host}, {"cuda", StreamKind::cuda}};
const Choices<StreamKind> kOlderStreams = {{"inline", StreamKind::inline_}};

constexpr const char* kTrace = "--trace";

// The fault of a list of backends; empty if it is valid. `info` takes half a second where libfabric is installed,
// because all its providers start.
std::string unknown_backend(const std::string& list) {
  if (list == "threads" || list == "shm") return "";  // in every build
  const auto info = nlohmann::json::parse(sluice::info(true));
  std::vector<std::string> known;
  for (const auto& backend : info.at("backends")) known.push_back(backend.at("name"));
  std::istringstream names(list);
  for (std::string name; std::getline(names, name, ',');) {
    if (!name.empty() && std::ranges::find(known, name) == known.end())
      return fmt::format("there is no backend \"{}\" (there are: {})", name, fmt::join(known, ", "));
  }
  return "";
}

// Adds the second dash to "-nx" or "-nx=64" if that is a long option; returns anything else unchanged.
std::string with_two_dashes(const CLI::App& app, const std::string& argument, const DashAliases& aliases) {
  const bool one_dash =
      argument.size() > 2 && argument[0] == '-' && std::isalpha(static_cast<unsigned char>(argument[1])) != 0;
  if (!one_dash) return argument;
  const auto end = std::min(argument.find('='), argument.size());
  std::string option = argument.substr(1, end - 1);
  const auto alias = std::ranges::find(aliases, option, &DashAliases::value_type::first);
  if (alias != aliases.end()) option = alias->second;
  if (app.get_option_no_throw("--" + option) == nullptr) return argument;
  return "--" + option + argument.substr(end);
}

// Passes the file of --trace to the library, unless the file has a fault, which is returned. Returns nothing without
// that option.
std::optional<std::string> take_trace(const CLI::App& app) {
  const CLI::Option* const option = app.get_option_no_throw(kTrace);
  if (option == nullptr || option->empty()) return std::nullopt;
  const auto file = option->as<std::string>();
  std::string fault = why_not_writable(file);
  if (fault.empty() && std::filesystem::exists(file) && !std::filesystem::is_regular_file(file))
    fault = "cannot write " + file + ": it is no regular file";
  if (!fault.empty()) return app.get_name() + ": " + kTrace + ": " + fault;
  ::setenv("SLUICE_TRACE", file.c_str(), 1);
  return "";
}

Parsed outcome(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {  // --help
    std::ostringstream out;
    app.exit(error, out, out);
    return {false, 0, out.str()};
  }
  std::string what = error.what();
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    what = "unknown argument";
    for (const std::string& extra : app.remaining()) what += " " + extra;
  }
  return {false, 2, app.get_name() + ": " + what + " (--help lists the options)\n"};
}

}  // namespace

const char* name(Comm comm) { return name_in(kComms, comm); }
const char* name(StreamKind kind) { return name_in(kStreams, kind); }

template <class T>
CLI::Validator whole_number(std::type_identity_t<T> least, std::type_identity_t<T> most) {
  const auto in_digits = [least, most](std::string& text) -> std::string {
    T number = 0;
    const char* const end = text.data() + text.size();
    const auto [number_end, fault] = std::from_chars(text.data(), end, number);
    if (fault != std::errc() || number_end != end || number < least || number > most)
      return fmt::format("'{}' is no whole number from {} to {}", text, least, most);
    text = std::to_string(number);
    return "";
  };
  return {in_digits, fmt::format("INT in [{} - {}]", least, most)};
}
template CLI::Validator whole_number<std::int64_t>(std::int64_t least, std::int64_t most);
template CLI::Validator whole_number<std::uint64_t>(std::uint64_t least, std::uint64_t most);

void add_backend_option(CLI::App& app, std::string& backends) {
  app.add_option("--backend", backends, "allowed backends, separated by commas; default: all")
      ->check(CLI::Validator(unknown_backend, ""))
      ->option_text("NAME,...");
}

void add_trace_option(CLI::App& app, std::string& file) {
  app.add_option(kTrace, file, "write a timeline to this file, which Perfetto and Chrome show")->option_text("FILE");
}

void add_run_options(CLI::App& app, CommonOptions& options, const std::string& comm, const std::string& moved) {
  add_choice(
      app, comm, options.comm, kComms,
      "what moves " + moved +
          ": sluice (default); copies, mpi or mpi_persistent (the host waits for the stream, copies to "
          "its memory, exchanges there by channels, MPI_Isend and MPI_Irecv, or persistent requests, and copies back); "
          "none "
          "(pack, compute and unpack only)");
  add_choice(
      app, "--stream", options.stream, kStreams,
      "where the work runs: program (default; program order, in the calling thread), host (a host stream) or cuda (a "
      "GPU's stream)",
      kOlderStreams);
  add_backend_option(app, options.backend);
  CLI::Option* const verify = app.add_flag_callback(
      "--verify", [&options] { options.verify = true; },
      "compare the whole field with a serial run; default: up to 8e9 updates");
  app.add_flag_callback(
         "--no-verify", [&options] { options.verify = false; }, "do not compare")
      ->excludes(verify);
  app.add_flag("--phases", options.phases, "time the phases of a step (slows small ones down)");
  app.add_option("--csv", options.csv, "write the results to this file")->option_text("FILE");
  app.add_option("--json", options.json, "write the results to this file")->option_text("FILE");
  add_trace_option(app, options.trace);
}

void add_common_options(CLI::App& app, CommonOptions& options, const std::string& comm) {
  add_run_options(app, options, comm, "the halo");
  app.add_option("--image", options.image,
                 "write a picture of the field to this file; of three dimensions, of the plane at a quarter of z")
      ->option_text("FILE.png");
  app.add_option(
         "--field", options.field,
         "write the whole field to this file, as an array of NumPy: each cell's value and the rank that updates it")
      ->option_text("FILE.npy");
}

Parsed parse(CLI::App& app, int argc, const char* const* argv, const DashAliases& aliases) {
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i)
    arguments.push_back(with_two_dashes(app, argv[i], aliases));  // CLI11 expects the arguments in reverse order
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return outcome(app, error);
  }
  return {.trace_fault = take_trace(app)};
}

void check(const CommonOptions& options) {
  if (options.phases && options.stream == StreamKind::cuda)
    throw UsageError("--phases times what the host runs: --stream cuda is timed as a whole");
  if (!options.image.empty() && !can_write_png()) throw UsageError("--image: this program was built without libpng");
  if (options.comm == Comm::none && options.verify.value_or(false))
    throw UsageError("--comm none moves no halo, so there is nothing to verify");
}

}  // namespace apps
