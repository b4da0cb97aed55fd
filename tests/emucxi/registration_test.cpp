// SPDX-License-Identifier: Apache-2.0
// The steps of registering memory, in the order that cxi demands, and what may be closed when.
#include "tests/emucxi/rig.hpp"

namespace emucxi::test {
namespace {

class Registration : public testing::Test {
 protected:
  /// A region that is registered, and no more.
  Handle<fid_mr> reg(std::uint64_t key = kKey, std::uint64_t flags = FI_RMA_EVENT) {
    fid_mr* made = nullptr;
    EXPECT_EQ(fi_mr_reg(rig.domain.get(), memory, sizeof(memory), FI_REMOTE_WRITE, 0, key, flags, &made, nullptr), 0);
    return Handle<fid_mr>(made);
  }
  int reg_status(std::uint64_t key) {
    fid_mr* made = nullptr;
    const int status = fi_mr_reg(rig.domain.get(), memory, 8, FI_REMOTE_WRITE, 0, key, 0, &made, nullptr);
    if (!status) fi_close(&made->fid);
    return status;
  }
  int bind(const Handle<fid_mr>& region, const Handle<fid_cntr>& to, std::uint64_t flags = FI_REMOTE_WRITE) {
    return fi_mr_bind(region.get(), &to->fid, flags);
  }
  int bind_endpoint(const Handle<fid_mr>& region) const { return fi_mr_bind(region.get(), &rig.endpoint->fid, 0); }

  Rig rig;
  Handle<fid_cntr> counter = rig.counter();
  Handle<fid_cntr> other = rig.counter();
  std::uint64_t memory[8] = {};
};

TEST_F(Registration, in_order) {
  const auto region = reg();
  EXPECT_EQ(fi_mr_key(region.get()), FI_KEY_NOTAVAIL);
  ASSERT_EQ(bind_endpoint(region), 0);
  ASSERT_EQ(bind(region, counter), 0);
  ASSERT_EQ(fi_mr_enable(region.get()), 0);
  EXPECT_EQ(fi_mr_key(region.get()), kKey);
}

TEST_F(Registration, out_of_order_is_refused) {
  const auto region = reg();
  EXPECT_EQ(fi_mr_enable(region.get()), -FI_EINVAL);
  EXPECT_EQ(bind(region, counter), -FI_EINVAL);
  ASSERT_EQ(bind_endpoint(region), 0);
  EXPECT_EQ(bind_endpoint(region), -FI_EINVAL);
  EXPECT_EQ(bind(region, counter, FI_REMOTE_READ), -FI_EINVAL);
  EXPECT_EQ(bind(region, counter, 0), -FI_EINVAL);
  ASSERT_EQ(bind(region, counter), 0);
  EXPECT_EQ(bind(region, other), -FI_EINVAL);  // one a region
  ASSERT_EQ(fi_mr_enable(region.get()), 0);
  EXPECT_EQ(fi_mr_enable(region.get()), -FI_EINVAL);
}

TEST_F(Registration, binds_nothing_once_enabled) {
  const auto region = reg();
  ASSERT_EQ(bind_endpoint(region), 0);
  ASSERT_EQ(fi_mr_enable(region.get()), 0);
  EXPECT_EQ(bind(region, counter), -FI_EINVAL);
}

TEST_F(Registration, needs_an_endpoint_that_is_enabled) {
  fid_ep* opened = nullptr;
  ASSERT_EQ(fi_endpoint(rig.domain.get(), rig.info.get(), &opened, nullptr), 0);
  const Handle<fid_ep> endpoint(opened);
  const auto region = reg();
  EXPECT_EQ(fi_mr_bind(region.get(), &endpoint->fid, 0), -FI_EINVAL);
}

TEST_F(Registration, with_events_needs_an_endpoint_with_events) {
  Info hints = good_hints();
  hints->caps &= ~FI_RMA_EVENT;
  Rig plain(hints);
  fid_mr* made = nullptr;
  ASSERT_EQ(fi_mr_reg(plain.domain.get(), memory, 8, FI_REMOTE_WRITE, 0, kKey, FI_RMA_EVENT, &made, nullptr), 0);
  const Handle<fid_mr> region(made);
  EXPECT_EQ(fi_mr_bind(region.get(), &plain.endpoint->fid, 0), -FI_EINVAL);
}

TEST_F(Registration, is_out_of_reach_until_enabled) {
  const auto region = reg();
  ASSERT_EQ(bind_endpoint(region), 0);
  const std::uint64_t value = 1;
  ASSERT_EQ(fi_write(rig.endpoint.get(), &value, 8, nullptr, rig.self, 0, kKey, nullptr), 0);
  ASSERT_TRUE(eventually([&] { return fi_cntr_readerr(rig.writes.get()) == 1; }));
  EXPECT_EQ(memory[0], 0U);
}

TEST_F(Registration, keys_are_unique_and_of_32_bits) {
  const auto region = reg();
  EXPECT_EQ(reg_status(kKey), -FI_ENOKEY);
  EXPECT_EQ(reg_status(kKey + 1), 0);
  EXPECT_EQ(reg_status(kKey + 1), 0);  // free again
  EXPECT_EQ(reg_status(std::uint64_t{1} << 32), -FI_EKEYREJECTED);
}

TEST_F(Registration, keys_of_the_provider_are_its_own) {
  Info hints = good_hints();
  hints->domain_attr->mr_mode |= FI_MR_PROV_KEY;
  Rig own(hints);
  const auto arrived = own.counter();
  Target one(own, 64, 0, arrived.get()), two(own, 64, 0);
  EXPECT_NE(one.key(), two.key());
  const std::uint64_t value = 5;
  ASSERT_EQ(fi_inject_write(own.endpoint.get(), &value, 8, own.self, 8, one.key()), 0);
  ASSERT_TRUE(reaches(arrived, 1));
  EXPECT_EQ(one.word(1), 5U);
  expect_poison(two.bytes);
}

TEST_F(Registration, counts_writes_and_atomics_of_others) {
  Target target(rig, 64, kKey, counter.get());
  const auto trigger = rig.counter(), done = rig.counter();
  target.word() = 0;
  std::uint64_t operand = 1;
  Deferred add(rig, trigger, 1, done.get());
  ASSERT_EQ(add.atomic(operand, target).queue(), 0);
  const std::uint64_t value = 5;
  ASSERT_EQ(fi_inject_write(rig.endpoint.get(), &value, 8, rig.self, 8, kKey), 0);
  fi_cntr_add(trigger.get(), 1);
  ASSERT_TRUE(reaches(counter, 2));
  rig.barrier();
  expect_counts(counter, 2);
}

TEST_F(Registration, holds_its_counter_and_its_endpoint) {
  auto region = reg();
  ASSERT_EQ(bind_endpoint(region), 0);
  ASSERT_EQ(bind(region, counter), 0);
  EXPECT_EQ(fi_close(&counter->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&rig.endpoint->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&rig.writes->fid), -FI_EBUSY);  // the endpoint's
  EXPECT_EQ(fi_close(&rig.queue->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&rig.addresses->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&rig.domain->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&rig.fabric->fid), -FI_EBUSY);
  region.reset();
  EXPECT_EQ(fi_close(&counter.release()->fid), 0);
}

TEST_F(Registration, an_endpoint_is_enabled_when_all_is_bound) {
  fid_ep* opened = nullptr;
  ASSERT_EQ(fi_endpoint(rig.domain.get(), rig.info.get(), &opened, nullptr), 0);
  const Handle<fid_ep> endpoint(opened);
  EXPECT_EQ(fi_enable(opened), -FI_ENOAV);
  ASSERT_EQ(fi_ep_bind(opened, &rig.addresses->fid, 0), 0);
  EXPECT_EQ(fi_enable(opened), -FI_ENOCQ);
  ASSERT_EQ(fi_ep_bind(opened, &rig.queue->fid, FI_TRANSMIT | FI_RECV), 0);
  ASSERT_EQ(fi_enable(opened), 0);
  EXPECT_EQ(fi_ep_bind(opened, &counter->fid, FI_WRITE), -FI_EOPBADSTATE);
}

}  // namespace
}  // namespace emucxi::test
