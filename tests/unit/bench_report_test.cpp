// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/report.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

namespace {

bench::Row a_row() {
  bench::Row row;
  row.bench = "latency";
  row.backend = "shm";
  row.stream = "program";
  row.memory = "allocated";
  row.fired_by = "stream";
  row.ranks = 2;
  row.placement = {.launch = "mpi", .cores = {0, 1}, .line_ns = 48.4};
  row.bytes = 8;
  row.depth = 2;
  row.metric = "latency";
  row.unit = "us";
  row.summary = {0.25, 0.2, 0.5, 100};
  row.rounds = 20;
  row.sample = "batch mean of 100";
  row.rivals = {{"floor", "raw, mapped memory", 0.2, 0.8}};
  return row;
}

bench::Report a_report() {
  bench::Report report({"1.2.3", "a cpu", "2026-01-02T03:04:05Z"});
  report.add(a_row());
  return report;
}

TEST(Report, json_has_the_keys_that_scripts_rely_on) {
  const auto rows = nlohmann::json::parse(a_report().to_json());
  ASSERT_EQ(rows.size(), 1U);
  std::set<std::string> keys;
  for (const auto& [key, value] : rows[0].items()) keys.insert(key);
  for (const char* key :
       {"schema", "bench",   "backend", "stream", "memory", "touch", "fired_by", "ranks", "pairs",   "launch",
        "bytes",  "depth",   "window",  "rails",  "metric", "unit",  "p50",      "p10",   "p99",     "samples",
        "rounds", "version", "cpu",     "gpu",    "driver", "date",  "rivals",   "cores", "line_ns", "drifted_rounds"})
    EXPECT_TRUE(keys.contains(key)) << key;
  EXPECT_DOUBLE_EQ(rows[0]["p50"], 0.25);
  EXPECT_EQ(rows[0]["version"], "1.2.3");
  EXPECT_DOUBLE_EQ(rows[0]["rivals"]["floor"]["ratio"], 0.8);
  EXPECT_TRUE(rows[0]["floor_drift"].is_null());
  EXPECT_TRUE(rows[0]["drifted_rounds"].is_null());
  EXPECT_EQ(rows[0]["cores"], (std::vector<int>{0, 1}));
  EXPECT_DOUBLE_EQ(rows[0]["line_ns"], 48.4);
}

TEST(Report, gives_the_interval_of_a_ratio_and_the_verdict_of_a_goal) {
  bench::Row row = a_row();
  row.rivals[0].interval = bench::Interval{0.75, 0.84};
  row.rivals[0].goal = 0.85;
  row.rivals.push_back({"mpi", "send and receive", 0.5, 2});
  bench::Report report({"1.2.3", "a cpu", "2026-01-02T03:04:05Z"});
  report.add(row);
  const auto rivals = nlohmann::json::parse(report.to_json())[0]["rivals"];
  EXPECT_EQ(rivals["floor"]["interval"], (std::vector<double>{0.75, 0.84}));
  EXPECT_EQ(rivals["floor"]["goal"], 0.85);
  EXPECT_EQ(rivals["floor"]["verdict"], "fails");
  for (const char* key : {"interval", "goal", "verdict"}) EXPECT_TRUE(rivals["mpi"][key].is_null()) << key;
  EXPECT_NE(bench::row_text(row).find("0.75-0.84"), std::string::npos);
  EXPECT_NE(bench::row_text(row).find("floor 0.85: fails"), std::string::npos);
  EXPECT_NE(report.to_csv().find("floor_low,floor_high"), std::string::npos);
}

TEST(Report, names_goals_that_are_for_no_row) {
  bench::Report report({"1.2.3", "a cpu", "2026-01-02T03:04:05Z"});
  report.add(a_row());
  EXPECT_TRUE(report.unused(bench::parse_goals("floor=1@8,latency/floor=2")).empty());
  for (const char* goal : {"flor=1", "floor=1@16", "rate/floor=1"}) {
    const auto unused = report.unused(bench::parse_goals(goal));
    ASSERT_EQ(unused.size(), 1U) << goal;
    EXPECT_NE(unused[0].find(goal), std::string::npos);
  }
}

TEST(Report, says_on_which_cores_ranks_run_and_how_far_they_are_apart) {
  bench::Row row = a_row();
  EXPECT_NE(bench::settings_text(row).find("on cores 0, 1, a line takes 48 ns"), std::string::npos);
  row.placement.cores.clear();
  EXPECT_NE(bench::settings_text(row).find("not pinned, a line"), std::string::npos);
  row.placement.too_few_cores = true;
  EXPECT_NE(bench::settings_text(row).find("fewer cores"), std::string::npos);
}

TEST(Report, json_has_null_where_there_is_nothing_to_say) {
  bench::Row row = a_row();
  row.rails.reset();
  bench::Report report({"1.2.3", "a cpu", "2026-01-02T03:04:05Z"});
  report.add(row);
  row.rails = 2;
  row.settings = "4 busy threads";
  report.add(row);
  const auto rows = nlohmann::json::parse(report.to_json());
  EXPECT_TRUE(rows[0]["rails"].is_null());
  EXPECT_TRUE(rows[0]["settings"].is_null());
  EXPECT_EQ(rows[1]["rails"], 2);
  EXPECT_EQ(rows[1]["settings"], "4 busy threads");
  EXPECT_NE(bench::settings_text(row).find("; 4 busy threads"), std::string::npos);
}

TEST(Report, says_what_a_ratio_is_where_there_is_one) {
  bench::Row row = a_row();
  EXPECT_EQ(
      bench::ratio_text(row),
      "# ratio: the rival's time divided by Sluice's, median over rounds; above 1 Sluice is faster; interval: its "
      "95 % confidence interval\n");
  row.rivals.clear();
  EXPECT_EQ(bench::ratio_text(row), "");
}

// The commas that separate fields: not those between quotes.
long separators(const std::string& line) {
  long count = 0;
  bool quoted = false;
  for (const char letter : line) {
    if (letter == '"') quoted = !quoted;
    count += letter == ',' && !quoted ? 1 : 0;
  }
  return count;
}

TEST(Report, csv_has_as_many_fields_in_every_line) {
  const std::string csv = a_report().to_csv();
  const std::size_t end = csv.find('\n');
  const std::string header = csv.substr(0, end);
  const std::string values = csv.substr(end + 1);
  EXPECT_NE(header.find("floor_p50,floor_ratio"), std::string::npos);
  EXPECT_NE(values.find("\"[0,1]\""), std::string::npos);
  EXPECT_EQ(separators(header), separators(values));
}

TEST(Report, csv_of_cup_ecs_has_a_line_for_each_contender_that_ran_round_trips) {
  bench::Row row = a_row();
  row.bytes = 64;
  row.depth = 1;
  row.round_trips = bench::RoundTrips{2000, 0.0125};
  row.rivals = {{"mpi", "", 0.2, 0.8, bench::RoundTrips{1000, 3.5}}, {"ucx", "", 0.2, 0.8}};
  bench::Report report({"1.2.3", "a cpu", "2026-01-02T03:04:05Z"});
  report.add(row);
  report.add(a_row());
  row.depth = 2;
  row.rivals.clear();
  report.add(row);
  EXPECT_EQ(report.to_cup_ecs(),
            "GPU,Backend,Buffering,Iters,Items,Time\n"
            "none,sluice-shm,sb,2000,16,0.0125\n"
            "none,mpi,sb,1000,16,3.5\n"
            "none,sluice-shm,db,2000,16,0.0125\n");
}

TEST(Report, columns_have_ours_and_every_rival) {
  bench::Row row = a_row();
  EXPECT_NE(bench::header_text(row).find("latency (us)"), std::string::npos);
  EXPECT_NE(bench::header_text(row).find("floor"), std::string::npos);
  EXPECT_NE(bench::row_text(row).find("0.250"), std::string::npos);
  EXPECT_EQ(bench::row_text(row).find("drifted"), std::string::npos);
}

TEST(Report, says_how_many_pairs_ran_at_once) {
  bench::Row row = a_row();
  EXPECT_EQ(bench::settings_text(row).find("pair"), std::string::npos);
  row.pairs = 4;
  row.ranks = 8;
  EXPECT_NE(bench::settings_text(row).find("8 ranks by mpi, 4 pairs at once"), std::string::npos);
}

TEST(Report, says_again_what_rows_share_when_it_changes) {
  bench::Report report({"1.2.3", "a cpu", "2026-01-02T03:04:05Z"});
  bench::Row row = a_row();
  testing::internal::CaptureStdout();
  report.add(row);
  report.add(row);
  row.depth = 8;
  report.add(row);
  const std::string text = testing::internal::GetCapturedStdout();
  const auto once = text.find("depth 2");
  EXPECT_EQ(text.find("depth 2", once + 1), std::string::npos) << text;
  EXPECT_NE(text.find("depth 8"), std::string::npos) << text;
}

TEST(Report, a_row_marks_the_rounds_in_which_its_floor_drifted) {
  bench::Row row = a_row();
  row.drifted_rounds = {3, 17};
  EXPECT_NE(bench::row_text(row).find("the floor drifted in 2 of 20 rounds: 3, 17"), std::string::npos);
}

}  // namespace
