/* SPDX-License-Identifier: Apache-2.0 */
/* Channels: rings in program order and on a host stream, a plan, and the first of several receivers. */
#include "tests/c/ranks.h"

enum { kNumbers = 1000, kDepth = 2, kEpochs = 50, kTag = 7 };

static const size_t kSlot = kNumbers * sizeof(int);

struct ring {
  sluice_memory* memory;
  sluice_sender* out;
  sluice_receiver* in;
  int left;
  int right;
};

static int open_ring(sluice_context* context, struct ring* ring) {
  const int ranks = sluice_context_size(context);
  sluice_channel_options options = SLUICE_CHANNEL_OPTIONS;
  ring->right = (sluice_context_rank(context) + 1) % ranks;
  ring->left = (sluice_context_rank(context) + ranks - 1) % ranks;
  options.depth = kDepth;
  options.scope = "ring";
  options.contents = "numbers";
  options.lengths = 1;
  MUST(sluice_context_allocate(context, (1 + kDepth) * kSlot, SLUICE_SPACE_HOST, -1, &ring->memory));
  MUST(sluice_receiver_open(context, ring->left, kTag, ring->memory, kSlot, kDepth * kSlot, &options, &ring->in));
  options.depth = 1;
  MUST(sluice_sender_open(context, ring->right, kTag, ring->memory, 0, kSlot, &options, &ring->out));
  return 0;
}

static int free_ring(struct ring* ring) {
  MUST(sluice_sender_free(&ring->out));
  MUST(sluice_receiver_free(&ring->in));
  MUST(sluice_memory_free(&ring->memory));
  EXPECT(ring->out == NULL && ring->in == NULL && ring->memory == NULL);
  return 0;
}

static void stamp(int* numbers, int rank, int epoch) {
  int i;
  for (i = 0; i < kNumbers; ++i) numbers[i] = rank * 1000000 + epoch * 1000 + i;
}

static int is_stamped(const int* numbers, int first, int end, int rank, int epoch) {
  int i;
  for (i = first; i < end; ++i) {
    if (numbers[i] != rank * 1000000 + epoch * 1000 + i) return 0;
  }
  return 1;
}

int ring(sluice_context* context) {
  const sluice_stream order = sluice_stream_program_order();
  struct ring ring;
  const char* text = NULL;
  int epoch, connected = 0, credited = 0;
  if (open_ring(context, &ring) != 0) return 99;
  MUST(sluice_channel_wait_connected(sluice_sender_channel(ring.out), SLUICE_CONTEXT_TIMEOUT));
  MUST(sluice_channel_connected(sluice_sender_channel(ring.out), &connected));
  MUST(sluice_sender_credited(ring.out, &credited));
  EXPECT(connected == 1 && credited == 1);
  for (epoch = 1; epoch <= kEpochs; ++epoch) {
    const size_t part = (size_t)epoch * sizeof(int);
    void *source = NULL, *target = NULL;
    size_t bytes = 0;
    int landed = 0;
    MUST(sluice_sender_acquire(ring.out, order, &source));
    stamp(source, sluice_context_rank(context), epoch);
    MUST(sluice_sender_put_part(ring.out, order, part, part));
    if (epoch % 2 == 0) {
      MUST(sluice_receiver_wait_for(ring.in, 20 * SLUICE_SECOND, &landed, &target));
      EXPECT(landed == 1);
    } else {
      MUST(sluice_receiver_wait(ring.in, order, &target));
    }
    MUST(sluice_receiver_bytes(ring.in, &bytes));
    EXPECT(bytes == part);
    EXPECT(is_stamped(target, epoch, 2 * epoch, ring.left, epoch));
    MUST(sluice_receiver_release(ring.in, order));
  }
  EXPECT(sluice_channel_peer(sluice_receiver_channel(ring.in)) == ring.left);
  EXPECT(sluice_channel_tag(sluice_receiver_channel(ring.in)) == kTag);
  EXPECT(sluice_channel_epoch(sluice_sender_channel(ring.out)) == kEpochs);
  MUST(sluice_channel_describe(sluice_sender_channel(ring.out), &text));
  EXPECT(strstr(text, "tag 7") != NULL);
  MUST(sluice_sender_drain(ring.out, SLUICE_CONTEXT_TIMEOUT));
  MUST(sluice_channel_close(sluice_sender_channel(ring.out), SLUICE_CONTEXT_TIMEOUT));
  MUST(sluice_channel_close(sluice_sender_channel(ring.out), SLUICE_CONTEXT_TIMEOUT));
  return free_ring(&ring);
}

struct step {
  void* slot;
  int rank;
  int epoch;
  int* wrong;
};

static int fill_slot(void* argument) {
  const struct step* const step = argument;
  stamp(step->slot, step->rank, step->epoch);
  return 0;
}

static int read_slot(void* argument) {
  const struct step* const step = argument;
  *step->wrong += !is_stamped(step->slot, 0, kNumbers, step->rank, step->epoch);
  return 0;
}

int ring_on_a_host_stream(sluice_context* context) {
  sluice_host_stream_options options = SLUICE_HOST_STREAM_OPTIONS;
  struct step sent[kEpochs], received[kEpochs];
  sluice_host_stream* host = NULL;
  sluice_stream stream;
  struct ring ring;
  int epoch, wrong = 0;
  options.capacity = 1024;
  options.name = "ring";
  MUST(sluice_host_stream_create(&options, &host));
  stream = sluice_stream_host(host);
  if (open_ring(context, &ring) != 0) return 99;
  for (epoch = 1; epoch <= kEpochs; ++epoch) {
    struct step* const send = &sent[epoch - 1];
    struct step* const receive = &received[epoch - 1];
    send->rank = sluice_context_rank(context);
    receive->rank = ring.left;
    send->epoch = receive->epoch = epoch;
    receive->wrong = &wrong;
    MUST(sluice_sender_acquire(ring.out, stream, &send->slot));
    MUST(sluice_host_stream_run(host, fill_slot, send));
    MUST(sluice_sender_put(ring.out, stream));
    MUST(sluice_receiver_wait(ring.in, stream, &receive->slot));
    MUST(sluice_host_stream_run(host, read_slot, receive));
    MUST(sluice_receiver_release(ring.in, stream));
  }
  MUST(sluice_context_synchronize(context, stream, SLUICE_FOREVER));
  MUST(sluice_host_stream_synchronize(host, SLUICE_FOREVER));
  EXPECT(wrong == 0);
  EXPECT(!sluice_host_stream_failed(host));
  if (free_ring(&ring) != 0) return 99;
  MUST(sluice_host_stream_free(&host));
  return 0;
}

int halo_by_a_plan(sluice_context* context) {
  const sluice_stream order = sluice_stream_program_order();
  const char* text = NULL;
  sluice_plan* plan = NULL;
  struct ring ring;
  int epoch;
  if (open_ring(context, &ring) != 0) return 99;
  MUST(sluice_plan_create(context, &plan));
  MUST(sluice_plan_add_sender(plan, ring.out));
  MUST(sluice_plan_add_receiver(plan, ring.in));
  REFUSED(SLUICE_MISUSE, sluice_plan_start(plan, order));
  MUST(sluice_plan_commit(plan, order, SLUICE_CONTEXT_TIMEOUT));
  for (epoch = 1; epoch <= kEpochs; ++epoch) {
    void *source = NULL, *target = NULL;
    MUST(sluice_plan_acquire(plan, order));
    MUST(sluice_plan_sender_slot(plan, ring.out, &source));
    stamp(source, sluice_context_rank(context), epoch);
    MUST(sluice_plan_start(plan, order));
    MUST(sluice_plan_wait(plan, order));
    MUST(sluice_plan_receiver_slot(plan, ring.in, &target));
    EXPECT(is_stamped(target, 0, kNumbers, ring.left, epoch));
    MUST(sluice_plan_release(plan, order));
  }
  REFUSED(SLUICE_MISUSE, sluice_sender_put(ring.out, order));
  MUST(sluice_plan_describe(plan, &text));
  EXPECT(strlen(text) > 0);
  MUST(sluice_plan_free(&plan));
  return free_ring(&ring);
}

/* In a callable behind the wait. */
struct seen {
  const sluice_ticket* ticket;
  int number;
};
static int see(void* argument) {
  struct seen* const seen = argument;
  sluice_arrival arrival;
  size_t arrivals = 0;
  if (sluice_ticket_arrivals(seen->ticket, &arrivals) != SLUICE_OK || arrivals != 1) return 98;
  if (sluice_ticket_arrival(seen->ticket, 0, &arrival) != SLUICE_OK || arrival.bytes != sizeof(int)) return 98;
  seen->number = *(int*)arrival.slot;
  return 0;
}

int first_of_several_on_a_stream(sluice_context* context) {
  const sluice_stream order = sluice_stream_program_order();
  sluice_host_stream* host = NULL;
  sluice_memory* memory = NULL;
  sluice_sender* out = NULL;
  sluice_receiver* in = NULL;
  sluice_wait_any* any = NULL;
  sluice_ticket *tickets[2] = {NULL, NULL}, *last = NULL;
  struct seen seen[2];
  sluice_arrival arrival;
  const uint64_t* count = NULL;
  const sluice_arrival* first = NULL;
  size_t arrivals = 99;
  int i, *numbers;
  MUST(sluice_host_stream_create(NULL, &host));
  MUST(sluice_context_allocate(context, 2 * sizeof(int), SLUICE_SPACE_HOST, -1, &memory));
  numbers = sluice_memory_data(memory);
  MUST(sluice_sender_open(context, sluice_context_rank(context), 7, memory, 0, sizeof(int), NULL, &out));
  MUST(sluice_receiver_open(context, sluice_context_rank(context), 7, memory, sizeof(int), sizeof(int), NULL, &in));
  MUST(sluice_wait_any_create(&any));
  MUST(sluice_wait_any_add(any, in, NULL));
  for (i = 0; i < 2; ++i) {
    const sluice_stream stream = sluice_stream_host(host);
    MUST(i == 0 ? sluice_wait_any_enqueue(any, stream, &tickets[i])
                : sluice_wait_any_enqueue_some(any, stream, &tickets[i]));
    seen[i].ticket = tickets[i];
    MUST(sluice_host_stream_run(host, see, &seen[i]));
    MUST(sluice_wait_any_release(any, stream, tickets[i]));
    REFUSED(SLUICE_MISUSE, sluice_wait_any_release(any, stream, tickets[i]));
  }
  REFUSED(SLUICE_MISUSE, sluice_ticket_arrivals(tickets[0], &arrivals));
  for (i = 0; i < 2; ++i) {
    void* slot = NULL;
    MUST(sluice_sender_acquire(out, order, &slot));
    numbers[0] = 20 + i;
    MUST(sluice_sender_put(out, order));
  }
  MUST(sluice_host_stream_synchronize(host, SLUICE_FOREVER));
  for (i = 0; i < 2; ++i) EXPECT(seen[i].number == 20 + i);
  REFUSED(SLUICE_BAD_ARGUMENT, sluice_ticket_arrival(tickets[0], 1, &arrival));
  REFUSED(SLUICE_MISUSE, sluice_ticket_on_device(tickets[0], &count, &first));
  MUST(sluice_sender_free(&out));
  MUST(sluice_wait_any_enqueue(any, order, &last));
  MUST(sluice_ticket_arrival(last, 0, &arrival));
  EXPECT(arrival.index == 0 && arrival.slot == NULL);
  for (i = 0; i < 2; ++i) MUST(sluice_ticket_free(&tickets[i]));
  MUST(sluice_ticket_free(&last));
  MUST(sluice_wait_any_free(&any));
  MUST(sluice_receiver_free(&in));
  MUST(sluice_memory_free(&memory));
  MUST(sluice_host_stream_free(&host));
  return 0;
}

/* Each rank sends its number once to each rank, and takes what comes first. */
int first_of_several(sluice_context* context) {
  enum { kMost = 16 };
  const sluice_stream order = sluice_stream_program_order();
  const int ranks = sluice_context_size(context);
  sluice_memory* memory = NULL;
  sluice_sender* out[kMost];
  sluice_receiver* in[kMost];
  sluice_wait_any* any = NULL;
  int *numbers, rank, closings = 0, sum = 0;
  EXPECT(ranks <= kMost);
  MUST(sluice_context_allocate(context, (size_t)(1 + ranks) * sizeof(int), SLUICE_SPACE_HOST, -1, &memory));
  numbers = sluice_memory_data(memory);
  numbers[0] = 10 + sluice_context_rank(context);
  MUST(sluice_wait_any_create(&any));
  for (rank = 0; rank < ranks; ++rank) {
    size_t index = 99;
    MUST(sluice_sender_open(context, rank, 1, memory, 0, sizeof(int), NULL, &out[rank]));
    MUST(
        sluice_receiver_open(context, rank, 1, memory, (size_t)(1 + rank) * sizeof(int), sizeof(int), NULL, &in[rank]));
    MUST(sluice_wait_any_add(any, in[rank], &index));
    EXPECT(index == (size_t)rank);
  }
  for (rank = 0; rank < ranks; ++rank) MUST(sluice_sender_put(out[rank], order));
  for (rank = 0; rank < ranks; ++rank) MUST(sluice_sender_drain(out[rank], SLUICE_CONTEXT_TIMEOUT));
  while (closings < ranks) {
    size_t index = 99;
    void* slot = NULL;
    int closed = -1;
    MUST(sluice_wait_any_wait(any, SLUICE_CONTEXT_TIMEOUT, &index, &slot, &closed));
    if (closed) {
      ++closings;
      continue;
    }
    EXPECT(*(int*)slot == 10 + (int)index);
    MUST(sluice_receiver_release(in[index], order));
    if (++sum == ranks) {
      for (rank = 0; rank < ranks; ++rank) MUST(sluice_sender_free(&out[rank]));
    }
  }
  EXPECT(sluice_wait_any_left(any) == 0);
  {
    size_t index = 0;
    int closed = 0;
    REFUSED(SLUICE_CLOSED, sluice_wait_any_wait(any, SLUICE_CONTEXT_TIMEOUT, &index, NULL, &closed));
  }
  for (rank = 0; rank < ranks; ++rank) MUST(sluice_receiver_free(&in[rank]));
  MUST(sluice_wait_any_free(&any));
  MUST(sluice_memory_free(&memory));
  return 0;
}
