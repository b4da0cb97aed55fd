// SPDX-License-Identifier: Apache-2.0
// Counters, the page that takes stores, and the word that they are written back to.
#include <unistd.h>

#include <atomic>

#include "tests/emucxi/rig.hpp"

namespace emucxi::test {
namespace {

std::uint64_t written(std::uint64_t success, std::uint64_t failure = 0) { return kWritten | failure << 48 | success; }

class Counter : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(fi_open_ops(&counter->fid, kCounterOps, 0, reinterpret_cast<void**>(&ops), nullptr), 0);
    ASSERT_EQ(ops->get_mmio_addr(&counter->fid, &page, &bytes), 0);
    ASSERT_EQ(ops->set_wb_buffer(&counter->fid, &word, sizeof(word)), 0);
  }

  std::atomic<std::uint64_t>& at(std::size_t offset) {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(static_cast<std::byte*>(page) + offset);
  }
  /// As everybody must: the word is free before it is stored to.
  void store(std::size_t offset, std::uint64_t value) {
    const bool adds = offset == kAddAt || offset == kAddFailureAt;
    ASSERT_TRUE(eventually([&] { return (at(offset).load() == 0) == adds; }));
    at(offset).store(value);
  }

  Rig rig;
  Handle<fid_cntr> counter = rig.counter();
  CounterOps* ops = nullptr;
  void* page = nullptr;
  std::size_t bytes = 0;
  std::atomic<std::uint64_t> word = 0;
};

TEST_F(Counter, page_is_one_page_and_says_8_bytes) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(page) % static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)), 0U);
  EXPECT_EQ(bytes, 8U);
  void* again = nullptr;
  ASSERT_EQ(ops->get_mmio_addr(&counter->fid, &again, &bytes), 0);
  EXPECT_EQ(again, page);
}

TEST_F(Counter, stores_add) {
  store(kAddAt, 50);
  ASSERT_TRUE(reaches(counter, 50));
  store(kAddAt, 3);
  ASSERT_TRUE(reaches(counter, 53));
  store(kAddFailureAt, 2);
  ASSERT_TRUE(eventually([&] { return fi_cntr_readerr(counter.get()) == 2; }));
  expect_counts(counter, 53, 2);
}

TEST_F(Counter, stores_of_0_reset) {
  fi_cntr_add(counter.get(), 9);
  fi_cntr_adderr(counter.get(), 3);
  store(kResetAt, 0);
  ASSERT_TRUE(eventually([&] { return fi_cntr_read(counter.get()) == 0; }));
  expect_counts(counter, 0, 3);
  store(kResetFailureAt, 0);
  ASSERT_TRUE(eventually([&] { return fi_cntr_readerr(counter.get()) == 0; }));
}

TEST_F(Counter, stores_of_anything_else_where_0_resets_do_nothing) {
  fi_cntr_add(counter.get(), 9);
  store(kResetAt, 15);
  store(kResetFailureAt, 15);
  ASSERT_TRUE(eventually([&] { return at(kResetAt) == kNoReset && at(kResetFailureAt) == kNoReset; }));
  expect_counts(counter, 9, 0);
}

TEST_F(Counter, every_paced_store_counts) {
  constexpr std::uint64_t kStores = 500;
  for (std::uint64_t i = 0; i < kStores; ++i) store(kAddAt, 1);
  EXPECT_TRUE(reaches(counter, kStores));
  expect_counts(counter, kStores);
}

TEST_F(Counter, stores_fire_work) {
  const auto done = rig.counter();
  Target target(rig, 64, kKey);
  const auto source = payload(64, 1);
  Deferred put(rig, counter, 2, done.get());
  ASSERT_EQ(put.write(source, target).queue(), 0);
  store(kAddAt, 1);
  ASSERT_TRUE(reaches(counter, 1));
  rig.barrier();
  expect_poison(target.bytes);
  store(kAddAt, 1);
  ASSERT_TRUE(reaches(done, 1));
  expect_payload(target.bytes, 1);
}

TEST_F(Counter, is_written_back_when_asked_and_not_when_it_counts) {
  EXPECT_EQ(word, written(0));  // the buffer was set
  fi_cntr_add(counter.get(), 10);
  EXPECT_EQ(word, written(0));
  fi_cntr_read(counter.get());
  EXPECT_EQ(word, written(10));
  fi_cntr_add(counter.get(), 1);
  EXPECT_EQ(word, written(10));
  fi_cntr_readerr(counter.get());
  EXPECT_EQ(word, written(11));
  fi_cntr_set(counter.get(), 20);
  EXPECT_EQ(word, written(11));
  fi_cntr_set(counter.get(), 0);
  EXPECT_EQ(word, written(0));
}

TEST_F(Counter, is_written_back_when_failure_leaves_0) {
  store(kAddFailureAt, 12);
  ASSERT_TRUE(eventually([&] { return word == written(0, 12); }));
  fi_cntr_adderr(counter.get(), 1);
  EXPECT_EQ(word, written(0, 12));
  store(kResetFailureAt, 0);
  ASSERT_TRUE(eventually([&] { return word == written(0); }));
}

TEST_F(Counter, is_written_back_after_a_reset_by_a_store) {
  fi_cntr_add(counter.get(), 5);
  fi_cntr_read(counter.get());
  EXPECT_EQ(word, written(5));
  store(kResetAt, 0);
  ASSERT_TRUE(eventually([&] { return word == written(0); }));
}

TEST_F(Counter, writeback_moves_to_a_new_buffer) {
  fi_cntr_add(counter.get(), 4);
  std::atomic<std::uint64_t> other = 0;
  EXPECT_EQ(ops->set_wb_buffer(&counter->fid, nullptr, 8), -FI_EINVAL);
  EXPECT_EQ(ops->set_wb_buffer(&counter->fid, &other, 7), -FI_EINVAL);
  ASSERT_EQ(ops->set_wb_buffer(&counter->fid, &other, 8), 0);
  EXPECT_EQ(other, written(4));
  EXPECT_EQ(word, written(0));
}

TEST_F(Counter, work_with_writeback_writes_the_trigger_back_when_its_completion_counts_there) {
  Target target(rig, 64, kKey);
  const auto source = payload(64, 1);
  Deferred put(rig, counter, 1, counter.get());
  put.set_flags(kWriteback);
  ASSERT_EQ(put.write(source, target).queue(), 0);
  fi_cntr_add(counter.get(), 1);
  ASSERT_TRUE(eventually([&] { return word == written(2); }));  // without a read of the counter
  expect_payload(target.bytes, 1);
}

TEST_F(Counter, work_with_writeback_that_completes_elsewhere_writes_nothing_back) {
  Target target(rig, 64, kKey);
  const auto done = rig.counter();
  const auto source = payload(64, 1);
  Deferred put(rig, counter, 1, done.get());
  put.set_flags(kWriteback);
  ASSERT_EQ(put.write(source, target).queue(), 0);
  fi_cntr_add(counter.get(), 1);
  ASSERT_TRUE(reaches(done, 1));
  EXPECT_EQ(word, written(0));
  fi_cntr_add(counter.get(), 1);  // anything that counts there
  EXPECT_EQ(word, written(2));
}

TEST_F(Counter, has_48_and_7_bits) {
  EXPECT_EQ(fi_cntr_add(counter.get(), kSuccessMax + 1), -FI_EINVAL);
  EXPECT_EQ(fi_cntr_set(counter.get(), kSuccessMax + 1), -FI_EINVAL);
  EXPECT_EQ(fi_cntr_adderr(counter.get(), kFailureMax + 1), -FI_EINVAL);
  EXPECT_EQ(fi_cntr_seterr(counter.get(), kFailureMax + 1), -FI_EINVAL);
  EXPECT_EQ(fi_cntr_set(counter.get(), kSuccessMax), 0);
  EXPECT_EQ(fi_cntr_seterr(counter.get(), kFailureMax), 0);
  expect_counts(counter, kSuccessMax, kFailureMax);
  EXPECT_EQ(fi_cntr_add(counter.get(), 2), 0);
  EXPECT_EQ(fi_cntr_adderr(counter.get(), 1), 0);
  expect_counts(counter, 1, 0);
}

TEST_F(Counter, opens_only_as_on_cxi) {
  fid_cntr* opened = nullptr;
  fi_cntr_attr attributes{};
  attributes.wait_obj = FI_WAIT_FD;
  EXPECT_EQ(fi_cntr_open(rig.domain.get(), &attributes, &opened, nullptr), -FI_ENOSYS);
  attributes = {};
  attributes.flags = 1;
  EXPECT_EQ(fi_cntr_open(rig.domain.get(), &attributes, &opened, nullptr), -FI_ENOSYS);
  ASSERT_EQ(fi_cntr_open(rig.domain.get(), nullptr, &opened, nullptr), 0);
  EXPECT_EQ(fi_close(&opened->fid), 0);
  void* other = nullptr;
  EXPECT_EQ(fi_open_ops(&counter->fid, "other_ops", 0, &other, nullptr), -FI_EINVAL);
}

}  // namespace
}  // namespace emucxi::test
