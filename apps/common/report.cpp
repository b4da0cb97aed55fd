// SPDX-License-Identifier: Apache-2.0
#include "apps/common/report.hpp"

#include "apps/common/usage_error.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace apps {
namespace {

using Json = nlohmann::ordered_json;

Json phases_json(const PhaseSeconds& seconds) {
  Json phases = Json::object();
  for (std::size_t i = 0; i < kPhaseNames.size(); ++i) phases[kPhaseNames[i]] = seconds[i];
  return phases;
}

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
                 {"max_error", result.max_error ? Json(*result.max_error) : Json(nullptr)}};
  for (const auto& [name, value] : result.more) object[name] = value;
  return object;
}

void append(std::string& line, const std::string& text) { line += (line.empty() ? "" : ",") + text; }

// A value as a CSV field: strings without quotes (none of ours has a comma), nothing for null.
std::string field(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
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
      append(values, field(value));
    }
  }
  return names + "\n" + values + "\n";
}

std::string to_text(const Result& result, double updates) {
  std::string text =
      fmt::format("creation time: {:.6f} s\nsolve time: {:.6f} s, {:.3f} us per step, {:.4g} cell updates/s\n",
                  result.create_s, result.solve_s, result.step_us(), result.solve_s > 0 ? updates / result.solve_s : 0);
  if (!result.phases) return text;
  for (std::size_t i = 0; i < kPhaseNames.size(); ++i)
    text += fmt::format("  {:9} {:.6f} s\n", kPhaseNames[i], (*result.phases)[i]);
  return text;
}

void check_writable(const std::string& file) {
  if (file.empty()) return;
  std::error_code unknown;  // then opening it tells
  const bool existed = std::filesystem::exists(file, unknown);
  if (!std::ofstream(file, std::ios::app)) throw UsageError("cannot write " + file + ": " + std::strerror(errno));
  if (!existed) std::filesystem::remove(file, unknown);
}

void write_text(const std::string& file, const std::string& text) {
  if (file.empty()) return;
  std::ofstream out(file, std::ios::binary);
  out << text << std::flush;
  if (!out) throw std::runtime_error("cannot write " + file + ": " + std::strerror(errno));
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

}  // namespace apps
