// SPDX-License-Identifier: Apache-2.0
#include "base/env.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using sluice::base::Env;
using sluice::base::LogLevel;
using sluice::base::read_env;

/// Variables that are set for the length of a test.
class Set {
 public:
  Set(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const auto& [name, value] : variables) {
      ::setenv(name, value, 1);
      names_.emplace_back(name);
    }
  }
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;
  ~Set() {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
  }

 private:
  std::vector<std::string> names_;
};

std::string complaint() {
  try {
    read_env();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

std::string complaint(const char* name, const char* value) {
  const Set set{{name, value}};
  return complaint();
}

/// Sets the variables; true if each is passed over. The environment may hold others that are.
bool passes_over(std::initializer_list<std::pair<const char*, const char*>> variables) {
  const Set set(variables);
  const std::vector<std::string> passed_over = read_env().passed_over;
  return std::ranges::all_of(variables, [&](const auto& variable) {
    return std::ranges::find(passed_over, variable.first) != passed_over.end();
  });
}

TEST(Env, defaults_are_those_of_the_table) {
  const Env env = read_env();
  EXPECT_FALSE(env.timeout.has_value());
  EXPECT_EQ(env.connect_timeout, 60s);
  EXPECT_EQ(env.warn, 60s);
  EXPECT_EQ(env.peer_timeout, 30s);
  EXPECT_EQ(env.interface, "");
  EXPECT_EQ(env.backends, "");
  EXPECT_EQ(env.log, LogLevel::warn);
  EXPECT_GT(env.bounce_max, 0U);
  EXPECT_GT(env.nontemporal_min, env.bounce_max);
  EXPECT_TRUE(env.nontemporal);
  EXPECT_EQ(env.rails, 0);
  EXPECT_FALSE(env.stage_all);
  EXPECT_FALSE(env.check);
  EXPECT_EQ(env.rank, -1);
  EXPECT_EQ(env.listen_fd, -1);
}

TEST(Env, copies_into_peers_memory_can_be_kept_in_the_cache) {
  const Set off{{"SLUICE_NONTEMPORAL", "off"}};
  EXPECT_FALSE(read_env().nontemporal);
  const Set wrong{{"SLUICE_NONTEMPORAL", "0"}};
  EXPECT_ANY_THROW(read_env());
}

TEST(Env, durations_have_units) {
  const std::vector<std::pair<const char*, std::chrono::nanoseconds>> cases = {
      {"60s", 60s}, {"500ms", 500ms}, {"2m", 2min}, {"3", 3s}, {"1.5", 1500ms},
      {"0", 0s},    {"7us", 7us},     {"9ns", 9ns}, {"1h", 1h}};
  for (const auto& [text, expected] : cases) {
    const Set set{{"SLUICE_TIMEOUT", text}};
    EXPECT_EQ(read_env().timeout, expected) << text;
  }
}

TEST(Env, rails_are_one_to_eight) {
  for (const char* value : {"0", "9", "-1", "two"}) EXPECT_NE(complaint("SLUICE_RAILS", value), "") << value;
  const Set set{{"SLUICE_RAILS", "8"}};
  EXPECT_EQ(read_env().rails, 8);
}

TEST(Env, a_topology_is_a_number_of_ranks_or_a_node_for_each) {
  for (const char* value : {"0", "a", "1,b", "-1"}) EXPECT_NE(complaint("SLUICE_TOPOLOGY", value), "") << value;
  const Set set{{"SLUICE_TOPOLOGY", "0,0,1"}};
  EXPECT_EQ(read_env().topology, (std::vector<int>{0, 0, 1}));
}

TEST(Env, a_model_is_a_file) {
  const Set set{{"SLUICE_MODEL", "/etc/costs"}};
  EXPECT_EQ(read_env().model, "/etc/costs");
}

TEST(Env, checks_are_off_or_on) {
  for (const char* value : {"", "2", "yes"}) EXPECT_NE(complaint("SLUICE_CHECK", value), "") << value;
  const Set set{{"SLUICE_CHECK", "1"}};
  EXPECT_TRUE(read_env().check);
}

TEST(Env, staging_is_auto_or_always) {
  EXPECT_NE(complaint("SLUICE_STAGING", "never"), "");
  const Set set{{"SLUICE_STAGING", "always"}};
  EXPECT_TRUE(read_env().stage_all);
}

TEST(Env, gpus_are_of_vendors_that_are_known) {
  for (const char* value : {"nvidia", "cuda,amd", "0"}) EXPECT_NE(complaint("SLUICE_GPUS", value), "") << value;
  for (const char* value : {"cuda", "cuda,hip", "none"}) EXPECT_EQ(complaint("SLUICE_GPUS", value), "") << value;
}

TEST(Env, gpus_wait_by_their_streams_or_by_kernels) {
  for (const char* value : {"kernels", "auto", ""}) EXPECT_NE(complaint("SLUICE_GPU_WAITS", value), "") << value;
  for (const char* value : {"stream", "kernel"}) EXPECT_EQ(complaint("SLUICE_GPU_WAITS", value), "") << value;
}

TEST(Env, sizes_have_suffixes) {
  const std::vector<std::pair<const char*, std::size_t>> cases = {
      {"0", 0}, {"4096", 4096}, {"64k", 65536}, {"1m", 1048576}, {"2g", std::size_t{2} << 30}};
  for (const auto& [text, expected] : cases) {
    const Set set{{"SLUICE_BOUNCE_MAX", text}};
    EXPECT_EQ(read_env().bounce_max, expected) << text;
  }
}

TEST(Env, the_launchers_own_are_read) {
  const Set set{{"SLUICE_RANK", "2"},       {"SLUICE_SIZE", "4"},      {"SLUICE_JOB", "abc"},
                {"SLUICE_THREADS", "0"},    {"SLUICE_LISTEN_FD", "7"}, {"SLUICE_REPORT_FD", "8"},
                {"SLUICE_LAUNCHER_FD", "9"}};
  const Env env = read_env();
  EXPECT_EQ(env.rank, 2);
  EXPECT_EQ(env.size, 4);
  EXPECT_EQ(env.job, "abc");
  EXPECT_EQ(env.listen_fd, 7);
  EXPECT_EQ(env.report_fd, 8);
  EXPECT_EQ(env.launcher_fd, 9);
}

TEST(Env, a_bad_value_is_an_error_that_names_the_variable_and_the_value) {
  const std::vector<std::pair<const char*, const char*>> cases = {{"SLUICE_TIMEOUT", "soon"},
                                                                  {"SLUICE_TIMEOUT", "-1s"},
                                                                  {"SLUICE_TIMEOUT", "5 s"},
                                                                  {"SLUICE_TIMEOUT", "inf"},
                                                                  {"SLUICE_TIMEOUT", "1e300"},
                                                                  {"SLUICE_CONNECT_TIMEOUT", "60x"},
                                                                  {"SLUICE_BOUNCE_MAX", "-1"},
                                                                  {"SLUICE_BOUNCE_MAX", "64kb"},
                                                                  {"SLUICE_BOUNCE_MAX", "99999999999999999999"},
                                                                  {"SLUICE_BOUNCE_MAX", "999999999999999999g"},
                                                                  {"SLUICE_LOG", "loud"},
                                                                  {"SLUICE_RANK", "first"},
                                                                  {"SLUICE_RANK", "1x"}};
  for (const auto& [name, value] : cases) {
    const std::string what = complaint(name, value);
    EXPECT_NE(what.find(std::string(name) + "=" + value + ": expected "), std::string::npos)
        << name << "=" << value << ": " << what;
  }
}

TEST(Env, an_empty_value_is_an_error_where_a_number_is_expected) {
  EXPECT_NE(complaint("SLUICE_WARN", ""), "");
  EXPECT_EQ(complaint("SLUICE_BACKENDS", ""), "");
}

TEST(Env, an_unknown_variable_is_an_error_that_names_it) {
  EXPECT_NE(complaint("SLUICE_TIMOUT", "60s").find("SLUICE_TIMOUT"), std::string::npos);
  EXPECT_NE(complaint("SLUICE_", "1").find("SLUICE_"), std::string::npos);
}

TEST(Env, variables_of_our_build_are_passed_over) {
  EXPECT_TRUE(passes_over({{"SLUICE_SOURCE_Kokkos", "/x"},
                           {"SLUICE_ENABLE_HIP", "OFF"},
                           {"SLUICE_UNITY_BUILD", "ON"},
                           {"SLUICE_NVCC", "/y/nvcc"},
                           {"SLUICE_HIP_ARCHITECTURES", "gfx90a"},
                           {"SLUICE_LIBFABRIC_DIR", "/z"}}));
}

TEST(Env, what_kubernetes_sets_for_a_service_of_our_name_is_passed_over) {
  EXPECT_TRUE(passes_over({{"SLUICE_SERVICE_HOST", "10.96.0.7"},
                           {"SLUICE_SERVICE_PORT", "80"},
                           {"SLUICE_SERVICE_PORT_HTTP", "80"},
                           {"SLUICE_PORT", "tcp://10.96.0.7:80"},
                           {"SLUICE_PORT_80_TCP", "tcp://10.96.0.7:80"},
                           {"SLUICE_PORT_80_TCP_PROTO", "tcp"},
                           {"SLUICE_PORT_80_TCP_PORT", "80"},
                           {"SLUICE_PORT_80_TCP_ADDR", "10.96.0.7"},
                           {"SLUICE_WEB_SERVICE_HOST", "fd00::7"},
                           {"SLUICE_WEB_PORT_53_UDP", "udp://[fd00::7]:53"}}));
}

TEST(Env, a_name_like_those_of_kubernetes_is_an_error_with_another_value) {
  for (const auto& [name, value] : std::vector<std::pair<const char*, const char*>>{{"SLUICE_PORT", "fast"},
                                                                                    {"SLUICE_PORT", ""},
                                                                                    {"SLUICE_SERVICE_HOST", "auto"},
                                                                                    {"SLUICE_PORT_RANGE", "1-2"},
                                                                                    {"SLUICE_SERVICE", "80"},
                                                                                    {"SLUICE_REPORT_FDS", "8"},
                                                                                    {"SLUICE_PORTS", "80"}})
    EXPECT_NE(complaint(name, value).find(name), std::string::npos) << name << "=" << value;
}

TEST(Env, root_dir_and_user_variables_are_left_alone) {
  const Set set{{"SLUICE_ROOT", "/x"}, {"SLUICE_DIR", "/y"}, {"SLUICE_USER_ANYTHING", "z"}, {"SLUICEGATE", "open"}};
  EXPECT_EQ(complaint(), "");
}

TEST(Env, forgetting_the_launcher_leaves_the_rest) {
  const Set set{{"SLUICE_RANK", "2"}, {"SLUICE_JOB", "abc"}, {"SLUICE_WARN", "7s"}};
  sluice::base::forget_launcher();
  const Env env = read_env();
  EXPECT_EQ(env.rank, -1);
  EXPECT_EQ(env.job, "");
  EXPECT_EQ(env.warn, 7s);
}

TEST(Env, every_variable_says_what_it_means) {
  for (const sluice::base::Variable& variable : sluice::base::variables()) {
    EXPECT_TRUE(std::string(variable.name).starts_with("SLUICE_"));
    EXPECT_FALSE(std::string(variable.meaning).empty()) << variable.name;
    EXPECT_FALSE(std::string(variable.kind).empty()) << variable.name;
  }
}

}  // namespace
