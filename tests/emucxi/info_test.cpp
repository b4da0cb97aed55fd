// SPDX-License-Identifier: Apache-2.0
// Results and refusals of fi_getinfo.
#include <string>

#include "tests/emucxi/rig.hpp"

namespace emucxi::test {
namespace {

/// fi_getinfo for good hints that `change` has changed.
template <class F>
int asked(F change, Info& info) {
  Info hints = good_hints();
  change(*hints);
  return get_info(hints, info);
}
template <class F>
int asked(F change) {
  Info info;
  return asked(change, info);
}

TEST(Information, is_that_of_cxi) {
  Info info;
  ASSERT_EQ(asked([](fi_info&) {}, info), 0);
  EXPECT_STREQ(info->fabric_attr->prov_name, kProvider);
  EXPECT_EQ(info->addr_format, static_cast<std::uint32_t>(FI_ADDR_CXI));
  EXPECT_EQ(info->domain_attr->mr_mode, FI_MR_ENDPOINT | FI_MR_ALLOCATED);
  EXPECT_EQ(info->domain_attr->mr_key_size, 4U);
  EXPECT_EQ(info->domain_attr->data_progress, FI_PROGRESS_MANUAL);
  EXPECT_EQ(info->tx_attr->size, 1024U);
  EXPECT_EQ(info->ep_attr->max_msg_size, 0xffffffffU);
  EXPECT_EQ(info->next, nullptr);
}

TEST(Information, says_what_regions_need) {
  EXPECT_EQ(asked([](fi_info& hints) { hints.domain_attr->mr_mode = 0; }), -FI_ENODATA);
  EXPECT_EQ(asked([](fi_info& hints) { hints.domain_attr->mr_mode = FI_MR_ALLOCATED | FI_MR_LOCAL; }), -FI_ENODATA);
  EXPECT_EQ(asked([](fi_info& hints) { hints.domain_attr->mr_mode = FI_MR_ENDPOINT | FI_MR_LOCAL; }), -FI_ENODATA);
  EXPECT_EQ(asked([](fi_info& hints) { hints.domain_attr->mr_mode = FI_MR_ENDPOINT; }), 0);
  Info info;
  const auto all = [](fi_info& hints) {
    hints.domain_attr->mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL | FI_MR_VIRT_ADDR;
  };
  ASSERT_EQ(asked(all, info), 0);
  EXPECT_EQ(info->domain_attr->mr_mode, FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY);
  EXPECT_EQ(info->domain_attr->mr_key_size, 8U);
}

TEST(Information, gives_events_of_regions_to_who_asks) {
  Info info;
  ASSERT_EQ(asked([](fi_info&) {}, info), 0);
  EXPECT_TRUE(info->caps & FI_RMA_EVENT);
  ASSERT_EQ(asked([](fi_info& hints) { hints.caps &= ~FI_RMA_EVENT; }, info), 0);
  EXPECT_FALSE(info->caps & FI_RMA_EVENT);
  ASSERT_EQ(asked([](fi_info& hints) { hints.caps = 0; }, info), 0);
  EXPECT_FALSE(info->caps & FI_RMA_EVENT);
}

TEST(Information, refuses_what_is_not_there) {
  EXPECT_EQ(asked([](fi_info& hints) { hints.caps |= FI_MSG; }), -FI_ENODATA);
  EXPECT_EQ(asked([](fi_info& hints) { hints.caps |= FI_HMEM; }), -FI_ENODATA);
  EXPECT_EQ(asked([](fi_info& hints) { hints.ep_attr->type = FI_EP_MSG; }), -FI_ENODATA);
  EXPECT_EQ(asked([](fi_info& hints) { hints.addr_format = FI_SOCKADDR_IN; }), -FI_ENODATA);
  EXPECT_EQ(asked([](fi_info& hints) { hints.domain_attr->data_progress = FI_PROGRESS_AUTO; }), -FI_ENODATA);
  EXPECT_EQ(asked([](fi_info& hints) { hints.tx_attr->size = 1025; }), -FI_ENODATA);
  EXPECT_EQ(asked([](fi_info& hints) { hints.tx_attr->iov_limit = 2; }), -FI_ENODATA);
  EXPECT_EQ(asked([](fi_info& hints) { hints.tx_attr->msg_order = FI_ORDER_RAW; }), -FI_ENODATA);
}

TEST(Information, knows_its_domain_as_a_source) {
  const Info hints = good_hints();
  fi_info* found = nullptr;
  const auto with = [&](const char* node, std::uint64_t flags) {
    return fi_getinfo(FI_VERSION(1, 15), node, nullptr, flags, hints.get(), &found);
  };
  EXPECT_NE(with(nullptr, FI_SOURCE), 0);
  EXPECT_NE(with("127.0.0.1", FI_SOURCE), 0);
  ASSERT_EQ(with(kDomain, FI_SOURCE), 0);
  const Info info(found);
}

TEST(Addresses, are_of_8_bytes) {
  const Rig rig;
  char name[64];
  std::size_t bytes = 4;
  EXPECT_EQ(fi_getname(&rig.endpoint->fid, name, &bytes), -FI_ETOOSMALL);
  EXPECT_EQ(bytes, 8U);
  ASSERT_EQ(fi_getname(&rig.endpoint->fid, name, &bytes), 0);
  char same[8];
  ASSERT_EQ(fi_av_lookup(rig.addresses.get(), rig.self, same, &bytes), 0);
  EXPECT_EQ(std::string(same, 8), std::string(name, 8));
}

}  // namespace
}  // namespace emucxi::test
