// SPDX-License-Identifier: Apache-2.0
// The interface for C, where a program in C cannot see it: exceptions, codes, texts, and how a program ends.
#include <sluice/sluice.h>
#include <sluice/error.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/unit/program.hpp"

namespace {

using sluice::Code;
using sluice::Error;
using sluice::tests::contains;
using sluice::tests::lines;
using sluice::tests::Program;
using sluice::tests::Result;

/// The code that a synchronize returns after `work` has run on a host stream.
template <class Work>
sluice_code code_after(Work work) {
  sluice_host_stream* stream = nullptr;
  EXPECT_EQ(sluice_host_stream_create(nullptr, &stream), SLUICE_OK);
  EXPECT_EQ(sluice_host_stream_run(
                stream, [](void* argument) -> int { return (*static_cast<Work*>(argument))(); }, &work),
            SLUICE_OK);
  const sluice_code code = sluice_host_stream_synchronize(stream, SLUICE_FOREVER);
  EXPECT_EQ(sluice_host_stream_free(&stream), SLUICE_OK);
  EXPECT_EQ(stream, nullptr);
  return code;
}

TEST(C, codes_and_their_names_are_those_of_cpp) {
  for (int value = SLUICE_BAD_ARGUMENT; value <= SLUICE_CLOSED; ++value) {
    const auto code = static_cast<Code>(value);
    const sluice_code returned = code_after([code]() -> int { throw Error(code, 0, 3, 7, 0, "thrown"); });
    EXPECT_EQ(static_cast<int>(returned), value);
    EXPECT_STREQ(sluice_code_name(returned), sluice::name(code));
    EXPECT_EQ(sluice_last_error(), std::string(sluice::name(code)) + ": thrown (rank 0, peer 3, tag 7)");
    EXPECT_EQ(sluice_last_error_peer(), 3);
  }
  EXPECT_STREQ(sluice_code_name(SLUICE_OK), "ok");
  EXPECT_STREQ(sluice_code_name(-1), "unknown");
  EXPECT_STREQ(sluice_code_name(SLUICE_CLOSED + 1), "unknown");
}

TEST(C, no_exception_comes_out) {
  EXPECT_EQ(code_after([]() -> int { throw std::runtime_error("of C++"); }), SLUICE_ABORTED);
  EXPECT_STREQ(sluice_last_error(), "of C++");
  EXPECT_EQ(code_after([]() -> int { throw std::bad_alloc(); }), SLUICE_OUT_OF_RESOURCES);
  EXPECT_EQ(code_after([]() -> int { throw 1; }), SLUICE_ABORTED);
  EXPECT_TRUE(contains(sluice_last_error(), "no std::exception"));
}

TEST(C, each_thread_has_the_text_of_its_own_last_failure) {
  EXPECT_EQ(sluice_channel_close(nullptr, 0), SLUICE_MISUSE);
  EXPECT_STREQ(sluice_last_error(), "misuse: the handle of the channel is NULL");
  std::thread([] {
    EXPECT_STREQ(sluice_last_error(), "");
    EXPECT_EQ(sluice_last_error_peer(), -1);
    EXPECT_EQ(sluice_plan_wait(nullptr, sluice_stream_program_order()), SLUICE_MISUSE);
    EXPECT_STREQ(sluice_last_error(), "misuse: the handle of the plan is NULL");
  }).join();
  EXPECT_EQ(code_after([] { return 0; }), SLUICE_OK);
  EXPECT_STREQ(sluice_last_error(), "misuse: the handle of the channel is NULL");
}

TEST(C, a_callable_hands_on_the_failure_whose_code_it_returns) {
  const auto fails = [] { return static_cast<int>(sluice_sender_drain(nullptr, SLUICE_FOREVER)); };
  EXPECT_EQ(code_after(fails), SLUICE_MISUSE);
  EXPECT_STREQ(sluice_last_error(), "misuse: the handle of the sender is NULL");
  EXPECT_EQ(code_after([] { return static_cast<int>(SLUICE_MISUSE); }), SLUICE_ABORTED) << "nothing has failed";
}

TEST(C, a_callable_does_not_hand_on_the_failure_of_one_before) {
  sluice_host_stream* stream = nullptr;
  ASSERT_EQ(sluice_host_stream_create(nullptr, &stream), SLUICE_OK);
  const auto forgives = [](void*) -> int { return sluice_sender_drain(nullptr, SLUICE_FOREVER) == SLUICE_OK ? 1 : 0; };
  const auto fails = [](void*) -> int { return SLUICE_MISUSE; };
  EXPECT_EQ(sluice_host_stream_run(stream, forgives, nullptr), SLUICE_OK);
  EXPECT_EQ(sluice_host_stream_run(stream, fails, nullptr), SLUICE_OK);
  EXPECT_EQ(sluice_host_stream_synchronize(stream, SLUICE_FOREVER), SLUICE_ABORTED) << sluice_last_error();
  EXPECT_EQ(sluice_host_stream_free(&stream), SLUICE_OK);
}

struct Count {
  int before = 0;
  int behind = 0;
};

TEST(C, a_callable_that_does_not_return_0_stops_the_stream) {
  sluice_host_stream* stream = nullptr;
  Count count;
  const auto before = [](void* counts) { return static_cast<Count*>(counts)->before += 41; };
  const auto behind = [](void* counts) { return static_cast<Count*>(counts)->behind += 1, 0; };
  ASSERT_EQ(sluice_host_stream_create(nullptr, &stream), SLUICE_OK);
  EXPECT_EQ(sluice_host_stream_run(stream, before, &count), SLUICE_OK);
  EXPECT_EQ(sluice_host_stream_run(stream, behind, &count), SLUICE_OK);
  EXPECT_EQ(sluice_host_stream_synchronize(stream, SLUICE_FOREVER), SLUICE_ABORTED);
  EXPECT_STREQ(sluice_last_error(), "aborted: a callable on a host stream returned 41");
  EXPECT_EQ(count.behind, 0);
  EXPECT_EQ(sluice_host_stream_run(stream, behind, &count), SLUICE_OK);
  EXPECT_EQ(sluice_host_stream_synchronize(stream, SLUICE_FOREVER), SLUICE_OK) << "it is restarted";
  EXPECT_EQ(count.behind, 1);
  EXPECT_EQ(sluice_host_stream_free(&stream), SLUICE_OK);
}

TEST(C, null_is_refused_and_never_read) {
  const sluice_stream order = sluice_stream_program_order();
  sluice_plan* plan = nullptr;
  const char* text = nullptr;
  int fact = 0;
  std::size_t bytes = 0;
  const std::array<sluice_code, 21> codes = {sluice_context_check(nullptr),
                                             sluice_context_synchronize(nullptr, order, 0),
                                             sluice_plan_create(nullptr, &plan),
                                             sluice_channel_connected(nullptr, &fact),
                                             sluice_channel_describe(nullptr, &text),
                                             sluice_sender_acquire(nullptr, order, nullptr),
                                             sluice_receiver_wait(nullptr, order, nullptr),
                                             sluice_receiver_closed(nullptr, &fact),
                                             sluice_wait_any_add(nullptr, nullptr, nullptr),
                                             sluice_wait_any_release(nullptr, order, nullptr),
                                             sluice_ticket_arrivals(nullptr, &bytes),
                                             sluice_plan_add_sender(nullptr, nullptr),
                                             sluice_window_close(nullptr, 0),
                                             sluice_target_flush(nullptr, order),
                                             sluice_target_bytes(nullptr, &bytes),
                                             sluice_target_notify(nullptr, order, 0),
                                             sluice_window_wait(nullptr, order, 0, 0),
                                             sluice_window_match_many(nullptr, 0, 0, 1, 0, &bytes),
                                             sluice_collective_window_fence(nullptr, 0),
                                             sluice_collective_window_close(nullptr, 0),
                                             sluice_host_stream_synchronize(nullptr, 0)};
  for (std::size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(codes[i], SLUICE_MISUSE) << "call " << i;
  EXPECT_EQ(sluice_plan_create(nullptr, nullptr), SLUICE_BAD_ARGUMENT);
  EXPECT_EQ(sluice_host_stream_create(nullptr, nullptr), SLUICE_BAD_ARGUMENT);
  EXPECT_EQ(sluice_context_rank(nullptr), -1);
  EXPECT_EQ(sluice_context_size(nullptr), 0);
  EXPECT_EQ(sluice_context_node_rank(nullptr), -1);
  EXPECT_EQ(sluice_context_node_size(nullptr), 0);
  EXPECT_EQ(sluice_memory_data(nullptr), nullptr);
  EXPECT_EQ(sluice_memory_bytes(nullptr), 0U);
  EXPECT_EQ(sluice_sender_channel(nullptr), nullptr);
  EXPECT_EQ(sluice_channel_peer(nullptr), -1);
  EXPECT_EQ(sluice_channel_tag(nullptr), 0U);
  EXPECT_EQ(sluice_channel_epoch(nullptr), 0U);
  EXPECT_EQ(sluice_window_bytes(nullptr), 0U);
  EXPECT_EQ(sluice_collective_window_rank(nullptr), -1);
  EXPECT_EQ(sluice_collective_window_size(nullptr), 0);
  EXPECT_EQ(sluice_target_free(nullptr), SLUICE_OK);
  EXPECT_EQ(sluice_collective_window_free(nullptr), SLUICE_OK);
  EXPECT_EQ(sluice_wait_any_left(nullptr), 0U);
  EXPECT_EQ(sluice_host_stream_failed(nullptr), 0);
  EXPECT_EQ(sluice_sender_free(nullptr), SLUICE_OK);
  EXPECT_EQ(sluice_plan_free(&plan), SLUICE_OK);
}

TEST(C, a_target_of_a_collective_window_is_freed_with_the_window_alone) {
  const auto body = [](sluice_context* context, void*) -> int {
    sluice_collective_window* window = nullptr;
    sluice_target* target = nullptr;
    int wrong = sluice_collective_window_open(context, "window", nullptr, 0, 0, SLUICE_CONTEXT_TIMEOUT, &window);
    wrong += sluice_collective_window_target(window, 0, &target);
    wrong += sluice_target_free(&target) != SLUICE_MISUSE || target == nullptr;
    wrong += sluice_target_flush(target, sluice_stream_program_order());
    wrong += sluice_collective_window_free(&window);
    return wrong;
  };
  EXPECT_EQ(sluice_run_threads(1, body, nullptr, nullptr), 0);
}

TEST(C, a_collective_window_for_targets_is_changed_by_one_rank_at_a_time) {
  const auto body = [](sluice_context* context, void*) -> int {
    sluice_memory* memory = nullptr;
    sluice_collective_window* window = nullptr;
    sluice_target* target = nullptr;
    const char* how = "";
    int wrong = sluice_context_allocate(context, 64, SLUICE_SPACE_HOST, -1, &memory);
    for (auto* const open : {sluice_collective_window_open, sluice_collective_window_open_for_targets}) {
      wrong += open(context, "window", memory, 0, 64, SLUICE_CONTEXT_TIMEOUT, &window);
      wrong += sluice_collective_window_target(window, 0, &target);
      wrong += sluice_target_fetch_add_now(target, 0, 1, SLUICE_CONTEXT_TIMEOUT, nullptr);  // connects
      wrong += sluice_channel_describe(sluice_target_channel(target), &how);
      EXPECT_EQ(contains(how, "one rank at a time"), open == sluice_collective_window_open_for_targets) << how;
      wrong += sluice_collective_window_free(&window);
    }
    return wrong + sluice_memory_free(&memory);
  };
  EXPECT_EQ(sluice_run_threads(1, body, nullptr, nullptr), 0);
}

TEST(C, options_of_older_programs_are_taken_and_of_newer_ones_refused) {
  const auto created = [](sluice_host_stream_options options) {
    sluice_host_stream* stream = nullptr;
    const sluice_code code = sluice_host_stream_create(&options, &stream);
    EXPECT_EQ(stream == nullptr, code != SLUICE_OK);
    EXPECT_EQ(sluice_host_stream_free(&stream), SLUICE_OK);
    return code;
  };
  sluice_host_stream_options options = SLUICE_HOST_STREAM_OPTIONS;
  EXPECT_EQ(created(options), SLUICE_OK);
  options.capacity = 0;
  EXPECT_EQ(created(options), SLUICE_BAD_ARGUMENT);
  options = SLUICE_HOST_STREAM_OPTIONS;
  options.timeout = -1;
  EXPECT_EQ(created(options), SLUICE_BAD_ARGUMENT);
  options.size = offsetof(sluice_host_stream_options, timeout);  // a program that knows no timeout
  EXPECT_EQ(created(options), SLUICE_OK);
  options = SLUICE_HOST_STREAM_OPTIONS;
  for (const std::size_t size : {std::size_t{0}, sizeof options - 1, sizeof options + sizeof(void*)}) {
    options.size = size;
    EXPECT_EQ(created(options), SLUICE_BAD_ARGUMENT) << size;
  }
}

// ---- how a program ends

template <class Main>
Result result_of(Main main) {
  return Program(main).result();
}

TEST(C, a_body_that_fails_makes_the_exit_code_1_and_a_line) {
  const Result number = result_of([] {
    return sluice_run(
        0, nullptr, [](sluice_context*, void*) { return 77; }, nullptr, nullptr);
  });
  EXPECT_EQ(number.code, 1);
  EXPECT_EQ(number.err, "sluice: rank 0: aborted: the body returned 77\n");
  const Result failure = result_of([] {
    const auto body = [](sluice_context* context, void*) -> int {
      return sluice_sender_open(context, 5, 1, nullptr, 0, 0, nullptr, nullptr);
    };
    return sluice_run_threads(2, body, nullptr, nullptr);
  });
  EXPECT_EQ(failure.code, 1);
  EXPECT_TRUE(contains(failure.err, "sluice: rank 1: bad_argument: a pointer to a result is NULL")) << failure.err;
}

TEST(C, bad_arguments_of_run_make_the_exit_code_2_and_a_line) {
  const auto ends_with_2 = [](const auto& main, const std::string& text) {
    const Result result = result_of(main);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(lines(result.err), 1) << result.err;
    EXPECT_TRUE(contains(result.err, text)) << result.err;
  };
  const sluice_body done = [](sluice_context*, void*) { return 0; };
  ends_with_2([] { return sluice_run(0, nullptr, nullptr, nullptr, nullptr); }, "the body is NULL");
  ends_with_2([done] { return sluice_run_threads(0, done, nullptr, nullptr); }, "number of ranks");
  sluice_options options = SLUICE_OPTIONS;
  options.backends = "pigeons";
  ends_with_2([&] { return sluice_run_threads(1, done, nullptr, &options); }, "pigeons");
  options = SLUICE_OPTIONS;
  options.connect_timeout = -5;
  ends_with_2([&] { return sluice_run_threads(1, done, nullptr, &options); }, "a timeout of -5 ns");
}

TEST(C, an_abort_ends_the_waits_of_all) {
  const auto body = [](sluice_context* context, void*) -> int {
    const int rank = sluice_context_rank(context);
    sluice_memory* memory = nullptr;
    sluice_receiver* in = nullptr;
    sluice_sender* out = nullptr;
    int wrong = sluice_context_allocate(context, 16, SLUICE_SPACE_HOST, -1, &memory);
    wrong += sluice_sender_open(context, 1 - rank, 1, memory, 0, 8, nullptr, &out);
    wrong += sluice_receiver_open(context, 1 - rank, 1, memory, 8, 8, nullptr, &in);
    if (rank == 0) {
      wrong += sluice_channel_wait_connected(sluice_receiver_channel(in), SLUICE_CONTEXT_TIMEOUT);
      wrong += sluice_context_abort(context, "enough");
    }
    wrong += sluice_receiver_wait(in, sluice_stream_program_order(), nullptr) != SLUICE_ABORTED;
    wrong += !contains(sluice_last_error(), "enough");
    wrong += sluice_receiver_free(&in) + sluice_sender_free(&out) + sluice_memory_free(&memory);
    return wrong;
  };
  EXPECT_EQ(sluice_run_threads(2, body, nullptr, nullptr), 0);
}

}  // namespace
