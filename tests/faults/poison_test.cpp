// SPDX-License-Identifier: Apache-2.0
// Poison must stay in the words of a failed channel, for streams that look at nothing else.
#include "tests/conformance/cases.hpp"
#include "tests/faults/wrapped.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

TEST(Poison, is_repeated_when_a_late_signal_has_overwritten_it) {
  const Case one{.ground = {"posted", "posted"}};
  run_peers(one.peers(), [&](Context& context) {
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      const Sender sender = context.sender(1, kTag, buffer.all());
      expect_reported(context, Code::aborted);
      return board().await(kGo, 1);
    }
    Receiver receiver = context.receiver(0, kTag, buffer.all());
    receiver.wait_connected();
    context.abort("as this test wants it");
    const auto poisoned = [] { return base::reached(newest_signal(), base::kPoison); };
    for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
      expect_within(5s, poisoned);
      newest_signal().value.store(epoch);  // as a put does that was under way
    }
    expect_within(5s, poisoned);
    board().set(kGo, 1);
  });
}

}  // namespace
