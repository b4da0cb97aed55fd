// SPDX-License-Identifier: Apache-2.0
// The bench of stream MPI in a process without MPI.
#include "apps/bench/benches.hpp"
#include "apps/bench/ours/stream_mpi.hpp"
#include "apps/common/usage_error.hpp"

#include <gtest/gtest.h>

#include <string>

namespace bench {
namespace {

Options of_stream_mpi() {
  Options options;
  options.bench = "stream_mpi";
  return options;
}

std::string refusal_of(Options options) {
  try {
    choose(options, 2);
  } catch (const apps::UsageError& refused) {
    return refused.what();
  }
  return "not refused";
}

TEST(StreamMpi, says_in_one_line_what_is_missing) {
  const std::string why = why_no_stream_mpi();
  EXPECT_EQ(why.rfind("stream_mpi ", 0), 0U) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  EXPECT_EQ(refusal_of(of_stream_mpi()), why);
}

TEST(StreamMpi, refuses_what_it_does_not_measure) {
  Options options = of_stream_mpi();
  options.stream = StreamChoice::inline_;
  EXPECT_EQ(refusal_of(options), "stream_mpi is measured on a stream of the host");
  options = of_stream_mpi();
  options.depth = 2;
  EXPECT_EQ(refusal_of(options).rfind("stream_mpi has requests", 0), 0U);
  options = of_stream_mpi();
  options.touch = true;
  EXPECT_EQ(refusal_of(options), "stream_mpi is not measured with --touch");
}

}  // namespace
}  // namespace bench
