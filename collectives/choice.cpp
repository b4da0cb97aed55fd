// SPDX-License-Identifier: Apache-2.0
#include "collectives/choice.hpp"

#include <sluice/error.hpp>

#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <stdexcept>

#include "base/env.hpp"
#include "base/text.hpp"
#include "runtime/context.hpp"

namespace sluice::collectives {
namespace {

/// Parameters of the file that SLUICE_MODEL names, else the built-in ones. A process reads a file once.
const Parameters& parameters() {
  const std::string path = base::read_env().model;
  if (path.empty()) return built_in();
  static std::mutex mutex;
  static std::map<std::string, Parameters> files;
  const std::lock_guard lock(mutex);
  const auto found = files.find(path);
  if (found != files.end()) return found->second;
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in || text.empty()) throw std::invalid_argument("SLUICE_MODEL: cannot read '" + path + "'");
  return files.emplace(path, parse_parameters(text, path)).first->second;
}

const Parameters& parameters_for(const Context& context) {
  try {
    return parameters();
  } catch (const std::invalid_argument& reason) {
    throw Error(Code::bad_argument, context.rank(), -1, 0, 0, reason.what());
  }
}

/// Less is within the error of the model.
constexpr double kMuchLess = 0.9;

std::string time_text(const Time& time) {
  return base::duration_text(std::chrono::nanoseconds(static_cast<std::int64_t>(time.total())));
}

}  // namespace

Chooser::Chooser(const Context& context)
    : parameters_(parameters_for(context)), nodes_(nodes_of(context)), maps_(runtime::maps_on_host(context)) {}

Choice Chooser::choose(std::string of, std::initializer_list<Candidate> candidates) const {
  Choice choice{.why = std::move(of) + "; predicted for " +
                       (maps_ && nodes_.count() < 2 ? "mapped memory" : "a network") + ", " + parameters_.source +
                       ": "};
  const Candidate* least = nullptr;
  for (const Candidate& candidate : candidates) {
    if (!candidate.possible) continue;
    choice.why += (least == nullptr ? "" : ", ") + std::string(candidate.name) + " " + time_text(candidate.time);
    if (least == nullptr || candidate.time.total() < kMuchLess * least->time.total()) least = &candidate;
  }
  choice.best = static_cast<std::size_t>(least - candidates.begin());
  return choice;
}

std::string Chooser::fingerprint() const {
  if (&parameters_ == &built_in()) return {};
  const std::string costs = exact_text_of(parameters_.mapped) + exact_text_of(parameters_.network);
  return ", SLUICE_MODEL=" + base::hexadecimal(base::hash(costs));
}

}  // namespace sluice::collectives
