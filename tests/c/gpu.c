/* SPDX-License-Identifier: Apache-2.0 */
/* A program in C99 with streams of CUDA's driver: each rank passes a number to its right neighbour, again and again. */
#include <cuda.h>

#include "tests/c/ranks.h"

struct rank {
  sluice_memory* memory;
  sluice_sender* out;
  sluice_receiver* in;
  CUstream stream;
};

static int start_gpu(CUstream* stream) {
  CUcontext context = NULL;
  EXPECT(cuInit(0) == CUDA_SUCCESS);
  EXPECT(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  EXPECT(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  EXPECT(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  return 0;
}

static CUdeviceptr address(void* slot) { return (CUdeviceptr)(uintptr_t)slot; }

/* The number of this rank is behind the slots of both ends. */
static int pass_on(const struct rank* rank, int times) {
  const sluice_stream stream = sluice_stream_cuda(rank->stream);
  const CUdeviceptr own = address(sluice_memory_data(rank->memory)) + 2 * sizeof(int);
  int i;
  for (i = 0; i < times; ++i) {
    void* slot = NULL;
    MUST(sluice_sender_acquire(rank->out, stream, &slot));
    EXPECT(cuMemcpyDtoDAsync(address(slot), own, sizeof(int), rank->stream) == CUDA_SUCCESS);
    MUST(sluice_sender_put(rank->out, stream));
    MUST(sluice_receiver_wait(rank->in, stream, &slot));
    EXPECT(cuMemcpyDtoDAsync(own, address(slot), sizeof(int), rank->stream) == CUDA_SUCCESS);
    MUST(sluice_receiver_release(rank->in, stream));
  }
  return 0;
}

/* A rank to itself: what kernels would read of the first of several receivers. */
static int first_on_gpu(sluice_context* context, sluice_stream stream) {
  const sluice_stream order = sluice_stream_program_order();
  const int self = sluice_context_rank(context);
  sluice_memory* memory = NULL;
  sluice_sender* out = NULL;
  sluice_receiver* in = NULL;
  sluice_wait_any* any = NULL;
  sluice_ticket* ticket = NULL;
  const uint64_t* arrivals = NULL;
  const sluice_arrival* first = NULL;
  int* numbers;
  MUST(sluice_context_allocate(context, 2 * sizeof(int), SLUICE_SPACE_HOST, -1, &memory));
  numbers = sluice_memory_data(memory);
  numbers[0] = 77;
  MUST(sluice_sender_open(context, self, 2, memory, 0, sizeof(int), NULL, &out));
  MUST(sluice_receiver_open(context, self, 2, memory, sizeof(int), sizeof(int), NULL, &in));
  MUST(sluice_wait_any_create(&any));
  MUST(sluice_wait_any_add(any, in, NULL));
  MUST(sluice_wait_any_enqueue_some(any, stream, &ticket));
  MUST(sluice_ticket_on_device(ticket, &arrivals, &first));
  EXPECT(*arrivals == 0);
  MUST(sluice_wait_any_release(any, stream, ticket));
  MUST(sluice_sender_put(out, order));
  MUST(sluice_context_synchronize(context, stream, SLUICE_FOREVER));
  EXPECT(*arrivals == 1 && first->index == 0 && first->slot == &numbers[1] && first->bytes == sizeof(int));
  EXPECT(numbers[1] == 77);
  MUST(sluice_ticket_free(&ticket));
  MUST(sluice_wait_any_free(&any));
  MUST(sluice_sender_free(&out));
  MUST(sluice_receiver_free(&in));
  return sluice_memory_free(&memory);
}

static int body(sluice_context* context, void* argument) {
  enum { kTimes = 10 };
  const int self = sluice_context_rank(context), ranks = sluice_context_size(context);
  struct rank rank = {NULL, NULL, NULL, NULL};
  sluice_channel_options options = SLUICE_CHANNEL_OPTIONS;
  int number = self;
  sluice_stream stream;
  (void)argument;
  if (start_gpu(&rank.stream) != 0) return 99;
  stream = sluice_stream_cuda(rank.stream);
  options.stream = &stream;
  MUST(sluice_context_allocate(context, 3 * sizeof(int), SLUICE_SPACE_DEVICE, 0, &rank.memory));
  MUST(sluice_sender_open(context, (self + 1) % ranks, 1, rank.memory, 0, sizeof(int), &options, &rank.out));
  MUST(sluice_receiver_open(context, (self + ranks - 1) % ranks, 1, rank.memory, sizeof(int), sizeof(int), &options,
                            &rank.in));
  EXPECT(cuMemcpyHtoDAsync(address(sluice_memory_data(rank.memory)) + 2 * sizeof(int), &number, sizeof(int),
                           rank.stream) == CUDA_SUCCESS);
  if (pass_on(&rank, kTimes) != 0) return 99;
  if (first_on_gpu(context, stream) != 0) return 99;
  MUST(sluice_context_synchronize(context, stream, SLUICE_FOREVER));
  EXPECT(cuMemcpyDtoH(&number, address(sluice_memory_data(rank.memory)) + 2 * sizeof(int), sizeof(int)) ==
         CUDA_SUCCESS);
  EXPECT((number + kTimes) % ranks == self);
  MUST(sluice_receiver_free(&rank.in));
  MUST(sluice_sender_free(&rank.out));
  MUST(sluice_memory_free(&rank.memory));
  return 0;
}

int main(int argc, char** argv) { return sluice_run(argc, argv, body, NULL, NULL); }
