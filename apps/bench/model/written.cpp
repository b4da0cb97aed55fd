// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/model/written.hpp"

#include "apps/common/usage_error.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace bench {

std::string parameters_in(const std::string& path) {
  std::ifstream in(path);
  if (!in) return {};
  std::string text{std::istreambuf_iterator<char>(in), {}};
  try {
    (void)sluice::collectives::parse_parameters(text, path);
  } catch (const std::invalid_argument& reason) {
    throw apps::UsageError(fmt::format("--write-model would replace a file of something else: {}", reason.what()));
  }
  return text;
}

std::string merged_parameters(std::string_view text, std::string_view name, std::string_view backend,
                              const sluice::collectives::LogGP& costs) {
  const std::string head = fmt::format("# {}, ", name);  // begins a section
  std::string merged;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    const std::size_t first = std::min(line.find_first_not_of(" \t"), line.size());
    const bool of_section = line.substr(first).starts_with(fmt::format("{}.", name)) || line.starts_with(head);
    if (!of_section) merged += line;
  }
  if (!merged.empty() && merged.back() != '\n') merged += '\n';
  return merged + fmt::format("{}{}: measured by sluice-bench model\n{}", head, backend, text_of(costs, name));
}

}  // namespace bench
