/* SPDX-License-Identifier: Apache-2.0 */
/* The failures that a program in C meets. */
#include "tests/c/ranks.h"

int errors(sluice_context* context) {
  const sluice_stream order = sluice_stream_program_order();
  const sluice_stream no_stream = {4, NULL};
  sluice_channel_options options = SLUICE_CHANNEL_OPTIONS;
  const int self = sluice_context_rank(context);
  sluice_memory *memory = NULL, *none = NULL;
  sluice_sender *sender = NULL, *second = NULL;
  sluice_receiver* receiver = NULL;
  int landed = -1;
  MUST(sluice_context_allocate(context, 64, SLUICE_SPACE_HOST, -1, &memory));
  EXPECT(sluice_memory_bytes(memory) == 64);
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_context_allocate(context, 0, SLUICE_SPACE_HOST, -1, &none));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_context_allocate(context, 8, 3, -1, &none));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_context_region(context, NULL, 8, &none));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_context_allocate(context, 8, SLUICE_SPACE_HOST, -1, NULL));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_sender_open(context, self, 1, memory, 60, 8, NULL, &sender));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_sender_open(context, 1000, 1, memory, 0, 8, NULL, &sender));
  options.depth = 0;
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_sender_open(context, self, 1, memory, 0, 8, &options, &sender));
  EXPECT(none == NULL && sender == NULL);

  MUST(sluice_sender_open(context, self, 1, memory, 0, 8, NULL, &sender));
  REFUSED(SLUICE_MISUSE, sluice_sender_open(context, self, 1, memory, 0, 8, NULL, &second));
  EXPECT(strstr(sluice_last_error(), "tag 1") != NULL && sluice_last_error_peer() == self);
  REFUSED(SLUICE_TIMEOUT, sluice_channel_wait_connected(sluice_sender_channel(sender), SLUICE_SECOND / 1000));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_channel_wait_connected(sluice_sender_channel(sender), -2));
  MUST(sluice_receiver_open(context, self, 1, memory, 8, 8, NULL, &receiver));
  REFUSED(SLUICE_MISUSE, sluice_receiver_release(receiver, order));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_sender_put_part(sender, order, 4, 8));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_receiver_wait_for(receiver, SLUICE_CONTEXT_TIMEOUT, &landed, NULL));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_receiver_wait_for(receiver, 0, NULL, NULL));
  MUST(sluice_receiver_wait_for(receiver, 1, &landed, NULL));
  EXPECT(landed == 0);
  REFUSED(SLUICE_MISUSE, sluice_sender_put(sender, sluice_stream_host(NULL)));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_sender_put(sender, no_stream));
  MUST(sluice_sender_put(sender, order));
  MUST(sluice_receiver_wait(receiver, order, NULL));
  MUST(sluice_receiver_free(&receiver));
  MUST(sluice_sender_free(&sender));
  MUST(sluice_sender_free(&sender));
  REFUSED(SLUICE_MISUSE, sluice_sender_put(sender, order));
  REFUSED(SLUICE_MISUSE, sluice_context_free(&context));
  MUST(sluice_memory_free(&memory));
  return 0;
}

/* Each rank puts one number to its right neighbour and closes: the neighbour gets that, and no more. */
int closed_peer(sluice_context* context) {
  const sluice_stream order = sluice_stream_program_order();
  const int rank = sluice_context_rank(context), ranks = sluice_context_size(context);
  int numbers[2] = {0, -1}, closed = 0, landed = -1;
  sluice_memory* memory = NULL;
  sluice_sender* out = NULL;
  sluice_receiver* in = NULL;
  numbers[0] = rank;
  MUST(sluice_context_region(context, numbers, sizeof numbers, &memory));
  MUST(sluice_sender_open(context, (rank + 1) % ranks, 2, memory, 0, sizeof(int), NULL, &out));
  MUST(sluice_receiver_open(context, (rank + ranks - 1) % ranks, 2, memory, sizeof(int), sizeof(int), NULL, &in));
  MUST(sluice_sender_put(out, order));
  MUST(sluice_sender_drain(out, SLUICE_CONTEXT_TIMEOUT));
  MUST(sluice_receiver_wait(in, order, NULL));
  EXPECT(numbers[1] == (rank + ranks - 1) % ranks);
  MUST(sluice_receiver_release(in, order));
  MUST(sluice_channel_close(sluice_sender_channel(out), SLUICE_CONTEXT_TIMEOUT));
  while (!closed) {
    MUST(sluice_receiver_wait_for(in, SLUICE_SECOND / 100, &landed, NULL));
    EXPECT(landed == 0);
    MUST(sluice_receiver_closed(in, &closed));
  }
  REFUSED(SLUICE_CLOSED, sluice_receiver_wait(in, order, NULL));
  REFUSED(SLUICE_MISUSE, sluice_sender_put(out, order));
  MUST(sluice_channel_close(sluice_receiver_channel(in), SLUICE_CONTEXT_TIMEOUT));
  MUST(sluice_receiver_free(&in));
  MUST(sluice_sender_free(&out));
  MUST(sluice_memory_free(&memory));
  return 0;
}

int sub_context(sluice_context* context) {
  const int rank = sluice_context_rank(context);
  const int twice[2] = {0, 0};
  sluice_context* sub = NULL;
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_context_sub(context, twice, 2, &sub));
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_context_sub(context, NULL, 2, &sub));
  MUST(sluice_context_sub(context, &rank, 1, &sub));
  EXPECT(sluice_context_rank(sub) == 0 && sluice_context_size(sub) == 1);
  EXPECT(sluice_context_node_rank(sub) == 0 && sluice_context_node_size(sub) == 1);
  MUST(sluice_context_free(&sub));
  return 0;
}

/* The last rank ends with a channel and a window open, on which rank 0 counts. */
int lost_peer(sluice_context* context) {
  static sluice_sender* left_open;  // reachable to the end
  static sluice_window* left_window;
  const sluice_stream order = sluice_stream_program_order();
  const int rank = sluice_context_rank(context), last = sluice_context_size(context) - 1;
  sluice_memory* memory = NULL;
  sluice_receiver* in = NULL;
  sluice_target* target = NULL;
  int connected = 0;
  MUST(sluice_context_allocate(context, 64, SLUICE_SPACE_HOST, -1, &memory));
  if (rank == last) {
    MUST(sluice_window_open(context, "left", memory, 0, 64, &left_window));
    MUST(sluice_sender_open(context, 0, 3, memory, 0, 8, NULL, &left_open));
    MUST(sluice_channel_wait_connected(sluice_sender_channel(left_open), SLUICE_CONTEXT_TIMEOUT));
  }
  if (rank == 0) {
    MUST(sluice_target_open(context, last, "left", &target));
    MUST(sluice_channel_wait_connected(sluice_target_channel(target), SLUICE_CONTEXT_TIMEOUT));
    MUST(sluice_receiver_open(context, last, 3, memory, 8, 8, NULL, &in));
    REFUSED(SLUICE_PEER_LOST, sluice_receiver_wait(in, order, NULL));
    EXPECT(sluice_last_error_peer() == last);
    REFUSED(SLUICE_PEER_LOST, sluice_channel_connected(sluice_receiver_channel(in), &connected));
    while (sluice_channel_connected(sluice_target_channel(target), &connected) == SLUICE_OK) {
    } /* until the target, too, has failed */
    REFUSED(SLUICE_PEER_LOST, sluice_target_get(target, order, memory, 0, 8, 0));
    MUST(sluice_receiver_free(&in));
    MUST(sluice_target_free(&target));
    REFUSED(SLUICE_PEER_LOST, sluice_context_check(context)); /* of the channel */
    REFUSED(SLUICE_PEER_LOST, sluice_context_check(context)); /* of the target */
    MUST(sluice_context_check(context));
  }
  MUST(sluice_memory_free(&memory));
  return 0;
}
