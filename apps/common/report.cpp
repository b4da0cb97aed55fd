// SPDX-License-Identifier: Apache-2.0
#include "apps/common/report.hpp"

#include "apps/common/csv.hpp"
#include "apps/common/usage_error.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

namespace apps {
namespace {

using Json = nlohmann::ordered_json;

std::atomic<int> g_output_error{0};  // of standard output

Json phases_json(const PhaseSeconds& seconds) {
  Json phases = Json::object();
  for (std::size_t i = 0; i < kPhaseNames.size(); ++i) phases[kPhaseNames[i]] = seconds[i];
  return phases;
}

// JSON has no infinity, and null means that a value is not known.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value)); }

Json object(const Result& result) {
  Json object = {{"app", result.app},
                 {"comm", result.comm},
                 {"backend", result.backend},
                 {"stream", result.stream},
                 {"nx", result.nx},
                 {"ny", result.ny},
                 {"nz", result.nz},
                 {"ranks", result.ranks},
                 {"steps", result.steps},
                 {"create_s", result.create_s},
                 {"solve_s", result.solve_s},
                 {"step_us", result.step_us()},
                 {"phases", result.phases ? phases_json(*result.phases) : Json(nullptr)},
                 {"verification", result.verification},
                 {"max_error", result.max_error ? number(*result.max_error) : Json(nullptr)}};
  for (const auto& [name, value] : result.more) object[name] = number(value);
  return object;
}

void append(std::string& line, const std::string& text) { line += (line.empty() ? "" : ",") + text; }

// 0 if this process has that access to a file, else the error number.
int access_error(const std::filesystem::path& path, int what) {
  return ::faccessat(AT_FDCWD, path.c_str(), what, AT_EACCESS) == 0 ? 0 : errno;
}

// Opens nothing: a file that one rank creates and removes may be written by another rank meanwhile.
int write_error(std::filesystem::path path) {
  const int error = access_error(path, W_OK);
  if (error == 0) return std::filesystem::is_directory(path) ? EISDIR : 0;
  if (error != ENOENT) return error;
  while (std::filesystem::is_symlink(path)) path = path.parent_path() / std::filesystem::read_symlink(path);
  return access_error(path.has_parent_path() ? path.parent_path() : ".", W_OK | X_OK);
}

}  // namespace

std::string to_json(const Result& result) { return object(result).dump(2) + "\n"; }

std::string to_csv(const Result& result) {
  std::string names;
  std::string values;
  const Json json = object(result);
  for (const auto& [name, value] : json.items()) {
    if (name == "phases") {
      for (std::size_t i = 0; i < kPhaseNames.size(); ++i) {
        append(names, fmt::format("{}_s", kPhaseNames[i]));
        append(values, result.phases ? fmt::format("{}", (*result.phases)[i]) : "");
      }
    } else {
      append(names, name);
      append(values, csv_field(value));
    }
  }
  return names + "\n" + values + "\n";
}

std::string to_text(const Result& result, double updates) {
  std::string text = fmt::format(
      "{} ranks, {} steps, comm {}, backend {}, stream {}\n"
      "creation time: {:.6f} s\nsolve time: {:.6f} s, {:.3f} us per step, {:.4g} cell updates/s\n",
      result.ranks, result.steps, result.comm, result.backend, result.stream, result.create_s, result.solve_s,
      result.step_us(), result.solve_s > 0 ? updates / result.solve_s : 0);
  if (!result.phases) return text;
  for (std::size_t i = 0; i < kPhaseNames.size(); ++i)
    text += fmt::format("  {:9} {:.6f} s\n", kPhaseNames[i], (*result.phases)[i]);
  return text;
}

std::string why_not_writable(const std::string& file) {
  const int error = write_error(file);
  return error == 0 ? "" : "cannot write " + file + ": " + std::generic_category().message(error);
}

void check_writable(const std::string& file) {
  if (const std::string why_not = why_not_writable(file); !file.empty() && !why_not.empty()) throw UsageError(why_not);
}

void write_text(const std::string& file, const std::string& text) {
  if (file.empty()) return;
  std::ofstream out(file, std::ios::binary);
  out << text << std::flush;
  if (!out) throw std::runtime_error("cannot write " + file + ": " + std::strerror(errno));
}

void flush_output() {
  flush_lines();
  if (const int error = g_output_error.load(); error != 0)
    throw std::system_error(error, std::generic_category(), "cannot write to standard output");
}

void print_text(const std::string& text) noexcept {
  int none = 0;
  if (std::fputs(text.c_str(), stdout) < 0) g_output_error.compare_exchange_strong(none, errno);
}

void flush_lines() noexcept {
  int none = 0;
  if (std::fflush(stdout) != 0) g_output_error.compare_exchange_strong(none, errno);  // the first error stays
}

void write_results(const Result& result, const CommonOptions& options) {
  write_text(options.json, to_json(result));
  write_text(options.csv, to_csv(result));
}

std::string why_not_verified(const CommonOptions& options, double updates) {
  if (options.comm == Comm::none) return "without communication the field is wrong";
  if (options.verify) return *options.verify ? "" : "--no-verify";
  if (updates > kVerifiedUpdates) return fmt::format("more than {:g} cell updates; --verify does it", kVerifiedUpdates);
  return "";
}

bool needs_field(const CommonOptions& options, double updates) {
  return why_not_verified(options, updates).empty() || !options.image.empty() || !options.field.empty();
}

}  // namespace apps
