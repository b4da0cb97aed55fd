// SPDX-License-Identifier: Apache-2.0
// Options whose value is one of some names.
#pragma once

#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace apps {

template <class T>
using Choices = std::map<std::string, T>;

/// The name of a value, which must be one of the choices.
template <class T>
const char* name_in(const Choices<T>& choices, T value) {
  return std::ranges::find(choices, value, &std::pair<const std::string, T>::second)->first.c_str();
}

/// Adds an option that sets `value`. --help does not show `other_names`.
template <class T>
void add_choice(CLI::App& app, const std::string& flag, T& value, const Choices<T>& choices, const std::string& help,
                const Choices<T>& other_names = {}) {
  std::vector<std::string> names;
  std::string shown;
  for (const auto& choice : choices) {
    names.push_back(choice.first);
    shown += (shown.empty() ? "" : "|") + choice.first;
  }
  std::map<std::string, T> all = choices;
  for (const auto& other : other_names) {
    names.push_back(other.first);
    all.insert(other);
  }
  app.add_option_function<std::string>(
         flag, [&value, all = std::move(all)](const std::string& name) { value = all.at(name); }, help)
      ->check(CLI::IsMember(names))
      ->option_text(shown);
}

}  // namespace apps
