// SPDX-License-Identifier: Apache-2.0
// A run of part of the cases: those of a table such as conformance/matrix.txt, or some of these.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

namespace sluice::test {

/// "SUITE/GROUND_CASE" for each case of the table, whose lines are SUITE GROUND CASE...
inline std::set<std::string> cases_of_table(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read the table of cases " + path);
  std::set<std::string> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string suite;
    std::string ground;
    words >> suite >> ground;
    const std::string prefix = suite.append("/").append(ground).append("_");
    for (std::string one; words >> one;) cases.insert(prefix + one);
  }
  return cases;
}

/// One of `parts` of the tests, by SLUICE_USER_TEST_DRAW: each text draws others, and "all" draws all.
class Drawn {
 public:
  explicit Drawn(std::uint64_t parts) : parts_(parts) {
    constexpr const char* kVariable = "SLUICE_USER_TEST_DRAW";
    if (const char* const given = std::getenv(kVariable)) draw_ = given;
    if (draw_ == "all") parts_ = 1;
    if (parts_ > 1) std::cout << kVariable << '=' << draw_ << ": one of " << parts_ << " cases\n" << std::flush;
  }
  bool operator()(const std::string& test) const {
    return parts_ < 2 || std::hash<std::string>()(draw_ + " " + test) % parts_ == 0;
  }

 private:
  std::uint64_t parts_;
  std::string draw_ = "0";
};

/// The tests that have cases and are not in the table, or not drawn, as the negative part of a filter. Tests without
/// cases stay.
inline std::string not_in_table(const std::set<std::string>& cases, const Drawn& drawn) {
  std::string left_out;
  const auto& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    const std::string name = suite.name();  // INSTANTIATION/SUITE
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      if (test.value_param() == nullptr) continue;
      const std::string of_case = test.name();  // TEST/CASE
      const std::string key = name.substr(name.find('/') + 1) + of_case.substr(of_case.find('/'));
      if (!cases.contains(key) || !drawn(std::string(name).append(".").append(of_case)))
        left_out.append(":").append(name).append(".").append(of_case);
    }
  }
  return left_out;
}

/// Narrows the filter to the cases of the table. GoogleTest evaluates the filter before the program starts, and prints
/// it later: what it prints is the filter of the command line.
class ChosenCases final : public testing::EmptyTestEventListener {
 public:
  ChosenCases(const std::string& table, std::uint64_t parts) : given_(GTEST_FLAG_GET(filter)) {
    const std::string left_out = not_in_table(cases_of_table(table), Drawn(parts));
    const char* const negative = given_.find('-') == std::string::npos ? "-" : "";
    GTEST_FLAG_SET(filter, given_ + negative + left_out);
  }

 private:
  void OnTestProgramStart(const testing::UnitTest&) override { GTEST_FLAG_SET(filter, given_); }

  std::string given_;
};

}  // namespace sluice::test
