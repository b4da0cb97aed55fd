// SPDX-License-Identifier: Apache-2.0
// Operations that begin at once, and the completion queue.
#include <poll.h>

#include <algorithm>

#include "tests/emucxi/rig.hpp"

namespace emucxi::test {
namespace {

class Immediate : public testing::TestWithParam<std::string> {
 protected:
  /// The next entry of the queue.
  fi_cq_data_entry next() {
    fi_cq_data_entry entry{};
    EXPECT_TRUE(eventually([&] { return rig.read_queue(entry) == 1; }));
    return entry;
  }

  Rig rig{good_hints(GetParam()), false};
  Handle<fid_cntr> arrived = rig.counter();
  Target target{rig, 8192, kKey, arrived.get()};
  std::vector<std::byte> source = payload(8192, 1);
  int context = 0;
};

INSTANTIATE_TEST_SUITE_P(On, Immediate, testing::Values("emucxi", "sockets"),
                         [](const auto& one) { return one.param; });

TEST_P(Immediate, write_and_read) {
  ASSERT_EQ(fi_write(rig.endpoint.get(), source.data(), 8192, nullptr, rig.self, 0, kKey, &context), 0);
  EXPECT_EQ(next().op_context, &context);
  ASSERT_TRUE(reaches(arrived, 1) && reaches(rig.writes, 1));
  expect_payload(target.bytes, 1);
  std::vector<std::byte> back(8192);
  ASSERT_EQ(fi_read(rig.endpoint.get(), back.data(), 8192, nullptr, rig.self, 0, kKey, &context), 0);
  EXPECT_EQ(next().op_context, &context);
  expect_payload(back, 1);
}

TEST_P(Immediate, injected_bytes_may_be_overwritten_at_once) {
  std::uint64_t value = 41;
  ASSERT_EQ(fi_inject_write(rig.endpoint.get(), &value, 8, rig.self, 0, kKey), 0);
  value = 0;
  ASSERT_TRUE(reaches(arrived, 1));
  EXPECT_EQ(target.word(), 41U);
}

TEST_P(Immediate, atomics_of_three_kinds) {
  target.word() = 10;
  std::uint64_t operand = 5, compared = 15, result = 0;
  fi_ioc part = {&operand, 1}, expected = {&compared, 1}, old = {&result, 1};
  fi_rma_ioc place = {0, 1, kKey};
  fi_msg_atomic message{};
  message.msg_iov = &part;
  message.iov_count = 1;
  message.addr = rig.self;
  message.rma_iov = &place;
  message.rma_iov_count = 1;
  message.datatype = FI_UINT64;
  message.op = FI_SUM;
  message.context = &context;
  ASSERT_EQ(fi_atomicmsg(rig.endpoint.get(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE), 0);
  next();
  EXPECT_EQ(target.word(), 15U);
  ASSERT_EQ(fi_fetch_atomicmsg(rig.endpoint.get(), &message, &old, nullptr, 1, FI_COMPLETION), 0);
  next();
  EXPECT_EQ(result, 15U);
  EXPECT_EQ(target.word(), 20U);
  message.op = FI_CSWAP;
  ASSERT_EQ(fi_compare_atomicmsg(rig.endpoint.get(), &message, &expected, nullptr, 1, &old, nullptr, 1, FI_COMPLETION),
            0);
  next();
  EXPECT_EQ(result, 20U);
  EXPECT_EQ(target.word(), 20U);  // it was not 15
}

TEST_P(Immediate, the_queues_descriptor_wakes_a_sleeper) {
  int descriptor = -1;
  ASSERT_EQ(fi_control(&rig.queue->fid, FI_GETWAIT, &descriptor), 0);
  fid* const handles[] = {&rig.queue->fid};
  const auto may_sleep = [&] { return fi_trywait(rig.fabric.get(), const_cast<fid**>(handles), 1) == 0; };
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(fi_write(rig.endpoint.get(), source.data(), 8192, nullptr, rig.self, 0, kKey, &context), 0);
    pollfd waited = {descriptor, POLLIN, 0};
    if (may_sleep()) {
      EXPECT_EQ(::poll(&waited, 1, 20'000), 1);
    }
    EXPECT_EQ(next().op_context, &context);
  }
}

// --- what only the emulation does ------------------------------------------------------------------------------------

TEST(Selective, entries_are_for_who_asks) {
  Rig rig;
  const Target target(rig, 64, kKey);
  const std::uint64_t value = 1;
  iovec local = {const_cast<std::uint64_t*>(&value), 8};
  fi_rma_iov remote = {0, 8, kKey};
  fi_msg_rma message{};
  message.msg_iov = &local;
  message.iov_count = 1;
  message.addr = rig.self;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  fi_cq_data_entry entry{};
  ASSERT_EQ(fi_writemsg(rig.endpoint.get(), &message, 0), 0);
  ASSERT_TRUE(reaches(rig.writes, 1));
  EXPECT_EQ(rig.read_queue(entry), -FI_EAGAIN);
  ASSERT_EQ(fi_writemsg(rig.endpoint.get(), &message, FI_COMPLETION), 0);
  ASSERT_TRUE(reaches(rig.writes, 2));
  EXPECT_EQ(rig.read_queue(entry), 1);
  EXPECT_EQ(fi_writemsg(rig.endpoint.get(), &message, FI_REMOTE_CQ_DATA), -FI_EBADFLAGS);
  EXPECT_EQ(fi_readmsg(rig.endpoint.get(), &message, FI_INJECT), -FI_EBADFLAGS);
  std::vector<std::byte> large(193);
  EXPECT_EQ(fi_inject_write(rig.endpoint.get(), large.data(), large.size(), rig.self, 0, kKey), -FI_EMSGSIZE);
}

TEST(Absent, calls_answer_that_there_is_no_such_call) {
  Rig rig;
  char byte = 0;
  EXPECT_EQ(fi_send(rig.endpoint.get(), &byte, 1, nullptr, rig.self, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_recv(rig.endpoint.get(), &byte, 1, nullptr, rig.self, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_writedata(rig.endpoint.get(), &byte, 1, nullptr, 0, rig.self, 0, kKey, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_cancel(&rig.endpoint->fid, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_cntr_wait(rig.writes.get(), 1, 0), -FI_ENOSYS);
  fid_eq* events = nullptr;
  EXPECT_EQ(fi_eq_open(rig.fabric.get(), nullptr, &events, nullptr), -FI_ENOSYS);
  fid_ep* scalable = nullptr;
  EXPECT_EQ(fi_scalable_ep(rig.domain.get(), rig.info.get(), &scalable, nullptr), -FI_ENOSYS);
  fid_ep* alias = nullptr;
  EXPECT_EQ(fi_ep_alias(rig.endpoint.get(), &alias, 0), -FI_ENOSYS);
}

}  // namespace
}  // namespace emucxi::test
