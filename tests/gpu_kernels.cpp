// SPDX-License-Identifier: Apache-2.0
// The library's kernels, and those of tests, for an emulated GPU: their bodies, compiled for the host. Blocks run one
// after the other, each as one thread.
#include "tests/gpu_kernels.hpp"

#include <dlfcn.h>

#include <cstring>
#include <vector>

#include "device/kernel_images.hpp"
#include "device/kernels.hpp"
#include "tests/device/relay.hpp"

namespace sluice::test {
namespace {

using device::Kernel;
using Alias = void* (*)(unsigned long long);
Alias g_alias = nullptr;

std::byte* alias(std::byte* address) {
  void* const found = g_alias(reinterpret_cast<std::uintptr_t>(address));
  return found == nullptr ? address : static_cast<std::byte*>(found);
}

/// What a kernel gets, with the GPU's memory where the processor finds it.
template <class Args>
class Arguments {
 public:
  explicit Arguments(void** parameters) {
    std::memcpy(&args, *parameters, sizeof args);
    ends_.assign(args.ends, args.ends + args.count);
    for (auto& end : ends_) {
      end.target = alias(end.target);
      if constexpr (requires { end.source; }) end.source = alias(end.source);
    }
    args.ends = ends_.data();
  }
  Args args;

 private:
  std::vector<std::remove_cvref_t<decltype(*Args::ends)>> ends_;
};

constexpr kernel::Thread kThread;

template <class Args>
using Body = void (*)(const Args& args, const unsigned* grid);

/// As emucuda.hpp has it.
using Registered = void (*)(void** parameters, unsigned* grid, unsigned* block);
using Register = void (*)(const char* name, Registered kernel);
using SetParameters = void (*)(const char* name, std::size_t count, const std::size_t* bytes);

template <class Args, Body<Args> body>
void run(void** parameters, unsigned* grid, unsigned*) {
  body(Arguments<Args>(parameters).args, grid);
}

void write(void** parameters, unsigned*, unsigned*) {
  device::WriteArgs args{};
  std::memcpy(&args, *parameters, sizeof args);
  kernel::write(args);
}

void put(const device::PutArgs& args, const unsigned* grid) {
  for (unsigned x = 0; x < grid[0]; ++x) kernel::put(kThread, args, x);
}

void copy(const device::CopyArgs& args, const unsigned* grid) {
  for (unsigned y = 0; y < grid[1]; ++y) {
    for (unsigned x = 0; x < grid[0]; ++x) kernel::copy(kThread, args, y, x, grid[0]);
  }
}

/// Its ends are what the library has made, in a class of the program's.
void relay_on_host(void** parameters, unsigned*, unsigned*) {
  kernel::Out out{};
  kernel::In in{};
  RelayArgs args{DeviceSender(out), DeviceReceiver(in), 0, nullptr, nullptr};
  std::memcpy(static_cast<void*>(&args), *parameters, sizeof args);
  std::memcpy(&out, static_cast<void*>(&args.to), sizeof out);
  std::memcpy(&in, static_cast<void*>(&args.from), sizeof in);
  out.source = alias(out.source);
  out.target = alias(out.target);
  in.target = alias(in.target);
  args.to = DeviceSender(out);
  args.from = DeviceReceiver(in);
  relay(kThread, args);
}

template <class Args, void (*body)(const kernel::Thread&, const Args&)>
void one_block(const Args& args, const unsigned*) {
  body(kThread, args);
}

}  // namespace

void add_kernels(void* driver) {
  const auto add = reinterpret_cast<Register>(dlsym(driver, "emucuda_register_kernel"));
  const auto set = reinterpret_cast<SetParameters>(dlsym(driver, "emucuda_kernel_parameters"));
  g_alias = reinterpret_cast<Alias>(dlsym(driver, "emucuda_alias"));
  if (add == nullptr || set == nullptr || g_alias == nullptr) return;
  const auto register_named = [&](const char* name, Registered kernel, std::size_t bytes) {
    set(name, 1, &bytes);
    add(name, kernel);
  };
  const auto register_one = [&](Kernel which, Registered kernel, std::size_t bytes) {
    register_named(device::kKernelNames[static_cast<std::size_t>(which)], kernel, bytes);
  };
  register_named(RelayArgs::kKernel, relay_on_host, sizeof(RelayArgs));
  using namespace device;
  register_one(Kernel::write, write, sizeof(WriteArgs));
  register_one(Kernel::acquire, run<AcquireArgs, one_block<AcquireArgs, kernel::acquire>>, sizeof(AcquireArgs));
  register_one(Kernel::put, run<PutArgs, put>, sizeof(PutArgs));
  register_one(Kernel::begin_put, run<BeginPutArgs, one_block<BeginPutArgs, kernel::begin_put>>, sizeof(BeginPutArgs));
  register_one(Kernel::copy, run<CopyArgs, copy>, sizeof(CopyArgs));
  register_one(Kernel::end_put, run<EndPutArgs, one_block<EndPutArgs, kernel::end_put>>, sizeof(EndPutArgs));
  register_one(Kernel::wait, run<WaitArgs, one_block<WaitArgs, kernel::wait>>, sizeof(WaitArgs));
  register_one(Kernel::release, run<ReleaseArgs, one_block<ReleaseArgs, kernel::release>>, sizeof(ReleaseArgs));
}

}  // namespace sluice::test
