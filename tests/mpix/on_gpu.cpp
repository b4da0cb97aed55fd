// SPDX-License-Identifier: Apache-2.0
// On a GPU alone: its memory.
#ifdef WITH_CUDA
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <span>
#include <thread>

#include <sluice/dialects/mpis.h>

#include "tests/mpix/cray_queue.hpp"
#include "tests/mpix/mpich_comm.hpp"
#include "tests/mpix/programs.hpp"

using namespace stream_mpi_test;

namespace {

/// Numbers in the memory of the GPU, and a pinned copy of the host's. A stream copies between the two.
class GpuInts {
 public:
  explicit GpuInts(std::size_t count) {
    make_gpu_current();
    void* pinned = nullptr;
    cuMemAllocHost(&pinned, count * sizeof(int));
    host_ = {static_cast<int*>(pinned), count};
    std::ranges::fill(host_, -7);
    expect(cuMemAlloc(&device_, bytes()) == CUDA_SUCCESS, "memory of the GPU");
    cuMemcpyHtoD(device_, host_.data(), bytes());
  }
  GpuInts(const GpuInts&) = delete;
  GpuInts& operator=(const GpuInts&) = delete;
  ~GpuInts() {
    cuMemFree(device_);
    cuMemFreeHost(host_.data());
  }

  std::size_t bytes() const { return host_.size() * sizeof(int); }
  std::span<int> host() const { return host_; }
  void stamp_all(int rank, int step) {
    for (std::size_t i = 0; i < host_.size(); ++i) host_[i] = stamp(rank, step, static_cast<int>(i));
  }
  void* on_gpu() const { return reinterpret_cast<void*>(device_); }
  void upload(HostOrder& order) {
    expect(cuMemcpyHtoDAsync(device_, host_.data(), bytes(), order.cuda) == CUDA_SUCCESS, "a copy to the GPU");
  }
  void download(HostOrder& order) {
    expect(cuMemcpyDtoHAsync(host_.data(), device_, bytes(), order.cuda) == CUDA_SUCCESS, "a copy from the GPU");
  }

 private:
  std::span<int> host_;
  CUdeviceptr device_ = 0;
};

}  // namespace

/// Messages of several sizes from memory of the GPU to memory of the GPU. Bytes behind the message stay as they are.
void run_gpu_memory() {
  constexpr std::size_t kGpuMost = 20000;
  GpuInts out(kGpuMost);
  GpuInts in(kGpuMost);
  CrayQueue queue;
  for (int step = 0; step < 12; ++step) {
    const std::size_t count = std::array<std::size_t, 4>{1, 4095, 17, 15000}.at(static_cast<std::size_t>(step) % 4);
    queue.run([&out, &in, step] {
      out.stamp_all(world_rank(), step);
      std::ranges::fill(in.host(), -7);
    });
    out.upload(queue);
    in.upload(queue);
    MPIX_Enqueue_send(out.on_gpu(), static_cast<int>(count), MPI_INT, next_rank(), 3, queue.queue, nullptr);
    MPIX_Enqueue_recv(in.on_gpu(), kGpuMost, MPI_INT, rank_before(), 3, queue.queue, nullptr);
    queue.start_and_wait();
    in.download(queue);
    queue.run([&in, step, count] {
      for (std::size_t i = 0; i < in.host().size(); ++i)
        expect_equal(in.host()[i], i < count ? stamp(rank_before(), step, static_cast<int>(i)) : -7, "GPU memory");
    });
  }
  queue.wait();
}

/// Requests, sums and a datatype with gaps, with buffers in memory of the GPU.
void run_gpu_requests() {
  constexpr int kGpuRows = 500;
  GpuInts out(2 * kGpuRows);
  GpuInts in(kGpuRows);
  GpuInts sum(2 * kGpuRows);
  MPI_Datatype column = MPI_DATATYPE_NULL;
  MPI_Type_vector(kGpuRows, 1, 2, MPI_INT, &column);
  MPI_Type_commit(&column);
  StreamComm order;
  for (int step = 0; step < 5; ++step) {
    order.run([&out, step] { out.stamp_all(world_rank(), step); });
    out.upload(order);
    std::array<MPI_Request, 2> requests{};
    MPI_Status status;
    MPIX_Irecv_enqueue(in.on_gpu(), kGpuRows, MPI_INT, rank_before(), 1, order.comm, requests.data());
    MPIX_Isend_enqueue(out.on_gpu(), 1, column, next_rank(), 1, order.comm, &requests[1]);
    expect_equal(MPIX_Wait_enqueue(requests.data(), &status), MPI_SUCCESS, "a wait");
    expect_equal(MPIX_Waitall_enqueue(1, &requests[1], MPI_STATUSES_IGNORE), MPI_SUCCESS, "a wait for all");
    expect_equal(MPIX_Allreduce_enqueue(out.on_gpu(), sum.on_gpu(), 2 * kGpuRows, MPI_INT, MPI_SUM, order.comm),
                 MPI_SUCCESS, "a sum");
    in.download(order);
    sum.download(order);
    order.run([&, step] {
      int expected = 0;
      for (int rank = 0; rank < world_size(); ++rank) expected += stamp(rank, step, 1);
      expect_equal(sum.host()[1], expected, "a sum in memory of the GPU");
      for (int i = 0; i < kGpuRows; ++i)
        expect_equal(in.host()[static_cast<std::size_t>(i)], stamp(rank_before(), step, 2 * i), "a column");
    });
    order.wait();
    int count = 0;
    MPI_Get_count(&status, MPI_INT, &count);
    expect_equal(count, kGpuRows, "the count of a message from memory of the GPU");
  }
  MPI_Type_free(&column);
}

/// Nothing moves before the stream comes there, and it does not go on before the message is complete. Bytes of a send
/// that is waited for may be overwritten by the stream.
void run_gpu_order() {
  constexpr std::size_t kGpuFew = 100;
  GpuInts first(kGpuFew);
  GpuInts second(kGpuFew);
  GpuInts in(kGpuFew);
  std::vector<int> at_host = poisoned(kGpuFew);
  std::vector<int> in_host = poisoned(kGpuFew);
  second.stamp_all(world_rank() + 50, 0);
  cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(second.on_gpu()), second.host().data(), second.bytes());
  StreamComm order;
  for (int step = 0; step < 5; ++step) {
    std::atomic<bool> open = false;
    order.run([&open] { open.wait(false); });
    order.run([&, step] {
      first.stamp_all(world_rank(), step);
      fill(at_host, world_rank() + 20, step);
    });
    first.upload(order);
    const MPI_Request receive = order.begin_receive(in_host, rank_before(), 2);
    const MPI_Request send = order.begin_send(at_host, next_rank(), 2);
    MPI_Request to_gpu = MPI_REQUEST_NULL;
    MPIX_Irecv_enqueue(in.on_gpu(), kGpuFew, MPI_INT, rank_before(), 1, order.comm, &to_gpu);
    MPIX_Send_enqueue(first.on_gpu(), kGpuFew, MPI_INT, next_rank(), 1, order.comm);
    cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(first.on_gpu()), reinterpret_cast<CUdeviceptr>(second.on_gpu()),
                      first.bytes(), order.cuda);
    order.wait_all({to_gpu, receive, send});
    in.download(order);
    order.run([&, step] {
      expect_filled({in.host().begin(), in.host().end()}, rank_before(), step, "a message in the GPU's order");
      expect_filled(in_host, rank_before() + 20, step, "a message of the host, in that order");
    });
    expect(cuStreamQuery(order.cuda) == CUDA_ERROR_NOT_READY, "a stream that is held up");
    MPI_Barrier(MPI_COMM_WORLD);
    expect(at_host == poisoned(kGpuFew) || step > 0, "a buffer of a message that has not started");
    open = true;
    open.notify_all();
    order.wait();
  }
}

/// Large messages that have started arrive while the streams of both ranks are held up by work behind the starts.
void run_gpu_meanwhile() {
  GpuInts out(100000);
  std::vector<int> in = poisoned(100000);
  StreamComm order;
  std::atomic<bool> open = false;
  order.run([&out] { out.stamp_all(world_rank(), 1); });
  out.upload(order);
  const MPI_Request receive = order.begin_receive(in, rank_before());
  MPI_Request send = MPI_REQUEST_NULL;
  MPIX_Isend_enqueue(out.on_gpu(), 100000, MPI_INT, next_rank(), 0, order.comm, &send);
  order.run([&open] { open.wait(false); });
  order.wait_all({receive, send});
  // No thread but that of the library can bring them.
  auto* const last = static_cast<volatile int*>(&in.back());
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (*last == -7 && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  expect(*last != -7, "a message that arrives while the GPU works");
  open = true;
  open.notify_all();
  order.wait();
  expect_filled(in, rank_before(), 1, "a message that arrives while the GPU works");
}

/// With a short SLUICE_TIMEOUT: a stream that comes to a wait later than that after the call, and so does the message.
void run_gpu_late() {
  CrayQueue first;
  CrayQueue second;
  std::vector<int> in = poisoned(5);
  std::vector<int> out = poisoned(5);
  fill(out, 0, 2);
  std::atomic<bool> open = false;
  first.receive(in, 0);
  first.start();
  first.run([&open] { open.wait(false); });
  first.wait_on_stream();
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  second.send(out, 0);
  second.start_and_wait();
  open = true;
  open.notify_all();
  first.wait();
  expect_filled(in, 0, 2, "a message of a stream that comes late");
}

/// A stream that captures a graph takes no messages. A refused call changes nothing.
void run_gpu_captures() {
  StreamComm order;
  std::vector<int> out = poisoned(5);
  std::vector<int> in = poisoned(5);
  fill(out, world_rank(), 1);
  const auto expect_refused = [&order](auto call, const char* what) {
    CUgraph graph = nullptr;
    cuStreamBeginCapture(order.cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    const int code = call();
    cuStreamEndCapture(order.cuda, &graph);
    if (graph != nullptr) cuGraphDestroy(graph);
    expect(code != MPI_SUCCESS, what);
  };
  MPI_Request request = MPI_REQUEST_NULL;
  expect_refused([&] { return MPIX_Isend_enqueue(out.data(), 5, MPI_INT, next_rank(), 0, order.comm, &request); },
                 "a send in a capture");
  expect_refused([&] { return MPIX_Allreduce_enqueue(out.data(), in.data(), 5, MPI_INT, MPI_SUM, order.comm); },
                 "a sum in a capture");
  std::vector<MPI_Request> requests{order.begin_receive(in, rank_before()), order.begin_send(out, next_rank())};
  expect_refused([&] { return MPIX_Waitall_enqueue(2, requests.data(), MPI_STATUSES_IGNORE); }, "a wait in a capture");
  order.wait_all(requests);
  order.wait();
  expect_filled(in, rank_before(), 1, "a message behind refused ones");
}

/// Memory of the library is freed behind a stream that waits, which the driver would wait for.
void run_gpu_freed() {
  CrayQueue first;
  CrayQueue second;
  std::vector<int> in = poisoned(3);
  std::vector<int> out = poisoned(3);
  fill(out, 0, 1);
  void* memory = nullptr;
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "mpi_memory_alloc_kinds", "cuda:device");
  expect_equal(MPIS_Alloc_mem(8 << 20, info, &memory), MPIS_SUCCESS, "memory of the GPU");
  MPI_Info_free(&info);
  first.receive(in, 0);
  first.start_and_wait();
  expect_equal(MPIS_Free_mem(memory), MPIS_SUCCESS, "the end of memory");
  second.send(out, 0);
  second.start_and_wait();
  second.wait();
  first.wait();
  expect_filled(in, 0, 1, "a message of another stream");
}

/// On the emulated GPU: its context fails before its stream comes to a message.
void run_gpu_failed() {
  HostOrder order;
  MPIX_Queue queue = nullptr;
  std::vector<int> in = poisoned(3);
  std::atomic<bool> open = false;
  expect_equal(MPIX_Create_queue(order.handle_of_stream(), &queue), MPI_SUCCESS, "a queue");
  order.run([&open] { open.wait(false); });
  MPIX_Enqueue_recv(in.data(), 3, MPI_INT, 0, 1, queue, nullptr);
  expect_equal(MPIX_Enqueue_start(queue), MPI_SUCCESS, "a start");
  expect_equal(MPIX_Enqueue_wait(queue), MPI_SUCCESS, "a wait of the stream");
  auto* const fail = reinterpret_cast<void (*)(CUresult)>(dlsym(RTLD_DEFAULT, "emucuda_fail"));
  expect(fail != nullptr, "an emulated driver");
  fail(CUDA_ERROR_ILLEGAL_ADDRESS);
  open = true;
  open.notify_all();
  expect_equal(MPIX_Free_queue(queue), MPI_ERR_OTHER, "the end of a queue of a GPU that has failed");
}

/// A GPU whose streams cannot wait for words.
void run_gpu_refused() {
  HostOrder order;
  MPIX_Queue queue = nullptr;
  expect_equal(MPIX_Create_queue(order.handle_of_stream(), &queue), MPI_ERR_UNSUPPORTED_OPERATION, "a queue");
  expect(queue == nullptr, "a queue that was not made");
}
#endif
