/* SPDX-License-Identifier: Apache-2.0 */
/* A window on every rank, and its epochs: fences, posts, and locks. */
#include "tests/c/ranks.h"

enum { kPlaces = 8, kTurns = 20 };
enum { kFenced, kPosted, kLocked, kAdded, kOfAll }; /* words of each rank */
static const sluice_timeout kLimit = 30 * SLUICE_SECOND;

static int put_word(sluice_collective_window* window, int rank, size_t word, const sluice_memory* local,
                    uint64_t value) {
  sluice_target* target = NULL;
  MUST(sluice_collective_window_target(window, rank, &target));
  *(uint64_t*)sluice_memory_data(local) = value;
  MUST(sluice_target_put(target, sluice_stream_program_order(), local, 0, kWord, word * kWord));
  return 0;
}

static int wrong_order(sluice_collective_window* window, int rank) {
  const int nobody = 1000;
  int completed = -1;
  REFUSED(SLUICE_MISUSE, sluice_collective_window_complete(window, kLimit));
  REFUSED(SLUICE_MISUSE, sluice_collective_window_wait(window, kLimit));
  REFUSED(SLUICE_MISUSE, sluice_collective_window_test(window, &completed));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_collective_window_test(window, NULL));
  REFUSED(SLUICE_MISUSE, sluice_collective_window_unlock(window, rank, kLimit));
  REFUSED(SLUICE_MISUSE, sluice_collective_window_unlock_all(window, kLimit));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_collective_window_lock(window, rank, 2, kLimit));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_collective_window_post(window, NULL, 1, kLimit));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_collective_window_post(window, &nobody, 1, kLimit));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_collective_window_start(window, NULL, 1, kLimit));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_collective_window_target(window, rank, NULL));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_collective_window_fence(window, -5));
  EXPECT(completed == -1);
  return 0;
}

/* Each rank puts its number to its right neighbour: between fences, and between post and wait. */
static int neighbours(sluice_collective_window* window, const sluice_memory* local, const uint64_t* words) {
  const int rank = sluice_collective_window_rank(window), ranks = sluice_collective_window_size(window);
  const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
  int i, completed = 0;
  if (put_word(window, right, kFenced, local, (uint64_t)rank + 7) != 0) return 99;
  MUST(sluice_collective_window_fence(window, SLUICE_CONTEXT_TIMEOUT));
  EXPECT(words[kFenced] == (uint64_t)left + 7);
  for (i = 0; i < kTurns; ++i) {
    MUST(sluice_collective_window_post(window, &left, 1, kLimit));
    MUST(sluice_collective_window_start(window, &right, 1, kLimit));
    if (put_word(window, right, kPosted, local, (uint64_t)1000 * (uint64_t)i + (uint64_t)rank) != 0) return 99;
    MUST(sluice_collective_window_complete(window, kLimit));
    completed = 0;
    while (i % 2 == 0 && !completed) MUST(sluice_collective_window_test(window, &completed));
    if (i % 2 != 0) MUST(sluice_collective_window_wait(window, kLimit));
    EXPECT(words[kPosted] == (uint64_t)(1000 * i + left));
  }
  return 0;
}

/* All ranks count in a word of rank 0, by a get and a put. */
static int locked(sluice_collective_window* window, const sluice_memory* local) {
  const sluice_stream order = sluice_stream_program_order();
  const uint64_t* const word = sluice_memory_data(local);
  sluice_target *target = NULL, *kept = NULL;
  int i;
  MUST(sluice_collective_window_target(window, 0, &target));
  kept = target;
  for (i = 0; i < kTurns; ++i) {
    MUST(sluice_collective_window_lock(window, 0, SLUICE_LOCK_EXCLUSIVE, kLimit));
    MUST(sluice_target_get(target, order, local, 0, kWord, kLocked * kWord));
    MUST(sluice_collective_window_flush(window, 0, kLimit));
    if (put_word(window, 0, kLocked, local, *word + 1) != 0) return 99;
    MUST(sluice_collective_window_unlock(window, 0, kLimit));
  }
  MUST(sluice_collective_window_lock(window, 0, SLUICE_LOCK_SHARED, kLimit));
  REFUSED(SLUICE_MISUSE, sluice_collective_window_lock(window, 0, SLUICE_LOCK_SHARED, kLimit));
  REFUSED(SLUICE_MISUSE, sluice_collective_window_close(window, kLimit));
  MUST(sluice_target_fetch_add(target, order, kAdded * kWord, 1, local, 0));
  MUST(sluice_collective_window_unlock(window, 0, kLimit));
  REFUSED(SLUICE_MISUSE, sluice_target_free(&target));
  MUST(sluice_collective_window_target(window, 0, &target));
  EXPECT(target == kept && sluice_channel_peer(sluice_target_channel(target)) == 0);
  return 0;
}

static int of_all(sluice_collective_window* window, const sluice_memory* local) {
  const int ranks = sluice_collective_window_size(window);
  int rank;
  MUST(sluice_collective_window_lock_all(window, kLimit));
  for (rank = 0; rank < ranks; ++rank) {
    sluice_target* target = NULL;
    MUST(sluice_collective_window_target(window, rank, &target));
    MUST(sluice_target_fetch_add(target, sluice_stream_program_order(), kOfAll * kWord, 1, local, 0));
  }
  MUST(sluice_collective_window_flush_all(window, kLimit));
  MUST(sluice_collective_window_unlock_all(window, kLimit));
  return 0;
}

int epochs(sluice_context* context) {
  const int rank = sluice_context_rank(context), ranks = sluice_context_size(context);
  sluice_memory *memory = NULL, *local = NULL;
  sluice_collective_window* window = NULL;
  sluice_target* target = NULL;
  char long_name[4002];
  const uint64_t* words;
  MUST(sluice_context_allocate(context, kPlaces * kWord, SLUICE_SPACE_HOST, -1, &memory));
  MUST(sluice_context_allocate(context, kWord, SLUICE_SPACE_HOST, -1, &local));
  words = sluice_memory_data(memory);
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_collective_window_open(context, NULL, memory, 0, kWord, kLimit, &window));
  memset(long_name, 'w', sizeof long_name);
  long_name[sizeof long_name - 1] = 0;
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_collective_window_open(context, long_name, memory, 0, kWord, kLimit, &window));
  MUST(sluice_collective_window_open(context, "epochs", memory, 0, kPlaces * kWord, SLUICE_CONTEXT_TIMEOUT, &window));
  EXPECT(sluice_collective_window_rank(window) == rank && sluice_collective_window_size(window) == ranks);
  if (wrong_order(window, rank) != 0 || neighbours(window, local, words) != 0) return 99;
  if (locked(window, local) != 0 || of_all(window, local) != 0) return 99;
  MUST(sluice_collective_window_fence(window, kLimit));
  EXPECT(words[kOfAll] == (uint64_t)ranks);
  if (rank == 0) EXPECT(words[kLocked] == (uint64_t)(kTurns * ranks) && words[kAdded] == (uint64_t)ranks);
  MUST(sluice_collective_window_close(window, SLUICE_CONTEXT_TIMEOUT));
  MUST(sluice_collective_window_close(window, SLUICE_CONTEXT_TIMEOUT));
  REFUSED(SLUICE_MISUSE, sluice_collective_window_target(window, 0, &target));
  MUST(sluice_collective_window_free(&window));
  MUST(sluice_collective_window_open_for_targets(context, "epochs", memory, 0, kPlaces * kWord, kLimit, &window));
  MUST(sluice_collective_window_target(window, 0, &target));
  MUST(sluice_target_fetch_add_now(target, kLocked * kWord, 1, kLimit, NULL));
  MUST(sluice_collective_window_fence(window, kLimit));
  if (rank == 0) EXPECT(words[kLocked] == (uint64_t)((kTurns + 1) * ranks));
  MUST(sluice_collective_window_close(window, SLUICE_CONTEXT_TIMEOUT));
  MUST(sluice_collective_window_free(&window));
  MUST(sluice_memory_free(&local));
  MUST(sluice_memory_free(&memory));
  return 0;
}
