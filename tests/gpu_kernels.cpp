// SPDX-License-Identifier: Apache-2.0
// The kernels of the library, of benchmarks and of tests, for an emulated GPU: their bodies, compiled for the host.
// Blocks run one after the other, each as one thread.
#include "tests/gpu_kernels.hpp"

#include <dlfcn.h>

#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "apps/bench/ours/kernel_ping_pong.hpp"
#include "apps/bench/rivals/programs/raw_ping_pong.hpp"
#include "device/driver.hpp"
#include "device/kernels.hpp"
#include "tests/device/arrivals.hpp"
#include "tests/device/litmus.hpp"
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

/// Arguments of a kernel, with the GPU's memory at its address in this process.
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

template <class Args>
// NOLINTNEXTLINE(readability-non-const-parameter): it is an EmucudaKernel
void small_puts(void** parameters, unsigned* grid, unsigned*) {
  Args args;
  std::memcpy(&args, *parameters, sizeof args);
  for (unsigned x = 0; x < grid[0]; ++x) {
    args.puts[x].to = alias(args.puts[x].to);
    args.puts[x].from = alias(const_cast<std::byte*>(args.puts[x].from));
    kernel::small_put(kThread, args, x);
  }
}

void operate(void** parameters, unsigned*, unsigned*) {
  device::OperateArgs args{};
  std::memcpy(&args, *parameters, sizeof args);
  kernel::operate(args);
}

void put(const device::OutArgs& args, const unsigned* grid) {
  for (unsigned x = 0; x < grid[0]; ++x) kernel::put(kThread, args, x);
}

void copy(const device::OutArgs& args, const unsigned* grid) {
  for (unsigned y = 0; y < grid[1]; ++y) {
    for (unsigned x = 0; x < grid[0]; ++x) kernel::copy(kThread, args, y, x, grid[0]);
  }
}

void reduce(void** parameters, unsigned* grid, unsigned*) {
  device::ReduceArgs args{};
  std::memcpy(&args, *parameters, sizeof args);
  args.to = alias(args.to);
  args.first = alias(const_cast<std::byte*>(args.first));
  args.second = alias(const_cast<std::byte*>(args.second));
  for (unsigned x = 0; x < grid[0]; ++x) kernel::reduce(kThread, args, x, grid[0]);
}

void change(void** parameters, unsigned* grid, unsigned*) {
  device::ChangeArgs args{};
  std::memcpy(&args, *parameters, sizeof args);
  args.there = alias(args.there);
  args.local = alias(args.local);
  for (unsigned x = 0; x < grid[0]; ++x) kernel::change(kThread, args, x, grid[0]);
}

/// Arguments of a program's kernel.
template <class Args>
Args copied(void** parameters) {
  std::array<std::byte, sizeof(Args)> bytes;
  std::memcpy(bytes.data(), *parameters, sizeof bytes);
  return std::bit_cast<Args>(bytes);
}

/// An end of a channel in it, which is what the library has made, in a class of the program's.
template <class End, class Device>
void alias_end(Device& device) {
  auto end = std::bit_cast<End>(device);
  end.target = alias(end.target);
  if constexpr (requires { end.source; }) end.source = alias(end.source);
  device = Device(end);
}

/// A kernel that holds a channel each way.
template <class Args, void (*body)(const kernel::Thread&, const Args&)>
void with_channels(void** parameters, unsigned*, unsigned*) {
  auto args = copied<Args>(parameters);
  alias_end<kernel::Out>(args.to);
  alias_end<kernel::In>(args.from);
  body(kThread, args);
}

void raw_ping_pong(void** parameters, unsigned*, unsigned*) {
  auto args = copied<rivals::RawPingPongArgs>(parameters);
  const auto find = [](auto*& pointer) {
    pointer =
        static_cast<std::remove_reference_t<decltype(pointer)>>(g_alias(reinterpret_cast<std::uintptr_t>(pointer)));
  };
  find(args.source);
  find(args.target);
  find(args.their_signal);
  find(args.my_signal);
  rivals::ping_pong(kThread, args);
}

void fill_slot(void** parameters, unsigned*, unsigned*) {
  const auto args = copied<LitmusArgs>(parameters);
  litmus_fill(kThread, alias(args.slot), args.bytes, args.channel, *args.count);
}

void check_slot(void** parameters, unsigned*, unsigned*) {
  const auto args = copied<LitmusArgs>(parameters);
  litmus_check(kThread, alias(args.slot), args.bytes, args.channel, *args.count);
}

void send(void** parameters, unsigned*, unsigned*) {
  auto args = copied<LitmusSend>(parameters);
  alias_end<kernel::Out>(args.end);
  litmus_send(kThread, args);
}

void receive(void** parameters, unsigned*, unsigned*) {
  auto args = copied<LitmusReceive>(parameters);
  alias_end<kernel::In>(args.end);
  litmus_receive(kThread, args);
}

void note(void** parameters, unsigned*, unsigned*) { note_arrivals(copied<ArrivalsArgs>(parameters), alias); }

template <class Args, void (*body)(const kernel::Thread&, const Args&)>
void one_block(const Args& args, const unsigned*) {
  body(kThread, args);
}

}  // namespace

bool add_kernels(void* driver) {
  const auto add = reinterpret_cast<Register>(dlsym(driver, "emucuda_register_kernel"));
  const auto set = reinterpret_cast<SetParameters>(dlsym(driver, "emucuda_kernel_parameters"));
  g_alias = reinterpret_cast<Alias>(dlsym(driver, "emucuda_alias"));
  if (add == nullptr || set == nullptr || g_alias == nullptr) return false;
  const auto register_named = [&](const char* name, Registered kernel, std::size_t bytes) {
    set(name, 1, &bytes);
    add(name, kernel);
  };
  const auto register_one = [&](Kernel which, Registered kernel, std::size_t bytes) {
    register_named(device::kKernelNames[static_cast<std::size_t>(which)], kernel, bytes);
  };
  constexpr Registered kRelay = with_channels<RelayArgs, relay<RelayManner::whole, kernel::Thread>>;
  for (const char* const name : {RelayArgs::kKernel, RelayArgs::kOfWarp, RelayArgs::kOfThread})
    register_named(name, kRelay, sizeof(RelayArgs));
  register_named(RelayArgs::kInPlace, with_channels<RelayArgs, relay<RelayManner::in_place, kernel::Thread>>,
                 sizeof(RelayArgs));
  register_named(RelayArgs::kOfParts, with_channels<RelayArgs, relay<RelayManner::part, kernel::Thread>>,
                 sizeof(RelayArgs));
  using bench::KernelPingPongArgs;
  register_named(KernelPingPongArgs::kKernel, with_channels<KernelPingPongArgs, bench::ping_pong<kernel::Thread>>,
                 sizeof(KernelPingPongArgs));
  register_named(rivals::RawPingPongArgs::kKernel, raw_ping_pong, sizeof(rivals::RawPingPongArgs));
  register_named(LitmusArgs::kFill, fill_slot, sizeof(LitmusArgs));
  register_named(LitmusArgs::kCheck, check_slot, sizeof(LitmusArgs));
  register_named(LitmusSend::kKernel, send, sizeof(LitmusSend));
  register_named(LitmusReceive::kKernel, receive, sizeof(LitmusReceive));
  register_named(ArrivalsArgs::kKernel, note, sizeof(ArrivalsArgs));
  using namespace device;
  register_one(Kernel::write, write, sizeof(WriteArgs));
  register_one(Kernel::small_puts, small_puts<SmallPutsArgs>, sizeof(SmallPutsArgs));
  register_one(Kernel::few_puts, small_puts<FewPutsArgs>, sizeof(FewPutsArgs));
  register_one(Kernel::operate, operate, sizeof(OperateArgs));
  register_one(Kernel::acquire, run<OutArgs, one_block<OutArgs, kernel::acquire>>, sizeof(OutArgs));
  register_one(Kernel::put, run<OutArgs, put>, sizeof(OutArgs));
  register_one(Kernel::begin_put, run<OutArgs, one_block<OutArgs, kernel::begin_put>>, sizeof(OutArgs));
  register_one(Kernel::copy, run<OutArgs, copy>, sizeof(OutArgs));
  register_one(Kernel::end_put, run<OutArgs, one_block<OutArgs, kernel::end_put>>, sizeof(OutArgs));
  register_one(Kernel::wait, run<InArgs, one_block<InArgs, kernel::wait>>, sizeof(InArgs));
  register_one(Kernel::release, run<InArgs, one_block<InArgs, kernel::release>>, sizeof(InArgs));
  register_one(Kernel::reduce, reduce, sizeof(ReduceArgs));
  register_one(Kernel::change, change, sizeof(ChangeArgs));
  return true;
}

}  // namespace sluice::test

/// Called by an emulated driver, in programs that are not written for it: EMUCUDA_KERNELS.
extern "C" void emucuda_kernels() { sluice::test::add_kernels(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)); }
