// SPDX-License-Identifier: Apache-2.0
// Operations that fail: they move nothing, are counted as failures, and what waits for them fires all the same.
#include "tests/emucxi/rig.hpp"

namespace emucxi::test {
namespace {

TEST(Failure, counts_and_is_reported_and_moves_nothing) {
  const Setting every("EMUCXI_FAIL_EVERY", "1");
  Rig rig;
  const auto trigger = rig.counter(), done = rig.counter(), arrived = rig.counter();
  Target target(rig, 64, kKey, arrived.get());
  const auto source = payload(64, 1);
  Deferred put(rig, trigger, 1, done.get());
  ASSERT_EQ(put.write(source, target).queue(), 0);
  fi_cntr_add(trigger.get(), 1);
  expect_counts(done, 0, 1);
  expect_counts(arrived, 0);
  expect_poison(target.bytes);

  fi_cq_data_entry entry{};
  fi_cq_err_entry error{};
  ASSERT_EQ(rig.read_queue(entry), -FI_EAVAIL);
  ASSERT_EQ(fi_cq_readerr(rig.queue.get(), &error, 0), 1);
  EXPECT_EQ(error.err, FI_EIO);
  EXPECT_EQ(error.op_context, &put.work.context);
  EXPECT_EQ(fi_cq_readerr(rig.queue.get(), &error, 0), -FI_EAGAIN);
  EXPECT_EQ(rig.read_queue(entry), -FI_EAGAIN);
}

TEST(Failure, fires_what_waits_for_it) {
  const Setting every("EMUCXI_FAIL_EVERY", "2");
  Rig rig;
  const auto trigger = rig.counter(), done = rig.counter(), end = rig.counter();
  Target target(rig, 128, kKey);
  const auto source = payload(64, 1);
  Deferred good(rig, trigger, 1, done.get()), bad(rig, trigger, 1, done.get()), next(rig, done, 2);
  ASSERT_EQ(next.change(FI_OP_CNTR_ADD, end.get(), 1).queue(), 0);
  ASSERT_EQ(good.write(source, target).queue(), 0);
  ASSERT_EQ(bad.write(source, target, 64).queue(), 0);
  fi_cntr_add(trigger.get(), 1);
  ASSERT_TRUE(reaches(end, 1));
  expect_counts(done, 1, 1);  // their sum has reached 2
  expect_payload(std::span(target.bytes).first(64), 1);
  expect_poison(std::span(target.bytes).last(64));
}

TEST(Failure, of_a_program_counts_towards_thresholds) {
  Rig rig;
  const auto trigger = rig.counter(), end = rig.counter();
  Deferred next(rig, trigger, 3);
  ASSERT_EQ(next.change(FI_OP_CNTR_ADD, end.get(), 1).queue(), 0);
  fi_cntr_add(trigger.get(), 1);
  fi_cntr_adderr(trigger.get(), 1);
  expect_counts(end, 0);
  fi_cntr_adderr(trigger.get(), 1);
  expect_counts(end, 1);
}

TEST(Failure, of_the_network_is_one_too) {
  Rig rig;
  const auto trigger = rig.counter(), done = rig.counter();
  const Target target(rig, 64, kKey);
  const auto source = payload(64, 1);
  Deferred no_such_key(rig, trigger, 1, done.get()), beyond(rig, trigger, 1, done.get());
  ASSERT_EQ(no_such_key.write(source, target).to(rig.self, kKey + 1).queue(), 0);
  ASSERT_EQ(beyond.write(source, target, 32).queue(), 0);
  fi_cntr_add(trigger.get(), 1);
  ASSERT_TRUE(eventually([&] { return fi_cntr_readerr(done.get()) == 2; }));
  expect_counts(done, 0, 2);
  expect_poison(target.bytes);
  for (int i = 0; i < 2; ++i) {
    fi_cq_err_entry error{};
    ASSERT_EQ(fi_cq_readerr(rig.queue.get(), &error, 0), 1);
    EXPECT_NE(error.err, 0);
  }
}

TEST(Failure, of_what_begins_at_once_counts_on_the_endpoints_counter) {
  const Setting every("EMUCXI_FAIL_EVERY", "1");
  Rig rig;
  const Target target(rig, 64, kKey);
  const std::uint64_t value = 1;
  ASSERT_EQ(fi_write(rig.endpoint.get(), &value, 8, nullptr, rig.self, 0, kKey, nullptr), 0);
  expect_counts(rig.writes, 0, 1);
  expect_poison(target.bytes);
}

}  // namespace
}  // namespace emucxi::test
