// SPDX-License-Identifier: Apache-2.0
// The line of an error.
#include <sluice/sluice.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "tests/unit/program.hpp"

namespace {

using sluice::Code;
using sluice::Error;
using sluice::tests::contains;

TEST(ErrorLine, names_ranks_tag_and_epoch) {
  EXPECT_EQ(std::string(Error(Code::timeout, 0, 1, 7, 3, "waited").what()),
            "timeout: waited (rank 0, peer 1, tag 7, epoch 3)");
  EXPECT_EQ(std::string(Error(Code::timeout, -1, -1, 0, 0, "waited (long)").what()), "timeout: waited (long)");
}

TEST(ErrorLine, of_a_report_of_another_error_has_one_bracket) {
  const Error cause(Code::timeout, 0, 1, 7, 3, "waited");
  const Error report(Code::aborted, 0, 2, 9, 0, std::string("its stream had stopped: ") + cause.what());
  EXPECT_EQ(
      std::string(report.what()),
      "aborted: its stream had stopped: timeout: waited (rank 0, peer 2, tag 9; cause: rank 0, peer 1, tag 7, epoch "
      "3)");
  const Error further(Code::aborted, 2, 0, 9, 0, report.what());
  EXPECT_EQ(
      std::string(further.what()),
      "aborted: aborted: its stream had stopped: timeout: waited (rank 2, peer 0, tag 9; cause: rank 0, peer 1, tag "
      "7, epoch 3)");
}

TEST(ErrorLine, does_not_repeat_the_place_of_its_cause) {
  const Error cause(Code::timeout, 0, 1, 7, 3, "waited");
  EXPECT_EQ(std::string(Error(Code::aborted, 0, 1, 7, 3, cause.what()).what()),
            "aborted: timeout: waited (rank 0, peer 1, tag 7, epoch 3)");
}

TEST(ErrorLine, of_an_end_without_a_peer_tells_no_credits) {
  std::string told;
  const int code = sluice::run_threads(1, [&told](sluice::Context& context) {
    const sluice::Memory memory = context.allocate(8);
    sluice::Sender sender = context.sender(0, 1, memory.all());
    try {
      sender.wait_connected(std::chrono::milliseconds(1));
    } catch (const Error& error) {
      told = error.what();
    }
  });
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(contains(told, "enqueued 0 puts, fired 0, not connected (rank 0")) << told;
}

}  // namespace
