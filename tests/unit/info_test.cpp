// SPDX-License-Identifier: Apache-2.0
#include <sluice/run.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

namespace {

using nlohmann::json;

json variable(const json& info, const std::string& name) {
  for (const json& row : info.at("variables")) {
    if (row.at("name") == name) return row;
  }
  return {};
}

TEST(Info, has_the_shape_that_scripts_rely_on) {
  const json info = json::parse(sluice::info(true));
  EXPECT_FALSE(info.at("version").get<std::string>().empty());
  EXPECT_TRUE(info.at("gpus").empty());
  EXPECT_TRUE(info.at("providers").empty());
  ASSERT_FALSE(info.at("backends").empty());
  for (const json& backend : info.at("backends")) {
    EXPECT_TRUE(backend.at("level").is_number_integer());
    EXPECT_EQ(backend.at("usable").get<bool>(), backend.at("why_not").get<std::string>().empty()) << backend;
  }
}

TEST(Info, variables_have_a_default_a_value_and_a_meaning) {
  ::setenv("SLUICE_WARN", "5s", 1);
  ::setenv("SLUICE_USER_X", "1", 1);
  const json info = json::parse(sluice::info(true));
  ::unsetenv("SLUICE_WARN");
  ::unsetenv("SLUICE_USER_X");
  const json warn = variable(info, "SLUICE_WARN");
  EXPECT_EQ(warn.at("default"), "60s");
  EXPECT_EQ(warn.at("value"), "5s");
  EXPECT_EQ(warn.at("kind"), "duration");
  EXPECT_FALSE(warn.at("meaning").get<std::string>().empty());
  EXPECT_EQ(variable(info, "SLUICE_LOG").at("value"), "warn");
  EXPECT_TRUE(variable(info, "SLUICE_TIMEOUT").at("value").is_null());
  EXPECT_TRUE(variable(info, "SLUICE_USER_X").is_null());
}

TEST(Info, any_value_makes_valid_json) {
  const std::string strange = "a \"quoted\" \\ back\nline\ttab\x01";
  ::setenv("SLUICE_BACKENDS", strange.c_str(), 1);
  const json info = json::parse(sluice::info(true));
  const std::string text = sluice::info(false);
  ::unsetenv("SLUICE_BACKENDS");
  EXPECT_EQ(variable(info, "SLUICE_BACKENDS").at("value"), strange);
  EXPECT_NE(text.find(strange), std::string::npos);
}

TEST(Info, a_bad_variable_is_listed_and_named) {
  EXPECT_NO_THROW(sluice::check_environment());
  for (const auto& [name, value] :
       {std::pair{"SLUICE_WARN", "soon"}, {"SLUICE_TYPO", "1"}, {"SLUICE_BACKENDS", "pigeon"}}) {
    ::setenv(name, value, 1);
    EXPECT_FALSE(json::parse(sluice::info(true)).empty());
    try {
      sluice::check_environment();
      ADD_FAILURE() << name << " was accepted";
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
    ::unsetenv(name);
  }
}

TEST(Info, for_people_lists_every_backend_and_variable) {
  const json info = json::parse(sluice::info(true));
  const std::string text = sluice::info(false);
  for (const char* const list : {"backends", "variables"}) {
    for (const json& row : info.at(list)) {
      EXPECT_NE(text.find(row.at("name").get<std::string>()), std::string::npos) << row;
    }
  }
}

}  // namespace
