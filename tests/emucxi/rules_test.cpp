// SPDX-License-Identifier: Apache-2.0
// Deferred work that is not as it should be: refused when it is queued.
#include "tests/emucxi/rig.hpp"

namespace emucxi::test {
namespace {

constexpr std::uint64_t kHighRate = std::uint64_t{1} << 60;
constexpr std::uint64_t kUnreliable = std::uint64_t{1} << 61;
constexpr std::uint64_t kPcieAtomic = std::uint64_t{1} << 57;

class Rules : public testing::TestWithParam<fi_op_type> {
 protected:
  Rules() {
    switch (GetParam()) {
      case FI_OP_READ: work.read(source, target); break;
      case FI_OP_ATOMIC: work.atomic(operand, target); break;
      case FI_OP_FETCH_ATOMIC: work.fetch(operand, result, target); break;
      case FI_OP_COMPARE_ATOMIC: work.compare(operand, compared, result, target); break;
      default: work.write(source, target);
    }
  }

  Setting flush{"EMUCXI_FLUSH_MS", "0"};
  Rig rig;
  Handle<fid_cntr> trigger = rig.counter();
  Handle<fid_cntr> done = rig.counter();
  Target target{rig, 64, kKey};
  std::vector<std::byte> source = payload(64, 1);
  std::uint64_t operand = 1, compared = 1, result = 0;
  Deferred work{rig, trigger, 1, done.get()};
};

std::string name_of(const testing::TestParamInfo<fi_op_type>& one) {
  switch (one.param) {
    case FI_OP_READ: return "read";
    case FI_OP_ATOMIC: return "amo";
    case FI_OP_FETCH_ATOMIC: return "fetch_amo";
    case FI_OP_COMPARE_ATOMIC: return "compare_amo";
    default: return "write";
  }
}
INSTANTIATE_TEST_SUITE_P(Of, Rules,
                         testing::Values(FI_OP_WRITE, FI_OP_READ, FI_OP_ATOMIC, FI_OP_FETCH_ATOMIC,
                                         FI_OP_COMPARE_ATOMIC),
                         name_of);

TEST_P(Rules, flags_that_are_not_allowed_are_refused_one_by_one) {
  const std::uint64_t flags[] = {FI_INJECT,  FI_FENCE,  FI_REMOTE_CQ_DATA, FI_INJECT_COMPLETE, FI_COMMIT_COMPLETE,
                                 FI_TRIGGER, kHighRate, kUnreliable,       kPcieAtomic};
  for (const std::uint64_t flag : flags) {
    work.set_flags(flag);
    EXPECT_EQ(work.queue(), -FI_EINVAL) << std::hex << flag;
  }
}

TEST_P(Rules, flags_that_are_allowed_are_taken_one_by_one) {
  const std::uint64_t flags[] = {
      0, FI_MORE, FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE, FI_TRANSMIT_COMPLETE, kWriteback};
  for (const std::uint64_t flag : flags) {
    work.set_flags(flag);
    EXPECT_EQ(work.queue(), 0) << std::hex << flag;
  }
  EXPECT_EQ(fi_control(&rig.domain->fid, FI_FLUSH_WORK, nullptr), 0);
}

TEST_P(Rules, needs_a_trigger) {
  work.work.triggering_cntr = nullptr;
  EXPECT_EQ(work.queue(), -FI_EINVAL);
}

TEST_P(Rules, cannot_be_cancelled_alone) {
  EXPECT_EQ(work.queue(), 0);
  EXPECT_EQ(fi_control(&rig.domain->fid, FI_CANCEL_WORK, &work.work), -FI_EINVAL);
  fi_cntr_add(trigger.get(), 1);
  EXPECT_TRUE(reaches(done, 1));
}

TEST_P(Rules, the_endpoint_has_the_domains_traffic_class) {
  rig.info->tx_attr->tclass = FI_TC_LOW_LATENCY;
  fid_ep* opened = nullptr;
  ASSERT_EQ(fi_endpoint(rig.domain.get(), rig.info.get(), &opened, nullptr), 0);
  const Handle<fid_ep> other(opened);
  ASSERT_EQ(fi_ep_bind(opened, &rig.queue->fid, FI_TRANSMIT | FI_RECV), 0);
  ASSERT_EQ(fi_ep_bind(opened, &rig.addresses->fid, 0), 0);
  work.rma.ep = work.atomic_op.ep = work.fetch_op.ep = work.compare_op.ep = opened;
  EXPECT_EQ(work.queue(), -FI_EOPBADSTATE);  // not enabled
  ASSERT_EQ(fi_enable(opened), 0);
  EXPECT_EQ(work.queue(), -FI_EINVAL);
}

class Shapes : public testing::Test {
 protected:
  Setting flush{"EMUCXI_FLUSH_MS", "0"};
  Rig rig;
  Handle<fid_cntr> trigger = rig.counter();
  Handle<fid_cntr> done = rig.counter();
  Target target{rig, 64, kKey};
  std::vector<std::byte> source = payload(64, 1);
  Deferred work{rig, trigger, 1, done.get()};
};

TEST_F(Shapes, of_writes_and_reads) {
  const auto status = [&](auto change) {
    Deferred one(rig, trigger, 1, done.get());
    one.write(source, target);
    change(one);
    return one.queue();
  };
  EXPECT_EQ(status([](Deferred& one) { one.rma.msg.msg_iov = nullptr; }), -FI_EINVAL);
  EXPECT_EQ(status([](Deferred& one) { one.rma.msg.iov_count = 2; }), -FI_EINVAL);
  EXPECT_EQ(status([](Deferred& one) { one.rma.msg.rma_iov = nullptr; }), -FI_EINVAL);
  EXPECT_EQ(status([](Deferred& one) { one.rma.msg.rma_iov_count = 0; }), -FI_EINVAL);
  EXPECT_EQ(status([](Deferred& one) { one.rma.msg.rma_iov_count = 2; }), -FI_EINVAL);
  EXPECT_EQ(status([](Deferred& one) { one.local.iov_base = nullptr; }), -FI_EINVAL);
  EXPECT_EQ(status([](Deferred& one) { one.local.iov_len = std::size_t{1} << 32; }), -FI_EMSGSIZE);
  EXPECT_EQ(status([](Deferred& one) { one.rma.msg.addr = 12345; }), -FI_EINVAL);
  EXPECT_EQ(status([](Deferred& one) { one.rma.ep = nullptr; }), -FI_EINVAL);
  EXPECT_EQ(status([](Deferred& one) { one.local.iov_len = (std::size_t{1} << 32) - 1; }), 0);  // never fires
  EXPECT_EQ(status([](Deferred& one) { one.rma.msg.iov_count = 0; }), 0);
  EXPECT_EQ(fi_control(&rig.domain->fid, FI_FLUSH_WORK, nullptr), 0);
}

TEST_F(Shapes, of_atomics) {
  std::uint64_t operand = 1, result = 0;
  const auto status = [&](auto change) {
    Deferred one(rig, trigger, 1, done.get());
    one.fetch(operand, result, target);
    change(one.fetch_op);
    return one.queue();
  };
  EXPECT_EQ(status([](fi_op_fetch_atomic& one) { one.msg.iov_count = 0; }), -FI_EINVAL);
  EXPECT_EQ(status([](fi_op_fetch_atomic& one) { one.msg.iov_count = 2; }), -FI_EINVAL);
  EXPECT_EQ(status([](fi_op_fetch_atomic& one) { one.msg.rma_iov_count = 2; }), -FI_EINVAL);
  EXPECT_EQ(status([](fi_op_fetch_atomic& one) { one.fetch.iov_count = 0; }), -FI_EINVAL);
  EXPECT_EQ(status([](fi_op_fetch_atomic& one) { one.msg.datatype = FI_UINT32; }), -FI_EOPNOTSUPP);
}

TEST_F(Shapes, counter_changes_have_no_completion_counter) {
  work.change(FI_OP_CNTR_ADD, done.get(), 1);
  EXPECT_EQ(work.queue(), -FI_EINVAL);
  work.change(FI_OP_CNTR_SET, done.get(), 1);
  EXPECT_EQ(work.queue(), -FI_EINVAL);
  work.work.completion_cntr = nullptr;
  work.counter_op.cntr = nullptr;
  EXPECT_EQ(work.queue(), -FI_EINVAL);
}

TEST_F(Shapes, receives_have_threshold_0_and_are_not_emulated) {
  fi_op_msg message{};
  message.ep = rig.endpoint.get();
  work.work.op_type = FI_OP_RECV;
  work.work.op.msg = &message;
  work.work.threshold = 5;
  EXPECT_EQ(work.queue(), -FI_EINVAL);
  fi_op_tagged tagged{};
  tagged.ep = rig.endpoint.get();
  work.work.op_type = FI_OP_TRECV;
  work.work.op.tagged = &tagged;
  EXPECT_EQ(work.queue(), -FI_EINVAL);
  work.work.threshold = 0;
  EXPECT_EQ(work.queue(), -FI_ENOSYS);
}

TEST_F(Shapes, sends_are_never_injected_and_are_not_emulated) {
  fi_op_msg message{};
  message.ep = rig.endpoint.get();
  message.flags = FI_INJECT | FI_COMPLETION;
  work.work.op_type = FI_OP_SEND;
  work.work.op.msg = &message;
  EXPECT_EQ(work.queue(), -FI_EINVAL);
  message.flags = 0;
  EXPECT_EQ(work.queue(), -FI_ENOSYS);
  fi_op_tagged tagged{};
  tagged.ep = rig.endpoint.get();
  tagged.flags = FI_INJECT;
  work.work.op_type = FI_OP_TSEND;
  work.work.op.tagged = &tagged;
  EXPECT_EQ(work.queue(), -FI_EINVAL);
}

}  // namespace
}  // namespace emucxi::test
