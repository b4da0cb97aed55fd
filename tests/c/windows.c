/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of rank 0: puts, gets, and words that all ranks change. */
#include "tests/c/ranks.h"

enum { kWords = 64, kTimes = 100 };

int meet(sluice_target* target, size_t place, int ranks) {
  uint64_t seen = 0;
  MUST(sluice_target_fetch_add_now(target, place, 1, SLUICE_CONTEXT_TIMEOUT, NULL));
  while (seen < (uint64_t)ranks) MUST(sluice_target_fetch_add_now(target, place, 0, SLUICE_CONTEXT_TIMEOUT, &seen));
  return 0;
}

/* Of this rank. Rank 0 returns when it alone may yet access the window, and closes it. */
static int last_access(sluice_target* target, size_t place, int rank, int ranks) {
  uint64_t done = 0;
  if (rank != 0) MUST(sluice_target_fetch_add_now(target, place, 1, SLUICE_CONTEXT_TIMEOUT, NULL));
  while (rank == 0 && done + 1 < (uint64_t)ranks)
    MUST(sluice_target_fetch_add_now(target, place, 0, SLUICE_CONTEXT_TIMEOUT, &done));
  return 0;
}

static int atomics(sluice_target* target, const sluice_memory* local, int rank) {
  const sluice_stream order = sluice_stream_program_order();
  uint64_t* const words = sluice_memory_data(local);
  uint64_t old = 0;
  int i;
  for (i = 0; i < kTimes; ++i) {
    MUST(sluice_target_fetch_add(target, order, 0, 1, local, 0));
    words[1] = 2;
    MUST(sluice_target_accumulate(target, order, SLUICE_OP_SUM, SLUICE_UINT64, local, kWord, kWord, kWord));
    MUST(sluice_target_flush(target, order));
  }
  if (rank == 0) {
    MUST(sluice_target_swap_now(target, 2 * kWord, 5, SLUICE_CONTEXT_TIMEOUT, &old));
    EXPECT(old == 0);
    MUST(sluice_target_compare_swap_now(target, 2 * kWord, 4, 9, SLUICE_CONTEXT_TIMEOUT, &old));
    EXPECT(old == 5);
    MUST(sluice_target_compare_swap(target, order, 2 * kWord, 5, 6, local, 0));
    MUST(sluice_target_swap(target, order, 2 * kWord, 7, local, kWord));
    MUST(sluice_target_drain(target, SLUICE_CONTEXT_TIMEOUT));
    EXPECT(words[0] == 5 && words[1] == 6);
  }
  return 0;
}

static int wrong_accesses(sluice_context* context, sluice_target* target, const sluice_memory* local) {
  const sluice_stream order = sluice_stream_program_order();
  sluice_target* other = NULL;
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_target_put(target, order, local, 0, kWord, kWords * kWord));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_target_put(target, order, local, 1000 * kWord, kWord, 0));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_target_fetch_add_now(target, 4, 1, SLUICE_CONTEXT_TIMEOUT, NULL));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_target_accumulate(target, order, 7, SLUICE_UINT64, local, 0, kWord, 0));
  REFUSED(SLUICE_BAD_ARGUMENT,
          sluice_target_accumulate(target, order, SLUICE_OP_BIT_OR, SLUICE_FLOAT64, local, 0, kWord, 0));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_target_open(context, 0, NULL, &other));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_target_open_handle(context, "no handle", 9, &other));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_target_open_handle(context, NULL, SLUICE_WINDOW_HANDLE_BYTES, &other));
  EXPECT(other == NULL);
  return 0;
}

/* The window carries a handle of its own second half: rank 0 puts it there, and all open it. */
static int by_handle(sluice_context* context, sluice_window* owned, sluice_target* target, const sluice_memory* local) {
  const sluice_stream order = sluice_stream_program_order();
  unsigned char* const bytes = sluice_memory_data(local);
  const size_t half = kWords / 2 * kWord;
  sluice_target* block = NULL;
  size_t reached = 0;
  sluice_memory* mapped = NULL;
  if (owned != NULL) {
    MUST(sluice_window_handle(owned, half, half, bytes));
    MUST(sluice_target_put(target, order, local, 0, SLUICE_WINDOW_HANDLE_BYTES, 8 * kWord));
    MUST(sluice_target_flush(target, order));
  }
  if (meet(target, 4 * kWord, sluice_context_size(context)) != 0) return 99;
  MUST(sluice_target_get(target, order, local, 0, SLUICE_WINDOW_HANDLE_BYTES, 8 * kWord));
  MUST(sluice_target_flush(target, order));
  MUST(sluice_target_open_handle(context, bytes, SLUICE_WINDOW_HANDLE_BYTES, &block));
  MUST(sluice_target_bytes(block, &reached));
  EXPECT(reached == half);
  MUST(sluice_target_mapped(block, &mapped));
  EXPECT(sluice_memory_bytes(mapped) == 0 || sluice_memory_bytes(mapped) == half);
  MUST(sluice_memory_free(&mapped));
  MUST(sluice_target_fetch_add_now(block, 0, 3, SLUICE_CONTEXT_TIMEOUT, NULL));
  MUST(sluice_target_free(&block));
  return meet(target, 5 * kWord, sluice_context_size(context));
}

/* More memory of rank 0, at a place that it chooses, and behind its last byte. */
static int attached(sluice_context* context, sluice_window* owned, sluice_target* target, const sluice_memory* local) {
  const size_t place = 1000 * kWord;
  const int ranks = sluice_context_size(context);
  sluice_memory* more = NULL;
  uint64_t* words;
  size_t next = 0;
  MUST(sluice_context_allocate(context, 2 * kWord, SLUICE_SPACE_HOST, -1, &more));
  words = sluice_memory_data(more);
  if (owned != NULL) {
    MUST(sluice_window_attach_at(owned, place, more, 0, kWord));
    REFUSED(SLUICE_BAD_ARGUMENT, sluice_window_attach_at(owned, place, more, kWord, kWord));
    MUST(sluice_window_attach(owned, more, kWord, kWord, &next));
    EXPECT(next >= place + kWord);
    REFUSED(SLUICE_BAD_ARGUMENT, sluice_window_attach(owned, more, kWord, 2 * kWord, &next));
  }
  if (meet(target, 7 * kWord, ranks) != 0) return 99;
  MUST(sluice_target_fetch_add_now(target, place, 2, SLUICE_CONTEXT_TIMEOUT, NULL));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_target_put(target, sluice_stream_program_order(), local, 0, 2 * kWord, place));
  if (meet(target, 16 * kWord, ranks) != 0) return 99;
  if (owned != NULL) {
    EXPECT(words[0] == 2 * (uint64_t)ranks && words[1] == 0);
    MUST(sluice_window_detach(owned, place, SLUICE_CONTEXT_TIMEOUT));
    REFUSED(SLUICE_BAD_ARGUMENT, sluice_window_detach(owned, place, SLUICE_CONTEXT_TIMEOUT));
  }
  if (meet(target, 17 * kWord, ranks) != 0) return 99;
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_target_fetch_add_now(target, place, 2, SLUICE_CONTEXT_TIMEOUT, NULL));
  if (meet(target, 18 * kWord, ranks) != 0) return 99;
  if (owned != NULL) MUST(sluice_window_detach(owned, next, SLUICE_CONTEXT_TIMEOUT));
  MUST(sluice_memory_free(&more));
  return 0;
}

int window(sluice_context* context) {
  const int rank = sluice_context_rank(context), ranks = sluice_context_size(context);
  const sluice_stream order = sluice_stream_program_order();
  sluice_memory *memory = NULL, *local = NULL;
  sluice_window *owned = NULL, *second = NULL;
  sluice_target* target = NULL;
  const char* text = NULL;
  sluice_atomics_by by = SLUICE_ATOMICS_BY_GPUS;
  const uint64_t* words;
  MUST(sluice_context_allocate(context, kWords * kWord, SLUICE_SPACE_HOST, -1, &memory));
  MUST(sluice_context_allocate(context, kWords * kWord, SLUICE_SPACE_HOST, -1, &local));
  words = sluice_memory_data(local);
  if (rank == 0) {
    MUST(sluice_window_open(context, "words", memory, 0, kWords * kWord, &owned));
    REFUSED(SLUICE_MISUSE, sluice_window_open(context, "words", memory, 0, kWord, &second));
    REFUSED(SLUICE_BAD_ARGUMENT, sluice_window_open(context, NULL, memory, 0, kWord, &second));
    EXPECT(sluice_window_bytes(owned) == kWords * kWord && second == NULL);
    MUST(sluice_window_describe(owned, &text));
    MUST(sluice_window_atomics(owned, &by));
    EXPECT((strstr(text, "by processors") != NULL) == (by == SLUICE_ATOMICS_BY_PROCESSORS));
    EXPECT((strstr(text, "of the owner") != NULL) == (by == SLUICE_ATOMICS_BY_OWNER));
  }
  MUST(sluice_target_open(context, 0, "words", &target));
  EXPECT(sluice_channel_peer(sluice_target_channel(target)) == 0);
  if (atomics(target, local, rank) != 0 || meet(target, 3 * kWord, ranks) != 0) return 99;
  MUST(sluice_target_get(target, order, local, 0, 3 * kWord, 0));
  MUST(sluice_target_flush(target, order));
  EXPECT(words[0] == (uint64_t)(kTimes * ranks) && words[1] == (uint64_t)(2 * kTimes * ranks) && words[2] == 7);
  if (wrong_accesses(context, target, local) != 0 || by_handle(context, owned, target, local) != 0) return 99;
  if (attached(context, owned, target, local) != 0) return 99;
  MUST(sluice_target_get(target, order, local, 0, kWord, kWords / 2 * kWord));
  MUST(sluice_target_flush(target, order));
  EXPECT(words[0] == 3 * (uint64_t)ranks);
  if (last_access(target, 6 * kWord, rank, ranks) != 0) return 99;
  if (rank == 0) {
    MUST(sluice_window_close(owned, SLUICE_CONTEXT_TIMEOUT));
    MUST(sluice_window_close(owned, SLUICE_CONTEXT_TIMEOUT));
    REFUSED(SLUICE_CLOSED, sluice_target_put(target, order, local, 0, kWord, 0));
  }
  MUST(sluice_target_free(&target));
  MUST(sluice_window_free(&owned));
  MUST(sluice_memory_free(&local));
  MUST(sluice_memory_free(&memory));
  return 0;
}

static int open_for_targets(sluice_context* context, const sluice_memory* memory, sluice_window** owned) {
  const size_t bytes = sluice_memory_bytes(memory);
  sluice_atomics_by by = SLUICE_ATOMICS_BY_PROCESSORS;
  memset(sluice_memory_data(memory), 0, bytes);
  REFUSED(SLUICE_BAD_ARGUMENT,
          sluice_window_open_for_targets(context, "for targets", memory, 0, bytes, SLUICE_MOST_COUNTERS + 1, owned));
  MUST(sluice_window_open_for_targets(context, "for targets", memory, 0, bytes, 1, owned));
  MUST(sluice_window_atomics(*owned, &by));
  EXPECT(by == SLUICE_ATOMICS_BY_TURNS || by == SLUICE_ATOMICS_BY_OWNER);
  return 0;
}

/* A window that only targets change: all ranks count in word 0, and add to numbers behind the words. */
int window_for_targets(sluice_context* context) {
  enum { kFloats = 50, kFloatBytes = 4 * kFloats, kFloatsAt = 8 * kWord };
  const int rank = sluice_context_rank(context), ranks = sluice_context_size(context);
  const sluice_stream order = sluice_stream_program_order();
  sluice_memory *memory = NULL, *local = NULL;
  sluice_window* owned = NULL;
  sluice_target* target = NULL;
  uint64_t changes = 0, counted = 0;
  float* numbers;
  int i;
  MUST(sluice_context_allocate(context, kFloatsAt + kFloatBytes, SLUICE_SPACE_HOST, -1, &memory));
  MUST(sluice_context_allocate(context, kFloatBytes, SLUICE_SPACE_HOST, -1, &local));
  if (rank == 0 && open_for_targets(context, memory, &owned) != 0) return 99;
  MUST(sluice_target_open(context, 0, "for targets", &target));
  numbers = sluice_memory_data(local);
  for (i = 0; i < kFloats; ++i) numbers[i] = (float)i / 2;
  for (i = 0; i < kTimes; ++i) {
    MUST(sluice_target_accumulate_notify(target, order, SLUICE_OP_SUM, SLUICE_FLOAT32, local, 0, kFloatBytes, kFloatsAt,
                                         0));
    MUST(sluice_target_fetch_add_now(target, 0, 1, SLUICE_CONTEXT_TIMEOUT, NULL));
  }
  MUST(sluice_target_flush(target, order));
  if (meet(target, kWord, ranks) != 0) return 99;
  MUST(sluice_target_fetch_add_now(target, 0, 0, SLUICE_CONTEXT_TIMEOUT, &changes));
  EXPECT(changes == (uint64_t)(kTimes * ranks));
  if (rank == 0) MUST(sluice_window_count(owned, 0, &counted));
  EXPECT(rank != 0 || counted == changes);
  MUST(sluice_target_get(target, order, local, 0, kFloatBytes, kFloatsAt));
  MUST(sluice_target_flush(target, order));
  for (i = 0; i < kFloats; ++i) EXPECT(numbers[i] == (float)i / 2 * (float)changes);
  if (last_access(target, 2 * kWord, rank, ranks) != 0) return 99;
  MUST(sluice_target_free(&target));
  MUST(sluice_window_free(&owned));
  MUST(sluice_memory_free(&local));
  MUST(sluice_memory_free(&memory));
  return 0;
}
