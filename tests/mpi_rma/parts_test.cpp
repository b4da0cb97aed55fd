// SPDX-License-Identifier: Apache-2.0
// Parts of the library by themselves, where a program of MPI cannot bring about the case.
#include <sluice/run.hpp>
#include <sluice/window.hpp>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>

#include "rma/mpi/attached.hpp"
#include "rma/mpi/behind.hpp"
#include "rma/mpi/refused.hpp"

namespace {

using namespace sluice;

struct alignas(4096) FourPages {
  std::byte bytes[4][4096];
};

TEST(MpiAttached, what_fails_half_way_leaves_nothing_behind) {
  const int code = run_threads(1, [](Context& context) {
    const auto pages = std::make_unique<FourPages>();
    const Memory own = context.allocate(8);
    Window window = context.window("attached", own.all());
    const auto expect_pieces = [&](const std::string& text) {
      EXPECT_NE(window.describe().find(text), std::string::npos) << window.describe();
    };
    // The third page cannot be attached again; those before and behind it are taken first.
    const auto taken = reinterpret_cast<std::size_t>(pages->bytes[2]);
    window.attach(taken, context.region(pages->bytes[2], 4096).all());
    mpi_rma::Attached attached;
    std::byte* const begin = pages->bytes[0] + 100;
    const std::size_t bytes = 3 * 4096;
    EXPECT_THROW(attached.attach(context, window, begin, bytes), mpi_rma::Refused);
    expect_pieces(", 1 pieces attached");
    EXPECT_THROW(attached.detach(window, begin), mpi_rma::Refused) << "nothing is attached there";
    window.detach(taken);
    attached.attach(context, window, begin, bytes);
    expect_pieces(", 3 pieces attached");
    attached.attach(context, window, pages->bytes[0], 100);  // shares the first page
    expect_pieces(", 3 pieces attached");
    attached.detach(window, begin);
    expect_pieces(", 1 pieces attached");
    attached.detach(window, pages->bytes[0]);
    EXPECT_EQ(window.describe().find("attached,"), std::string::npos) << window.describe();
  });
  EXPECT_EQ(code, 0);
}

/// As a library has UCX that was loaded for it alone: its functions are not among those that follow ours.
TEST(MpiBehind, functions_of_a_library_that_few_see_are_found) {
  using Function = int();
  EXPECT_EQ(mpi_rma::find_behind<Function>("sluice_test_answer", PLUGIN), nullptr) << "it is not loaded yet";
  void* const loaded = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(loaded, nullptr) << dlerror();
  EXPECT_EQ(mpi_rma::find_behind<Function>("sluice_test_answer"), nullptr);
  auto* const answer = mpi_rma::find_behind<Function>("sluice_test_answer", PLUGIN);
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer(), 42);
  EXPECT_EQ(mpi_rma::find_behind<Function>("sluice_test_question", PLUGIN), nullptr);
  dlclose(loaded);
}

}  // namespace
