// SPDX-License-Identifier: Apache-2.0
// The ranges that profilers of GPU vendors record, by a library that stands in for theirs.
#include "device/profiler.hpp"

#include "tests/gpu_stream.hpp"
#include "tests/unit/program.hpp"

#include <sluice/sluice.hpp>
#include <sluice/trace.hpp>

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using sluice::Context;
using sluice::Stream;
using sluice::test::GpuStream;
using sluice::tests::Program;
using sluice::tests::Result;

constexpr int kThreePuts = 3;

/// A profiler of each maker, as the programs see it that it starts.
enum class Profiler { nvidias, amds };

struct Line {
  std::string word;
  std::string text;
};

class Ranges : public testing::TestWithParam<Profiler> {
 protected:
  void SetUp() override { ::setenv("SLUICE_USER_RANGES", file_.c_str(), 1); }
  void TearDown() override {
    ::unsetenv("SLUICE_USER_RANGES");
    ::unsetenv("SLUICE_RANGES");
    std::filesystem::remove(file_);
  }

  /// Runs two ranks as threads under the profiler.
  template <class Body>
  static Result run(Profiler profiler, Body body) {
    Program program([&] {
      if (profiler == Profiler::nvidias) {
        ::setenv("NVTX_INJECTION64_PATH", PROFILER_STAND_IN, 1);
      } else if (::dlopen(PROFILER_STAND_IN, RTLD_NOW) == nullptr) {
        return 9;
      }
      return sluice::run_threads(2, body);
    });
    return program.result();
  }

  /// The recorded lines of each thread.
  std::map<int, std::vector<Line>> heard() const {
    std::map<int, std::vector<Line>> all;
    std::ifstream in(file_);
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      int thread = 0;
      Line one;
      words >> thread >> one.word;
      std::getline(words >> std::ws, one.text);
      all[thread].push_back(one);
    }
    return all;
  }

  /// How many ranges were recorded whose text has this part. All that began have ended, in their order.
  int ranges(const std::string& part) const {
    int found = 0;
    for (const auto& [thread, lines] : heard()) {
      int open = 0;
      for (const Line& line : lines) {
        open += line.word == "begin" ? 1 : line.word == "end" ? -1 : 0;
        EXPECT_GE(open, 0) << "more ends than begins";
        if (line.word == "begin" && sluice::tests::contains(line.text, part)) ++found;
      }
      EXPECT_EQ(open, 0) << "a range of thread " << thread << " has no end";
    }
    return found;
  }

 private:
  const std::string file_ = testing::TempDir() + "sluice_ranges_" + std::to_string(::getpid());
};

/// In a rank, where a failed assertion would not be reported.
void require(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}

/// Puts from rank 0 to rank 1, on streams that `order` makes.
template <class Order>
void put_some(Context& context, Order order) {
  const sluice::Memory memory = context.allocate(64);
  const auto stream = order();
  if (context.rank() == 0) {
    auto sender = context.sender(1, 4, memory.slice(0, 64), {.name = "faces"});
    for (int i = 0; i < kThreePuts; ++i) sender.put(stream);
    sender.close();
  } else {
    auto receiver = context.receiver(0, 4, memory.slice(0, 64), {.name = "faces"});
    for (int i = 0; i < kThreePuts; ++i) {
      receiver.wait(stream);
      receiver.release(stream);
    }
    receiver.close();
  }
}

TEST_P(Ranges, hold_each_verb_by_its_channel) {
  const auto result = run(GetParam(), [](Context& context) { put_some(context, &Stream::program_order); });
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(ranges("put faces"), kThreePuts);
  EXPECT_EQ(ranges("release faces"), kThreePuts);
}

TEST_P(Ranges, hold_a_programs_own_pieces) {
  const auto result = run(GetParam(), [](Context& context) {
    const sluice::Span piece(context.rank() == 0 ? "the first's" : "the second's");
    require(!sluice::tracing(), "no timeline was asked for");
  });
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(ranges("the first's"), 1);
  EXPECT_EQ(ranges("the second's"), 1);
}

TEST_P(Ranges, end_where_a_call_fails) {
  std::atomic<bool> waited{false};  // a rank that has left is no longer waited for
  const auto result = run(GetParam(), [&waited](Context& context) {
    const sluice::Memory memory = context.allocate(64);
    if (context.rank() == 1) return waited.wait(false);
    auto sender = context.sender(1, 4, memory.slice(0, 64), {.name = "faces"});
    bool failed = false;
    try {
      sender.wait_connected(std::chrono::milliseconds(0));
    } catch (const sluice::Error&) {
      failed = true;
    }
    waited = true;
    waited.notify_all();
    require(failed, "nobody has opened the other end");
  });
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_GE(ranges("host waits faces"), 1);
}

TEST_P(Ranges, are_not_told_where_none_are_wanted) {
  ::setenv("SLUICE_RANGES", "none", 1);
  const auto result = run(GetParam(), [](Context& context) { put_some(context, &Stream::program_order); });
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(heard().empty());
}

#ifdef SLUICE_TESTS_HAVE_CUDA
/// While the host enqueues: the profiler knows what the GPU does when.
TEST_P(Ranges, hold_what_is_enqueued_on_a_gpu) {
  const auto result = run(GetParam(), [](Context& context) {
    GpuStream stream;
    put_some(context, [&] { return stream.stream(); });
    stream.synchronize();
  });
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(ranges("put faces"), kThreePuts);
  EXPECT_EQ(ranges("wait faces"), kThreePuts);
}
#endif

std::vector<Profiler> profilers() {
  if (sluice::device::has_nvtx()) return {Profiler::nvidias, Profiler::amds};
  return {Profiler::amds};
}

INSTANTIATE_TEST_SUITE_P(Of, Ranges, testing::ValuesIn(profilers()), [](const auto& one) {
  return std::string(one.param == Profiler::nvidias ? "nvidias" : "amds");
});

TEST(RangesAskedFor, are_refused_where_their_library_is_missing) {
  ::setenv("SLUICE_RANGES", "roctx", 1);
  Program program([] { return sluice::run_threads(1, [](Context&) {}); });
  const auto result = program.result();
  ::unsetenv("SLUICE_RANGES");
  EXPECT_NE(result.code, 0);
  EXPECT_TRUE(sluice::tests::contains(result.err, "SLUICE_RANGES=roctx")) << result.err;
}

}  // namespace
