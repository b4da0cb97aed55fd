// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/measure.hpp"

#include <sluice/run.hpp>

#include <gtest/gtest.h>

#include <vector>

namespace bench {
namespace {

/// Takes a given time per unit, and remembers the units that were requested.
class Pretender : public Contender {
 public:
  Pretender(double unit_ns, std::vector<long>& counts, long period)
      : unit_ns_(unit_ns), counts_(counts), period_(period) {}
  double run(long count) override {
    counts_.push_back(count);
    return unit_ns_ * static_cast<double>(count);
  }
  long period() const override { return period_; }

 private:
  const double unit_ns_;
  std::vector<long>& counts_;
  const long period_;
};

struct Measured {
  Measurement measurement;
  std::vector<long> counts;  // of the samples
};

Measured measure_pretender(double unit_ns, const Budget& budget, long period = 1) {
  Measured result;
  const int code = sluice::run_threads(1, [&](sluice::Context& context) {
    const auto collectives = apps::make_sluice_collectives(context);
    Team team{0, 1, *collectives};
    Entry entry{"sluice", "ours", std::make_unique<Pretender>(unit_ns, result.counts, period)};
    result.measurement = measure(team, std::span(&entry, 1), budget);
  });
  EXPECT_EQ(code, 0);
  std::size_t samples = 0;
  for (const auto& round : result.measurement.timings.front().rounds) samples += round.size();
  result.counts.erase(result.counts.begin(), result.counts.end() - static_cast<std::ptrdiff_t>(samples));
  return result;
}

TEST(Measure, runs_as_many_units_a_round_as_were_asked_for) {
  const Measured few = measure_pretender(10, {.rounds = 3, .iterations = 7});
  EXPECT_EQ(few.measurement.batch, 7);
  EXPECT_EQ(few.counts, (std::vector<long>{7, 7, 7}));
  const Measured fixed = measure_pretender(10, {.rounds = 1, .iterations = 7, .batch = 200});
  EXPECT_EQ(fixed.counts, (std::vector<long>{7}));
  const Measured long_ones = measure_pretender(1e6, {.rounds = 1, .iterations = 3});
  EXPECT_EQ(long_ones.counts, (std::vector<long>{1, 1, 1}));
}

TEST(Measure, fills_a_round_with_fewer_units_where_they_take_long) {
  const Measured slow = measure_pretender(1e6, {.rounds = 1, .batch = 200});
  EXPECT_EQ(slow.measurement.batch, 10);
  EXPECT_EQ(slow.counts, (std::vector<long>{10, 10, 10}));
  EXPECT_EQ(measure_pretender(1e8, {.rounds = 1, .batch = 200}).measurement.batch, 1);
  EXPECT_EQ(measure_pretender(1e3, {.rounds = 1, .batch = 200}).measurement.batch, 200);
}

/// The measured part of a unit is next to nothing.
class Slow : public Contender {
 public:
  explicit Slow(long& units) : units_(units) {}
  double run(long count) override {
    units_ += count;
    for (const double end = now_ns() + 3e5 * static_cast<double>(count); now_ns() < end;) continue;
    return 1;
  }

 private:
  long& units_;
};

TEST(Measure, estimates_no_longer_than_it_must) {
  long units = 0;
  const int code = sluice::run_threads(1, [&](sluice::Context& context) {
    const auto collectives = apps::make_sluice_collectives(context);
    Team team{0, 1, *collectives};
    Slow slow(units);
    estimate(team, slow);
  });
  EXPECT_EQ(code, 0);
  EXPECT_LE(units, 3 * (1 + 4 + 16));
}

TEST(Measure, a_sample_has_a_multiple_of_the_units_after_which_all_is_as_before) {
  EXPECT_EQ(measure_pretender(1e6, {.rounds = 1}, 2).measurement.batch, 2);
  EXPECT_EQ(measure_pretender(1e6, {.rounds = 1, .batch = 3}, 2).measurement.batch, 4);
  EXPECT_EQ(measure_pretender(10, {.rounds = 1}, 3).measurement.batch, 102);
  EXPECT_EQ(measure_pretender(1e6, {.rounds = 1, .iterations = 1}, 2).counts, (std::vector<long>{2}));
  EXPECT_EQ(measure_pretender(10, {.rounds = 1, .iterations = 7}, 2).counts, (std::vector<long>{6}));
}

TEST(Measure, leaves_out_units_that_fill_no_sample) {
  EXPECT_EQ(measure_pretender(10, {.rounds = 1, .iterations = 250}).counts, (std::vector<long>{100, 100}));
}

TEST(Measure, a_sample_of_short_units_is_the_mean_of_many) {
  const Measured measured = measure_pretender(10, {.rounds = 2});
  EXPECT_EQ(measured.measurement.batch, 100);
  for (const auto& round : measured.measurement.timings.front().rounds) EXPECT_DOUBLE_EQ(median(round), 10);
}

}  // namespace
}  // namespace bench
