// SPDX-License-Identifier: Apache-2.0
// Correct deferred work: it runs when its counter reaches the threshold, and counts. Tests that plain `sockets` passes
// too run on both, so that the emulation is not tested against itself alone.
#include <algorithm>

#include "tests/emucxi/rig.hpp"

namespace emucxi::test {
namespace {

constexpr std::size_t kBytes = 8192;

class Work : public testing::TestWithParam<std::string> {
 protected:
  Rig rig{GetParam()};
  Handle<fid_cntr> trigger = rig.counter();
  Handle<fid_cntr> done = rig.counter();
  Handle<fid_cntr> arrived = rig.counter();
};

INSTANTIATE_TEST_SUITE_P(On, Work, testing::Values("emucxi", "sockets"), [](const auto& one) { return one.param; });

TEST_P(Work, write_waits_for_its_threshold) {
  Target target(rig, kBytes, kKey, arrived.get());
  const auto source = payload(kBytes, 1);
  Deferred put(rig, trigger, 3, done.get());
  ASSERT_EQ(put.write(source, target).queue(), 0);
  fi_cntr_add(trigger.get(), 2);
  rig.barrier();
  expect_poison(target.bytes);
  expect_counts(done, 0);
  fi_cntr_add(trigger.get(), 1);
  ASSERT_TRUE(reaches(done, 1) && reaches(arrived, 1));
  expect_payload(target.bytes, 1);
}

TEST_P(Work, a_threshold_that_is_met_already_fires_at_once) {
  Target target(rig, kBytes, kKey, arrived.get());
  fi_cntr_add(trigger.get(), 5);
  const auto source = payload(kBytes, 2);
  Deferred put(rig, trigger, 3, done.get());
  ASSERT_EQ(put.write(source, target).queue(), 0);
  ASSERT_TRUE(reaches(done, 1) && reaches(arrived, 1));
  expect_payload(target.bytes, 2);
}

TEST_P(Work, runs_a_chain_through_the_counters) {
  Target first(rig, kBytes, kKey, arrived.get());
  Target second(rig, kBytes, kKey + 1);
  Handle<fid_cntr> end = rig.counter();
  const auto source = payload(kBytes, 3);
  Deferred put(rig, trigger, 1, done.get());
  Deferred next(rig, arrived, 1, end.get());
  Handle<fid_cntr> last = rig.counter();
  Deferred bump(rig, end, 1);
  ASSERT_EQ(bump.change(FI_OP_CNTR_ADD, last.get(), 5).queue(), 0);
  ASSERT_EQ(next.write(first.bytes, second).queue(), 0);
  ASSERT_EQ(put.write(source, first).queue(), 0);
  rig.barrier();
  expect_poison(first.bytes);
  fi_cntr_add(trigger.get(), 1);
  ASSERT_TRUE(reaches(last, 5));
  expect_payload(first.bytes, 3);
  expect_payload(second.bytes, 3);
  expect_counts(end, 1);
}

TEST_P(Work, writes_of_no_bytes_count_at_the_target) {
  Target target(rig, 64, kKey, arrived.get());
  Deferred put(rig, trigger, 1, done.get());
  ASSERT_EQ(put.write({}, target).queue(), 0);
  fi_cntr_add(trigger.get(), 1);
  ASSERT_TRUE(reaches(done, 1) && reaches(arrived, 1));
  expect_poison(target.bytes);
}

TEST_P(Work, addresses_are_offsets) {
  Target target(rig, 128, kKey, arrived.get());
  const auto source = payload(32, 4);
  Deferred put(rig, trigger, 1, done.get());
  ASSERT_EQ(put.write(source, target, 64).queue(), 0);
  fi_cntr_add(trigger.get(), 1);
  ASSERT_TRUE(reaches(arrived, 1));
  const std::span all = target.bytes;
  expect_payload(all.subspan(64, 32), 4);
  expect_poison(all.first(64));
  expect_poison(all.last(32));
}

TEST_P(Work, counters_are_added_to_and_set) {
  for (const fi_op_type how : {FI_OP_CNTR_ADD, FI_OP_CNTR_SET}) {
    const Handle<fid_cntr> fired = rig.counter();
    const Handle<fid_cntr> changed = rig.counter();
    fi_cntr_add(changed.get(), 1);
    Deferred change(rig, fired, 1234);
    ASSERT_EQ(change.change(how, changed.get(), 123456).queue(), 0);
    fi_cntr_add(fired.get(), 1233);
    expect_counts(changed, 1);
    fi_cntr_add(fired.get(), 1);
    EXPECT_TRUE(reaches(changed, 123456));
    expect_counts(changed, how == FI_OP_CNTR_ADD ? 123457 : 123456);
  }
}

TEST_P(Work, counters_count) {
  expect_counts(trigger, 0);
  fi_cntr_add(trigger.get(), 10);
  expect_counts(trigger, 10);
  fi_cntr_set(trigger.get(), 3);
  expect_counts(trigger, 3);
  fi_cntr_adderr(trigger.get(), 2);
  expect_counts(trigger, 3, 2);
  fi_cntr_seterr(trigger.get(), 0);
  fi_cntr_set(trigger.get(), 0);
  expect_counts(trigger, 0, 0);
}

// --- with and without an entry in the completion queue ---------------------------------------------------------------

class Events : public testing::TestWithParam<bool> {
 protected:
  /// Fires `work`; its entry is there, or none is.
  void fire_and_expect(Deferred& work, std::uint64_t kind) {
    work.set_flags(GetParam() ? FI_COMPLETION : 0);
    ASSERT_EQ(work.queue(), 0);
    fi_cntr_add(trigger.get(), 1);
    ASSERT_TRUE(reaches(done, 1));
    fi_cq_data_entry entry{};
    const ssize_t read = rig.read_queue(entry);
    ASSERT_EQ(read, GetParam() ? 1 : -FI_EAGAIN);
    if (!GetParam()) return;
    EXPECT_EQ(entry.op_context, &work.work.context);
    EXPECT_EQ(entry.flags, kind);
  }

  Rig rig;
  Handle<fid_cntr> trigger = rig.counter();
  Handle<fid_cntr> done = rig.counter();
  Target target{rig, kBytes, kKey};
  std::uint64_t operand = 7;
  std::uint64_t result = 0;
};

INSTANTIATE_TEST_SUITE_P(Asked, Events, testing::Bool(), [](const auto& one) { return one.param ? "yes" : "no"; });

TEST_P(Events, rma_write) {
  const auto source = payload(kBytes, 5);
  Deferred work(rig, trigger, 1, done.get());
  fire_and_expect(work.write(source, target), FI_RMA | FI_WRITE);
  expect_payload(target.bytes, 5);
}

TEST_P(Events, rma_read) {
  Target moved(rig, kBytes, kKey + 1);
  std::ranges::copy(payload(kBytes, 6), moved.bytes.begin());
  std::vector<std::byte> here(kBytes);
  Deferred work(rig, trigger, 1, done.get());
  fire_and_expect(work.read(here, moved), FI_RMA | FI_READ);
  expect_payload(here, 6);
}

TEST_P(Events, rma_write_of_no_bytes) {
  Deferred work(rig, trigger, 1, done.get());
  fire_and_expect(work.write({}, target), FI_RMA | FI_WRITE);
}

TEST_P(Events, amo) {
  target.word() = 100;
  Deferred work(rig, trigger, 1, done.get());
  fire_and_expect(work.atomic(operand, target), FI_ATOMIC | FI_WRITE);
  EXPECT_EQ(target.word(), 107U);
}

TEST_P(Events, fetch_amo) {
  target.word() = 100;
  Deferred work(rig, trigger, 1, done.get());
  fire_and_expect(work.fetch(operand, result, target), FI_ATOMIC | FI_READ);
  EXPECT_EQ(target.word(), 107U);
  EXPECT_EQ(result, 100U);
}

TEST_P(Events, compare_amo) {
  target.word() = 100;
  std::uint64_t compared = 100;
  Deferred work(rig, trigger, 1, done.get());
  fire_and_expect(work.compare(operand, compared, result, target), FI_ATOMIC | FI_READ);
  EXPECT_EQ(target.word(), 7U);
  EXPECT_EQ(result, 100U);
}

// --- what only the emulation does ------------------------------------------------------------------------------------

TEST(Chain, ends_with_an_atomic_that_a_region_counts) {
  Rig rig;
  const auto trigger = rig.counter(), done = rig.counter(), arrived = rig.counter(), signalled = rig.counter();
  Target target(rig, kBytes, kKey, arrived.get());
  Target signal(rig, sizeof(std::uint64_t), kKey + 1, signalled.get());
  signal.word() = 0;
  std::uint64_t one = 1;
  const auto source = payload(kBytes, 7);
  Deferred put(rig, trigger, 1, done.get());
  Deferred raise(rig, done, 1);
  ASSERT_EQ(put.write(source, target).queue(), 0);
  ASSERT_EQ(raise.atomic(one, signal).queue(), 0);
  fi_cntr_add(trigger.get(), 1);
  ASSERT_TRUE(reaches(signalled, 1));
  EXPECT_EQ(signal.word(), 1U);
  expect_payload(target.bytes, 7);
  expect_counts(arrived, 1);
}

TEST(Order, of_thresholds_and_then_of_queueing) {
  Rig rig;
  const auto trigger = rig.counter(), done = rig.counter();
  Target target(rig, 64, kKey);
  const auto first = payload(64, 1), second = payload(64, 2), third = payload(64, 3);
  Deferred at_two(rig, trigger, 2, done.get()), at_one(rig, trigger, 1, done.get()),
      at_two_again(rig, trigger, 2, done.get());
  ASSERT_EQ(at_two.write(second, target).queue(), 0);
  ASSERT_EQ(at_two_again.write(third, target).queue(), 0);
  ASSERT_EQ(at_one.write(first, target).queue(), 0);
  fi_cntr_add(trigger.get(), 2);
  ASSERT_TRUE(reaches(done, 3));
  expect_payload(target.bytes, 3);  // the last word
}

TEST(Deferred, structures_may_be_used_again_when_queued) {
  Rig rig;
  const auto trigger = rig.counter(), done = rig.counter(), arrived = rig.counter();
  Target target(rig, kBytes, kKey, arrived.get());
  const auto source = payload(kBytes, 8);
  {
    Deferred put(rig, trigger, 1, done.get());
    ASSERT_EQ(put.write(source, target).queue(), 0);
    put.local = {};
    put.remote = {};
    put.work = {};
  }
  fi_cntr_add(trigger.get(), 1);
  ASSERT_TRUE(reaches(arrived, 1));
  expect_payload(target.bytes, 8);
}

TEST(Deferred, sources_are_read_when_it_fires) {
  Rig rig;
  const auto trigger = rig.counter(), done = rig.counter();
  Target target(rig, kBytes, kKey);
  std::vector<std::byte> source(kBytes);
  Deferred put(rig, trigger, 1, done.get());
  ASSERT_EQ(put.write(source, target).queue(), 0);
  std::ranges::copy(payload(kBytes, 9), source.begin());
  fi_cntr_add(trigger.get(), 1);
  ASSERT_TRUE(reaches(done, 1));
  expect_payload(target.bytes, 9);
}

TEST(Deferred, thresholds_are_of_48_bits) {
  Rig rig;
  const auto trigger = rig.counter(), changed = rig.counter();
  const std::uint64_t far = (std::uint64_t{1} << 40) + 1;  // 1, if cut to 32 bits
  Deferred change(rig, trigger, far);
  ASSERT_EQ(change.change(FI_OP_CNTR_ADD, changed.get(), 1).queue(), 0);
  fi_cntr_add(trigger.get(), far - 1);
  expect_counts(changed, 0);
  fi_cntr_add(trigger.get(), 1);
  expect_counts(changed, 1);
}

}  // namespace
}  // namespace emucxi::test
