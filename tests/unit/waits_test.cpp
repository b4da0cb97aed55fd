// SPDX-License-Identifier: Apache-2.0
// The table of waits: rows of the page, and what the table says of them.
#include "base/waits.hpp"
#include "base/wait_graph.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
using sluice::base::Clock;
using sluice::base::cycles_of;
using sluice::base::EndCounts;
using sluice::base::Lack;
using sluice::base::wait_table;
using sluice::base::WaitNote;
using sluice::base::WaitPage;
using sluice::base::WaitRecord;
using sluice::base::who_owes;

const Clock::time_point kNow = Clock::time_point(1h);

WaitRecord wait_of(int rank, int peer, Lack lack = Lack::put, std::uint64_t epoch = 3) {
  WaitRecord wait;
  wait.rank = rank;
  wait.peer = peer;
  wait.tag = 7;
  wait.lack = lack;
  wait.epoch = epoch;
  wait.sends = lack == Lack::release;
  wait.verb = wait.sends ? "puts" : "waits";
  wait.stream = "program order";
  wait.since = kNow - 10s;
  return wait;
}

WaitRecord answered(WaitRecord wait, const EndCounts& counts) {
  wait.answered = true;
  wait.counts = counts;
  return wait;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Waits, a_release_that_lacks_names_the_call_that_lacks) {
  const WaitRecord wait = wait_of(0, 1, Lack::release);
  EXPECT_EQ(who_owes(answered(wait, {2, 2, 2, 1})), "rank 1 has not waited for epoch 3 of tag 7");
  EXPECT_EQ(who_owes(answered(wait, {3, 2, 2, 1})),
            "rank 1 has enqueued the wait for epoch 3 of tag 7, and its stream has not reached it");
  EXPECT_EQ(who_owes(answered(wait, {3, 3, 2, 1})), "rank 1 holds epoch 3 of tag 7 and has not released it");
  EXPECT_EQ(who_owes(answered(wait, {3, 3, 3, 1})),
            "rank 1 has enqueued the release of epoch 3 of tag 7, and its stream has not reached it");
  EXPECT_TRUE(has(who_owes(wait), "rank 1 has not answered"));
}

TEST(Waits, a_put_that_lacks_names_the_call_that_lacks) {
  const WaitRecord wait = wait_of(1, 0);
  EXPECT_EQ(who_owes(answered(wait, {2, 2, 2, 1})), "rank 0 has not put epoch 3 of tag 7 (its last put is 2)");
  EXPECT_EQ(who_owes(answered(wait, {3, 2, 1, 1})),
            "the put of epoch 3 of tag 7 waits at rank 0 until rank 1 has released epoch 2");
  EXPECT_EQ(who_owes(answered(wait, {3, 2, 2, 1})),
            "rank 0 has enqueued the put of epoch 3 of tag 7, and its stream has not reached it");
  EXPECT_EQ(who_owes(answered(wait, {3, 3, 2, 1})), "epoch 3 of tag 7 is under way from rank 0");
  EXPECT_TRUE(has(who_owes(wait), "rank 0 has not answered"));
}

TEST(Waits, a_copy_that_lacks_names_the_rank_that_copies) {
  EXPECT_EQ(who_owes(wait_of(0, 1, Lack::copying)), "rank 1 has not ended its part of the copy of epoch 3");
}

TEST(Waits, an_opening_that_lacks_names_what_was_opened_instead) {
  WaitRecord wait = wait_of(0, 1, Lack::opening);
  EXPECT_EQ(who_owes(wait), "rank 1 has not opened its end of tag 7");
  wait.answered = true;
  EXPECT_TRUE(has(who_owes(wait), "has not opened its sender of tag 7; unmatched ends")) << who_owes(wait);
  EXPECT_TRUE(has(who_owes(wait), "towards rank 0: none"));
  wait.text = "a sender of tag 8";
  EXPECT_TRUE(has(who_owes(wait), "towards rank 0: a sender of tag 8"));
  wait.reached = false;
  EXPECT_TRUE(has(who_owes(wait), "no connection to rank 1 yet"));
}

TEST(Waits, cycles_are_found_and_each_is_named_once) {
  using Cycles = std::vector<std::vector<int>>;
  EXPECT_EQ(cycles_of({wait_of(0, 1), wait_of(1, 2), wait_of(2, 3)}), Cycles());
  EXPECT_EQ(cycles_of({wait_of(3, 0), wait_of(0, 1), wait_of(1, 2), wait_of(2, 3)}), (Cycles{{0, 1, 2, 3}}));
  EXPECT_EQ(cycles_of({wait_of(0, 2), wait_of(2, 5), wait_of(5, 2), wait_of(7, 8), wait_of(8, 7)}),
            (Cycles{{2, 5}, {7, 8}}));
  EXPECT_EQ(cycles_of({wait_of(4, 4)}), (Cycles{{4}}));
}

TEST(Waits, the_guilty_end_comes_first) {
  const WaitRecord behind = answered(wait_of(0, 1), {3, 2, 1, 1});
  const WaitRecord forgotten = answered(wait_of(2, 3, Lack::release), {3, 3, 2, 1});
  const std::string table = wait_table({behind, forgotten}, {0, 1, 2, 3}, kNow, 1s);
  EXPECT_LT(table.find("rank 3 holds epoch 3"), table.find("rank 0 waits"));
  EXPECT_TRUE(has(table, "rank 1 waits for nothing in Sluice")) << table;
  EXPECT_TRUE(has(table, "rank 3 waits for nothing in Sluice")) << table;
  EXPECT_FALSE(has(wait_table({behind, forgotten}, {0}, kNow, 1s), "waits for nothing")) << "ranks of other hosts";
  const WaitRecord without_peer = wait_of(1, -1, Lack::step);
  const std::string more = wait_table({behind, without_peer}, {0, 1}, kNow, 1s);
  EXPECT_FALSE(has(more, "rank 1 waits for nothing")) << more;
}

TEST(Waits, the_table_leaves_out_what_is_short_or_over) {
  WaitRecord polled = wait_of(0, 1);
  polled.polled = kNow - 2s;  // and not again: the program does something else
  EXPECT_EQ(wait_table({polled}, {}, kNow, 1s), "");
  polled.polled = kNow - 10ms;
  EXPECT_NE(wait_table({polled}, {}, kNow, 1s), "");
  EXPECT_EQ(wait_table({wait_of(0, 1)}, {}, kNow, 11s), "");
}

TEST(Waits, the_table_of_a_large_job_fits_on_a_screen) {
  std::vector<WaitRecord> waits;
  for (int rank = 0; rank < 4000; ++rank) waits.push_back(wait_of(rank, rank + 1 - rank % 2 * 2));
  const std::string table = wait_table(waits, {}, kNow, 1s);
  EXPECT_LE(std::count(table.begin(), table.end(), '\n'), 30);
  EXPECT_TRUE(has(table, "and 3980 waits more")) << table;
}

/// The waits of this process with this tag: other tests of the program have others.
std::vector<WaitRecord> waits_of_tag(std::uint32_t tag) {
  std::vector<WaitRecord> waits = sluice::base::waits_here();
  std::erase_if(waits, [tag](const WaitRecord& one) { return one.tag != tag; });
  return waits;
}

TEST(Waits, a_note_lasts_as_long_as_its_wait) {
  constexpr std::uint32_t kTag = 4711;
  int end = 0;
  {
    WaitNote note(kNow, "some stream");
    EXPECT_TRUE(waits_of_tag(kTag).empty());
    WaitRecord record = wait_of(0, 1);
    record.tag = kTag;
    record.end = &end;
    note.write(record);
    sluice::base::note_answer(&end, {2, 2, 2, 1});
    note.write(record);
    ASSERT_EQ(waits_of_tag(kTag).size(), 1U);
    EXPECT_EQ(waits_of_tag(kTag)[0].stream.view(), "some stream");
    EXPECT_TRUE(waits_of_tag(kTag)[0].since == kNow);
    EXPECT_TRUE(waits_of_tag(kTag)[0].answered) << "the same question was answered";
    record.epoch = 4;
    note.write(record);
    EXPECT_FALSE(waits_of_tag(kTag)[0].answered) << "another question";
  }
  EXPECT_TRUE(waits_of_tag(kTag).empty());
}

TEST(Waits, the_peer_is_asked_the_rarer_the_longer_it_lasts) {
  WaitNote note(kNow);
  EXPECT_FALSE(note.due(kNow + 99ms, 100ms));
  EXPECT_TRUE(note.due(kNow + 100ms, 100ms));
  EXPECT_FALSE(note.due(kNow + 199ms, 100ms));
  EXPECT_TRUE(note.due(kNow + 400ms, 100ms));
  EXPECT_TRUE(note.next(100ms) == kNow + 800ms);
  EXPECT_TRUE(note.due(kNow + 60s, 100ms));
  EXPECT_TRUE(note.next(100ms) == kNow + 65s);
}

TEST(Waits, another_process_reads_whole_rows_while_they_change) {
  void* const at = ::mmap(nullptr, sizeof(WaitPage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  const auto* const page = new (at) WaitPage;
  const pid_t writer = ::fork();
  if (writer == 0) {
    sluice::base::share_waits(*static_cast<WaitPage*>(at));
    for (std::uint64_t epoch = 1;; ++epoch) {
      WaitNote note(kNow);
      WaitRecord record = wait_of(static_cast<int>(epoch % 1000), static_cast<int>(epoch % 1000));
      record.epoch = epoch % 1000;
      record.name = std::string(39, static_cast<char>('a' + epoch % 26));
      note.write(record);
    }
  }
  std::size_t seen = 0;
  for (const auto end = Clock::now() + 10s; seen < 5000 && Clock::now() < end;) {
    for (const WaitRecord& wait : sluice::base::waits_in(*page)) {
      ++seen;
      EXPECT_EQ(wait.epoch, static_cast<std::uint64_t>(wait.rank));
      EXPECT_EQ(wait.rank, wait.peer);
      EXPECT_EQ(wait.name.view(), std::string(39, wait.name.view()[0]));
    }
  }
  EXPECT_GE(seen, 5000U);
  ::kill(writer, SIGKILL);
  ::waitpid(writer, nullptr, 0);
  ::munmap(at, sizeof(WaitPage));
}

}  // namespace
