// SPDX-License-Identifier: Apache-2.0
// Reports read the text of real channels: a change of its words must be noticed here.
#include "apps/common/description.hpp"

#include <sluice/collectives.hpp>
#include <sluice/run.hpp>
#include <sluice/sluice.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace apps {
namespace {

void expect(const std::string& text, const char* backend, const char* fired_by) {
  const Description description = read_description(text);
  EXPECT_EQ(joined(description.backends), backend) << text;
  EXPECT_EQ(joined(description.fired_by), fired_by) << text;
}

void check_channels(sluice::Context& context, const sluice::ChannelOptions& options) {
  const sluice::Rank peer = 1 - context.rank();
  const sluice::Memory memory = context.allocate(16);
  expect(context.sender(peer, 1, memory.slice(0, 8), options).describe(), "none", "none");  // the peer has no such end
  sluice::Sender out = context.sender(peer, 0, memory.slice(0, 8), options);
  sluice::Receiver in = context.receiver(peer, 0, memory.slice(8, 8), options);
  out.wait_connected();
  in.wait_connected();
  expect(out.describe(), "threads", "stream");
  expect(in.describe(), "threads", "none");
  sluice::Plan plan = context.plan();
  plan.add(out);
  plan.add(in);
  plan.commit({});
  expect(plan.describe(), "threads", "stream");
}

TEST(Description, of_channels_names_backend_and_who_fires) {
  for (const char* name : {"", "halo", "a: b; c", "'", "' 1 x 8 bytes: shm: "}) {
    const auto body = [&](sluice::Context& context) { check_channels(context, {.name = name}); };
    EXPECT_EQ(sluice::run_threads(2, body), 0);
  }
}

TEST(Description, of_no_channel_names_nothing) {
  expect("no neighbours", "none", "none");
  expect("", "none", "none");
}

TEST(Description, of_several_channels_names_all_backends) {
  expect(
      "to rank 1, tag 0, 1 x 8 bytes: shm: maps; fired by the stream\n"
      "to rank 2, tag 0, 1 x 8 bytes: ofi:tcp: writes; fired by the engine\n"
      "from rank 2, tag 0, 1 x 8 bytes: ofi:tcp: lands\n"
      "a start: 1 puts by the stream itself, 1 more behind 1 doorbells; queued as one stream operation",
      "ofi:tcp+shm", "engine+stream");
}

TEST(Description, of_a_collective_names_the_backends_of_its_channels) {
  const auto body = [](sluice::Context& context) {
    sluice::Collective barrier = sluice::barrier(context, "all");
    barrier.wait_connected();
    expect(barrier.describe(), "threads", "stream");
  };
  EXPECT_EQ(sluice::run_threads(2, body), 0);
}

TEST(Description, of_all_ranks_names_the_backends_of_all) {
  const auto body = [](sluice::Context& context) {
    const std::vector<Description> all = {{{"shm"}, {"stream"}}, {}, {{"ofi:tcp", "shm"}, {"engine", "stream"}}};
    const Description& mine = all[static_cast<std::size_t>(context.rank())];
    const Description said = of_all_ranks(mine, *make_sluice_collectives(context), context.size());
    if (context.rank() != 0) return;
    EXPECT_EQ(said.backends, (Names{"ofi:tcp", "shm"}));
    EXPECT_EQ(said.fired_by, (Names{"engine", "stream"}));
  };
  EXPECT_EQ(sluice::run_threads(3, body), 0);
}

}  // namespace
}  // namespace apps
