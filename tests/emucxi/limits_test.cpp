// SPDX-License-Identifier: Apache-2.0
// Limited resources: requests of an endpoint, entries of the trigger list. And flushing, which frees them.
#include "tests/emucxi/rig.hpp"

namespace emucxi::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kNever = 1'000'000;

int flush(const Rig& rig) { return fi_control(&rig.domain->fid, FI_FLUSH_WORK, nullptr); }

std::size_t depth_of(const Rig& rig, const std::string& version) {
  DomainOps* ops = nullptr;
  std::size_t depth = 0;
  const std::string name = kDomainOps + version;
  if (fi_open_ops(&rig.domain->fid, name.c_str(), 0, reinterpret_cast<void**>(&ops), nullptr) != 0) return 0;
  EXPECT_EQ(ops->get_dwq_depth(&rig.domain->fid, &depth), 0);
  return depth;
}

/// A rig with other limits, and something to queue.
struct Limited {
  explicit Limited(const std::string& entries = "512", const std::string& mode = "hang",
                   const std::string& requests = "1024", const std::string& flush_ms = "0")
      : settings{{"EMUCXI_TLES", entries},
                 {"EMUCXI_TLE_LIMIT", mode},
                 {"EMUCXI_TX_SIZE", requests},
                 {"EMUCXI_FLUSH_MS", flush_ms}} {}

  int queue(std::uint64_t threshold, std::uint64_t flags = 0) {
    Deferred put(rig, trigger, threshold, done.get());
    put.write(source, target).set_flags(flags);
    return put.queue();
  }
  int queue_nothing(std::uint64_t threshold) const {
    Deferred put(rig, trigger, threshold, done.get());
    return put.write({}, target).queue();
  }
  int queue_fetch(std::uint64_t threshold, std::uint64_t flags) {
    Deferred fetch(rig, trigger, threshold, done.get());
    fetch.fetch(operand, result, target).set_flags(flags);
    return fetch.queue();
  }

  Setting settings[4];
  Rig rig;
  Handle<fid_cntr> trigger = rig.counter();
  Handle<fid_cntr> done = rig.counter();
  Target target{rig, 64, kKey};
  std::vector<std::byte> source = payload(64, 1);
  std::uint64_t operand = 1, result = 0;
};

// --- requests --------------------------------------------------------------------------------------------------------

TEST(Requests, are_freed_only_when_software_reads_the_queue) {
  Limited some("512", "hang", "4");
  some.rig.read_queue();
  for (int i = 0; i < 4; ++i) ASSERT_EQ(some.queue(1), 0);
  EXPECT_EQ(some.queue(1), -FI_EAGAIN);
  fi_cntr_add(some.trigger.get(), 1);
  ASSERT_TRUE(reaches(some.done, 4));    // all over, without any software
  EXPECT_EQ(some.queue(1), -FI_EAGAIN);  // and yet
  some.rig.read_queue();
  for (int i = 0; i < 4; ++i) ASSERT_EQ(some.queue(1), 0) << i;
  ASSERT_TRUE(reaches(some.done, 8));
  expect_payload(some.target.bytes, 1);
}

TEST(Requests, are_not_needed_for_no_bytes) {
  Limited some("512", "hang", "1");
  for (int i = 0; i < 10; ++i) ASSERT_EQ(some.queue_nothing(1), 0);
  fi_cntr_add(some.trigger.get(), 1);
  EXPECT_TRUE(reaches(some.done, 10));
}

TEST(Requests, are_needed_for_what_begins_at_once) {
  Limited some("512", "hang", "2");
  const std::uint64_t value = 1;
  const auto write = [&] { return fi_inject_write(some.rig.endpoint.get(), &value, 8, some.rig.self, 0, kKey); };
  ASSERT_EQ(write(), 0);
  ASSERT_EQ(write(), 0);
  EXPECT_EQ(write(), -FI_EAGAIN);
  ASSERT_TRUE(reaches(some.rig.writes, 2));
  EXPECT_EQ(write(), -FI_EAGAIN);
  some.rig.read_queue();
  EXPECT_EQ(write(), 0);
}

// --- entries ---------------------------------------------------------------------------------------------------------

TEST(Entries, are_8_fewer_than_there_are_for_every_version_of_the_call) {
  Limited some("100");
  for (const char* const version : {"1", "2", "3", "4", "5", "6"}) EXPECT_EQ(depth_of(some.rig, version), 92U);
  EXPECT_EQ(depth_of(some.rig, "7"), 0U);
  EXPECT_EQ(depth_of(some.rig, ""), 0U);
}

TEST(Entries, beyond_the_limit_work_is_refused_if_so_set) {
  Limited some("12", "enospc");
  for (int i = 0; i < 4; ++i) ASSERT_EQ(some.queue(1), 0);
  EXPECT_EQ(some.queue(1), -FI_ENOSPC);
  fi_cntr_add(some.trigger.get(), 1);
  ASSERT_TRUE(reaches(some.done, 4));
  for (int i = 0; i < 4; ++i) ASSERT_EQ(some.queue(2), 0);
  EXPECT_EQ(some.queue(2), -FI_ENOSPC);
  EXPECT_EQ(flush(some.rig), 0);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(some.queue(2), 0);
}

TEST(Entries, beyond_the_limit_work_never_fires_otherwise) {
  Limited some("12", "hang");
  for (int i = 0; i < 6; ++i) ASSERT_EQ(some.queue(1), 0);
  fi_cntr_add(some.trigger.get(), 1);
  ASSERT_TRUE(reaches(some.done, 4));
  some.rig.barrier();
  expect_counts(some.done, 4);
  EXPECT_EQ(flush(some.rig), 0);
  ASSERT_EQ(some.queue(1), 0);
  EXPECT_TRUE(reaches(some.done, 5));
}

TEST(Entries, work_that_was_refused_holds_no_request) {
  Limited some("9", "enospc", "2");
  ASSERT_EQ(some.queue(kNever), 0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(some.queue(kNever), -FI_ENOSPC);
}

TEST(Entries, writeback_and_delivered_fetches_take_two) {
  Limited some("12", "enospc");
  ASSERT_EQ(some.queue(kNever, kWriteback), 0);
  ASSERT_EQ(some.queue_fetch(kNever, FI_DELIVERY_COMPLETE), 0);
  EXPECT_EQ(some.queue(kNever), -FI_ENOSPC);
  EXPECT_EQ(flush(some.rig), 0);
  ASSERT_EQ(some.queue(kNever), 0);
  ASSERT_EQ(some.queue_fetch(kNever, 0), 0);
  ASSERT_EQ(some.queue(kNever, FI_DELIVERY_COMPLETE), 0);
  ASSERT_EQ(some.queue(kNever), 0);
  EXPECT_EQ(some.queue(kNever), -FI_ENOSPC);
}

// --- flushing --------------------------------------------------------------------------------------------------------

TEST(Flush, cancels_all_work_of_the_domain_and_gives_its_requests_back) {
  Limited some("512", "hang", "4");
  some.rig.read_queue();
  const auto other = some.rig.counter();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(some.queue(1), 0);
  Deferred elsewhere(some.rig, other, 1, some.done.get());
  ASSERT_EQ(elsewhere.write(some.source, some.target).queue(), 0);
  ASSERT_EQ(flush(some.rig), 0);
  fi_cntr_add(some.trigger.get(), 1);
  fi_cntr_add(other.get(), 1);
  some.rig.barrier();
  expect_counts(some.done, 0);
  expect_poison(some.target.bytes);
  fi_cq_data_entry entry{};
  EXPECT_EQ(some.rig.read_queue(entry), -FI_EAGAIN);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(some.queue(1), 0);
  EXPECT_TRUE(reaches(some.done, 4));
}

TEST(Flush, takes_its_time) {
  const Limited some("512", "hang", "1024", "150");
  const auto before = std::chrono::steady_clock::now();
  ASSERT_EQ(flush(some.rig), 0);
  EXPECT_GE(std::chrono::steady_clock::now() - before, 150ms);
}

TEST(Close, of_a_counter_or_endpoint_drops_its_work) {
  Limited some("12", "enospc");
  for (int i = 0; i < 4; ++i) ASSERT_EQ(some.queue(1), 0);
  EXPECT_EQ(some.queue(1), -FI_ENOSPC);
  some.trigger = some.rig.counter();
  for (int i = 0; i < 4; ++i) ASSERT_EQ(some.queue(1), 0);
  some.done = some.rig.counter();
  for (int i = 0; i < 4; ++i) ASSERT_EQ(some.queue(1), 0);
  fi_cntr_add(some.trigger.get(), 1);
  EXPECT_TRUE(reaches(some.done, 4));
}

TEST(Settings, that_are_bad_are_errors) {
  for (const auto& [name, value] :
       {std::pair{"EMUCXI_TLES", "8"}, std::pair{"EMUCXI_TLE_LIMIT", "maybe"}, std::pair{"EMUCXI_TX_SIZE", "0"},
        std::pair{"EMUCXI_MESSAGE", "0"}, std::pair{"EMUCXI_FLUSH_MS", "1s"}, std::pair{"EMUCXI_FAIL_EVERY", "-1"},
        std::pair{"EMUCXI_OVERRUN_AT", "-1"}}) {
    const Setting bad(name, value);
    Info info;
    EXPECT_NE(get_info(good_hints(), info), 0) << name;
  }
}

}  // namespace
}  // namespace emucxi::test
