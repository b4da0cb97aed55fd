/* SPDX-License-Identifier: Apache-2.0 */
/* A window of rank 0 that all ranks put to and get from: its counters, its notices, and extents. */
#include "tests/c/ranks.h"

enum { kTable = 64, kSums = 16, kMatrices = 24, kRows = 4, kRings = 100 };
enum { kPuts, kGets, kNotified, kOfStream, kLast, kCounters };
static const uint32_t kGot = 99; /* the tag of gets; those of puts are 10 + the rank */

static int check_words(const uint64_t* words, int ranks, uint64_t first) {
  int rank;
  for (rank = 0; rank < ranks; ++rank) EXPECT(words[rank] == first + (uint64_t)rank);
  return 0;
}

static int wrong_counters(sluice_window* owned) {
  const sluice_stream order = sluice_stream_program_order();
  uint64_t count = 0;
  int reached = -1;
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_window_wait(owned, order, kCounters, 0));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_window_wait_for(owned, kCounters, 0, 0, &reached));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_window_wait_for(owned, kPuts, 1, SLUICE_CONTEXT_TIMEOUT, &reached));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_window_wait_for(owned, kPuts, 1, 0, NULL));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_window_count(owned, kCounters, &count));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_window_fetch_and_zero(owned, kCounters, &count));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_window_fetch_and_zero(owned, kPuts, NULL));
  EXPECT(reached == -1);
  return 0;
}

static int touch(void* argument) { return *(int*)argument += 1, 0; }

static int wait_on_a_stream(sluice_context* context, sluice_window* owned, int ranks) {
  sluice_host_stream* stream = NULL;
  int ran = 0;
  MUST(sluice_host_stream_create(NULL, &stream));
  MUST(sluice_window_wait(owned, sluice_stream_host(stream), kOfStream, (uint64_t)ranks));
  MUST(sluice_host_stream_run(stream, touch, &ran));
  MUST(sluice_context_synchronize(context, sluice_stream_host(stream), SLUICE_FOREVER));
  EXPECT(ran == 1);
  return (int)sluice_host_stream_free(&stream);
}

static int await_counts(sluice_context* context, sluice_window* owned, const uint64_t* words) {
  const int ranks = sluice_context_size(context);
  const uint64_t all = (uint64_t)ranks;
  uint64_t count = 0;
  int reached = 0;
  MUST(sluice_window_wait(owned, sluice_stream_program_order(), kPuts, 2 * all));
  if (check_words(words, ranks, 1) != 0) return 99;
  EXPECT(words[kSums] == 2 * all);
  MUST(sluice_window_wait_for(owned, kGets, all, 30 * SLUICE_SECOND, &reached));
  EXPECT(reached == 1);
  MUST(sluice_window_wait_for(owned, kGets, all + 1, 0, &reached));
  EXPECT(reached == 0);
  MUST(sluice_window_wait(owned, sluice_stream_program_order(), kNotified, kRings * all));
  MUST(sluice_window_count(owned, kNotified, &count));
  EXPECT(count == kRings * all);
  MUST(sluice_window_fetch_and_zero(owned, kNotified, &count));
  EXPECT(count == kRings * all);
  MUST(sluice_window_count(owned, kNotified, &count));
  EXPECT(count == 0);
  if (wait_on_a_stream(context, owned, ranks) != 0) return 99;
  return wrong_counters(owned);
}

/* Every rank gives each counter its part; a stream of rank 0 waits for one of them. */
static int counted(sluice_target* target, const sluice_memory* local, int rank) {
  const sluice_stream order = sluice_stream_program_order();
  uint64_t* const words = sluice_memory_data(local);
  int i;
  words[0] = (uint64_t)rank + 1;
  words[1] = 2;
  MUST(sluice_target_put_notify(target, order, local, 0, kWord, (size_t)rank * kWord, kPuts));
  MUST(sluice_target_accumulate_notify(target, order, SLUICE_OP_SUM, SLUICE_UINT64, local, kWord, kWord, kSums * kWord,
                                       kPuts));
  MUST(sluice_target_flush(target, order));
  MUST(sluice_target_get_notify(target, order, local, 2 * kWord, kWord, (size_t)rank * kWord, kGets));
  MUST(sluice_target_flush_local(target, order));
  EXPECT(words[2] == (uint64_t)rank + 1);
  for (i = 0; i < kRings; ++i) MUST(sluice_target_notify(target, order, kNotified));
  MUST(sluice_target_notify(target, order, kOfStream));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_target_notify(target, order, kCounters));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_target_put_notify(target, order, local, 0, kWord, 0, kCounters));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_target_get_notify(target, order, local, 0, kWord, 0, kCounters));
  REFUSED(SLUICE_BAD_ARGUMENT,
          sluice_target_accumulate_notify(target, order, 7, SLUICE_UINT64, local, 0, kWord, 0, kPuts));
  return 0;
}

static int tagged(sluice_target* target, const sluice_memory* local, int rank) {
  const sluice_stream order = sluice_stream_program_order();
  uint64_t* const words = sluice_memory_data(local);
  words[0] = (uint64_t)rank + 100;
  MUST(sluice_target_put_tagged(target, order, local, 0, kWord, (size_t)rank * kWord, 10 + (uint32_t)rank));
  MUST(sluice_target_flush(target, order));
  MUST(sluice_target_get_tagged(target, order, local, kWord, kWord, (size_t)rank * kWord, kGot));
  MUST(sluice_target_flush(target, order));
  EXPECT(words[1] == words[0]);
  return 0;
}

/* Matches the puts by their tags, the last rank first, and the gets at once. */
static int match(sluice_window* owned, const uint64_t* words, int ranks) {
  sluice_notice notice = {-5, 0, 0, 0};
  size_t many = 0;
  int rank, matched = -1;
  for (rank = ranks - 1; rank >= 0; --rank) {
    const int source = rank % 2 == 0 ? SLUICE_ANY_SOURCE : rank;
    MUST(sluice_window_match(owned, source, 10 + (uint32_t)rank, 30 * SLUICE_SECOND, &matched, &notice));
    EXPECT(matched == 1 && notice.source == rank && notice.tag == 10 + (uint32_t)rank);
    EXPECT(notice.offset == (size_t)rank * kWord && notice.bytes == kWord);
    EXPECT(words[rank] == (uint64_t)rank + 100);
  }
  MUST(sluice_window_match_many(owned, SLUICE_ANY_SOURCE, kGot, (size_t)ranks, 30 * SLUICE_SECOND, &many));
  EXPECT(many == (size_t)ranks);
  notice.source = -5;
  MUST(sluice_window_match(owned, SLUICE_ANY_SOURCE, SLUICE_ANY_TAG, 0, &matched, &notice));
  EXPECT(matched == 0 && notice.source == -5);
  MUST(sluice_window_match_many(owned, SLUICE_ANY_SOURCE, SLUICE_ANY_TAG, 1, 0, &many));
  EXPECT(many == 0);
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_window_match(owned, 0, 0, SLUICE_CONTEXT_TIMEOUT, &matched, NULL));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_window_match(owned, 0, 0, 0, NULL, NULL));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_window_match_many(owned, 0, 0, 1, 0, NULL));
  return 0;
}

/* Each rank has a matrix of two columns in the window, and puts and gets the second one. */
static int column(sluice_target* target, const sluice_memory* local, int rank) {
  const sluice_stream order = sluice_stream_program_order();
  const size_t matrix = (kMatrices + (size_t)rank * 2 * kRows) * kWord;
  uint64_t* const words = sluice_memory_data(local);
  sluice_extent extents[kRows];
  int row;
  for (row = 0; row < kRows; ++row) words[row] = (uint64_t)1000 * (uint64_t)rank + (uint64_t)row + 1;
  MUST(sluice_extents_strided(kRows, kWord, kWord, 2 * kWord, matrix + kWord, extents));
  EXPECT(extents[3].here == 3 * kWord && extents[3].there == matrix + 7 * kWord && extents[3].bytes == kWord);
  MUST(sluice_target_put_extents(target, order, local, 0, kRows * kWord, extents, kRows));
  MUST(sluice_target_flush(target, order));
  MUST(sluice_target_get(target, order, local, 8 * kWord, 2 * kRows * kWord, matrix));
  MUST(sluice_target_get_extents(target, order, local, 16 * kWord, kRows * kWord, extents, kRows));
  MUST(sluice_target_flush(target, order));
  for (row = 0; row < kRows; ++row) {
    EXPECT(words[8 + 2 * row] == 0 && words[8 + 2 * row + 1] == words[row] && words[16 + row] == words[row]);
  }
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_target_put_extents(target, order, local, 0, 3 * kWord, extents, kRows));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_target_put_extents(target, order, local, 0, kWord, NULL, 1));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_target_get_extents(target, order, local, 0, kWord, NULL, 1));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_extents_strided(1, kWord, 0, 0, 0, NULL));
  return 0;
}

/* The window stays open until every rank has told that it is done. */
int notices(sluice_context* context) {
  const int rank = sluice_context_rank(context), ranks = sluice_context_size(context);
  sluice_memory *memory = NULL, *local = NULL;
  sluice_window* owned = NULL;
  sluice_target* target = NULL;
  const uint64_t* words;
  MUST(sluice_context_allocate(context, kTable * kWord, SLUICE_SPACE_HOST, -1, &memory));
  MUST(sluice_context_allocate(context, kTable * kWord, SLUICE_SPACE_HOST, -1, &local));
  words = sluice_memory_data(memory);
  if (rank == 0) {
    REFUSED(SLUICE_BAD_ARGUMENT, sluice_window_open_counted(context, "counted", memory, 0, kTable * kWord,
                                                            SLUICE_MOST_COUNTERS + 1, &owned));
    MUST(sluice_window_open_counted(context, "counted", memory, 0, kTable * kWord, kCounters, &owned));
  }
  MUST(sluice_target_open(context, 0, "counted", &target));
  if (counted(target, local, rank) != 0) return 99;
  if (rank == 0 && await_counts(context, owned, words) != 0) return 99;
  if (meet(target, (kSums + 1) * kWord, ranks) != 0 || tagged(target, local, rank) != 0) return 99;
  if (rank == 0 && match(owned, words, ranks) != 0) return 99;
  if (column(target, local, rank) != 0) return 99;
  MUST(sluice_target_notify(target, sluice_stream_program_order(), kLast));
  if (rank == 0) MUST(sluice_window_wait(owned, sluice_stream_program_order(), kLast, (uint64_t)ranks));
  MUST(sluice_target_free(&target));
  MUST(sluice_window_free(&owned));
  MUST(sluice_memory_free(&local));
  MUST(sluice_memory_free(&memory));
  return 0;
}
