/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank sends its number to its right neighbour, on a stream, and checks the number from its left neighbour. */
#include <sluice/sluice.h>

#include <stdio.h>

/* Ends the function with the code of a call that fails. */
#define TRY(call)                       \
  do {                                  \
    const sluice_code code = (call);    \
    if (code != SLUICE_OK) return code; \
  } while (0)

struct message {
  void* slot;
  int number;
};

struct rank {
  sluice_host_stream* host;
  sluice_memory* memory;
  sluice_sender* sender;
  sluice_receiver* receiver;
  struct message out;
  struct message in;
};

static int fill(void* argument) {
  struct message* const out = argument;
  *(int*)out->slot = out->number;
  return 0;
}

static int take(void* argument) {
  struct message* const in = argument;
  in->number = *(int*)in->slot;
  return 0;
}

static int pass_on(sluice_context* context, struct rank* self, int left, int right) {
  sluice_stream stream;
  TRY(sluice_host_stream_create(NULL, &self->host));
  stream = sluice_stream_host(self->host);
  TRY(sluice_context_allocate(context, 2 * sizeof(int), SLUICE_SPACE_HOST, -1, &self->memory));
  TRY(sluice_sender_open(context, right, 0, self->memory, 0, sizeof(int), NULL, &self->sender));
  TRY(sluice_receiver_open(context, left, 0, self->memory, sizeof(int), sizeof(int), NULL, &self->receiver));

  TRY(sluice_sender_acquire(self->sender, stream, &self->out.slot));
  TRY(sluice_host_stream_run(self->host, fill, &self->out));
  TRY(sluice_sender_put(self->sender, stream));
  TRY(sluice_receiver_wait(self->receiver, stream, &self->in.slot));
  TRY(sluice_host_stream_run(self->host, take, &self->in));
  TRY(sluice_receiver_release(self->receiver, stream));
  return sluice_context_synchronize(context, stream, SLUICE_FOREVER);
}

static int body(sluice_context* context, void* argument) {
  const int rank = sluice_context_rank(context), ranks = sluice_context_size(context);
  const int left = (rank + ranks - 1) % ranks;
  struct rank self = {NULL, NULL, NULL, NULL, {NULL, 0}, {NULL, -1}};
  int failed;
  (void)argument;
  self.out.number = rank;
  failed = pass_on(context, &self, left, (rank + 1) % ranks);
  if (failed) sluice_context_abort(context, "a rank has failed"); /* so that nothing below waits for a peer */
  sluice_receiver_free(&self.receiver);
  sluice_sender_free(&self.sender);
  sluice_host_stream_free(&self.host); /* before what its callables use ends */
  sluice_memory_free(&self.memory);
  if (failed) return failed; /* `sluice_run` prints the failure, and returns 1 */
  if (self.in.number != left) return 1;
  printf("rank %d of %d: got %d from the left\n", rank, ranks, self.in.number);
  fflush(stdout); /* a job that is killed has its lines, in a file too */
  return 0;
}

int main(int argc, char** argv) { return sluice_run(argc, argv, body, NULL, NULL); }
