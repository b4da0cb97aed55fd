// SPDX-License-Identifier: Apache-2.0
// A sum over all ranks, in a ring: at each step every rank passes the numbers that it got from the left on to the
// right. One kernel does all steps. Without a GPU a host stream does the same. For CUDA and HIP.
#include <sluice/device.hpp>
#include <sluice/sluice.hpp>

#if defined(__HIP__)
#include <hip/hip_runtime.h>
#define GPU(name) hip##name
#else
#include <cuda_runtime.h>
#define GPU(name) cuda##name
#endif

#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kNumbers = 1000;
constexpr std::size_t kBytes = kNumbers * sizeof(int);

/// `passing` begins with this rank's numbers and gets those of each other rank, one after the other. The kernel returns
/// early if a channel fails; `synchronize` then throws the reason.
__global__ void ring_sum(sluice::DeviceSender right, sluice::DeviceReceiver left, int* passing, int* sum, int steps) {
  const sluice::kernel::Block block;
  for (int step = 0; step < steps; ++step) {
    std::byte* slot = nullptr;
    if (right.acquire(block, slot) != sluice::DeviceResult::ok) return;
    for (auto i = block.index(); i < kNumbers; i += block.size()) reinterpret_cast<int*>(slot)[i] = passing[i];
    right.put(block);
    const std::byte* came = nullptr;
    if (left.wait(block, came) != sluice::DeviceResult::ok) return;
    for (auto i = block.index(); i < kNumbers; i += block.size())
      sum[i] += passing[i] = reinterpret_cast<const int*>(came)[i];
    left.release(block);
  }
}

void check(GPU(Error_t) error, const char* what) {
  if (error != GPU(Success)) throw std::runtime_error(std::string(what) + ": " + GPU(GetErrorString)(error));
}

sluice::Stream of_gpu(GPU(Stream_t) stream) {
#if defined(__HIP__)
  return sluice::Stream::hip(stream);
#else
  return sluice::Stream::cuda(stream);
#endif
}

struct Neighbours {
  int right, left;
};

std::vector<int> on_gpu(sluice::Context& ctx, Neighbours ranks, int device) {
  check(GPU(SetDevice)(device), "choosing a GPU");
  GPU(Stream_t) raw = nullptr;
  check(GPU(StreamCreateWithFlags)(&raw, GPU(StreamNonBlocking)), "making a stream");
  const sluice::Stream stream = of_gpu(raw);
  std::vector<int> sum(kNumbers);
  {
    sluice::Memory memory = ctx.allocate(4 * kBytes, sluice::Space::device);
    sluice::Sender out = ctx.sender(ranks.right, 0, memory.slice(0, kBytes), {.stream = stream});
    sluice::Receiver in = ctx.receiver(ranks.left, 0, memory.slice(kBytes, kBytes), {.stream = stream});
    const sluice::Slice own = memory.slice(2 * kBytes, 2 * kBytes);
    int* const passing = own.as<int>().data();
    int* const sums = passing + kNumbers;

    const std::vector<int> mine(kNumbers, ctx.rank() + 1);
    check(GPU(MemcpyAsync)(passing, mine.data(), kBytes, GPU(MemcpyHostToDevice), raw), "copying to the GPU");
    check(GPU(MemsetAsync)(sums, 0, kBytes, raw), "clearing memory of the GPU");
    ring_sum<<<1, 256, 0, raw>>>(out.on_device(stream), in.on_device(stream), passing, sums, ctx.size());
    check(GPU(GetLastError)(), "starting the kernel");
    check(GPU(MemcpyAsync)(sum.data(), sums, kBytes, GPU(MemcpyDeviceToHost), raw), "copying from the GPU");
    ctx.synchronize(stream);
  }  // the stream must outlive the channels that are used on it
  check(GPU(StreamDestroy)(raw), "giving a stream back");
  return sum;
}

std::vector<int> on_host(sluice::Context& ctx, Neighbours ranks) {
  sluice::HostStream host;
  const sluice::Stream stream = sluice::Stream::host(host);
  sluice::Memory memory = ctx.allocate(2 * kBytes);
  sluice::Sender out = ctx.sender(ranks.right, 0, memory.slice(0, kBytes));
  sluice::Receiver in = ctx.receiver(ranks.left, 0, memory.slice(kBytes, kBytes));

  std::vector<int> passing(kNumbers, ctx.rank() + 1), sum(kNumbers);
  for (int step = 0; step < ctx.size(); ++step) {
    host.run([&passing, to = out.acquire(stream)] {
      for (int i = 0; i < kNumbers; ++i) to.as<int>()[i] = passing[i];
    });
    out.put(stream);
    host.run([&passing, &sum, from = in.wait(stream)] {
      for (int i = 0; i < kNumbers; ++i) sum[i] += passing[i] = from.as<int>()[i];
    });
    in.release(stream);
  }
  ctx.synchronize(stream);
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  return sluice::run(argc, argv, [](sluice::Context& ctx) {
    const Neighbours ranks{(ctx.rank() + 1) % ctx.size(), (ctx.rank() + ctx.size() - 1) % ctx.size()};
    int gpus = 0;
    if (GPU(GetDeviceCount)(&gpus) != GPU(Success)) gpus = 0;  // without a driver or a GPU this is an error
    const std::vector<int> sum = gpus > 0 ? on_gpu(ctx, ranks, ctx.node_rank() % gpus) : on_host(ctx, ranks);

    const int expected = ctx.size() * (ctx.size() + 1) / 2;
    for (const int one : sum) {
      if (one != expected) throw std::runtime_error(std::to_string(one) + " instead of " + std::to_string(expected));
    }
    std::printf("rank %d: the sum is %d, %s\n", ctx.rank(), expected, gpus > 0 ? "by a kernel" : "without a GPU");
    std::fflush(stdout);  // a job that is killed has its lines, in a file too
  });
}
