// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_call.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "device/reach.hpp"

namespace sluice::device {

void GpuCall::write(base::Word& word, std::uint64_t value) {
  if (words_ == SmallPutsArgs::kMostWords) issue();
  if (puts_ == 0) return add({WordOp::Kind::write, &word, value});
  small_.words[words_] = {reinterpret_cast<std::uint64_t*>(&word.value), value};
  small_.puts[puts_ - 1].words_end = ++words_;
}

void GpuCall::write(void* word, std::uint64_t value) {
  const WordOp one{WordOp::Kind::write, word, value};
  if (puts_ != 0 || words_by_kernels()) issue();
  if (words_by_kernels()) return driver_.operate(stream_, {&one, 1});
  add(one);
}

void GpuCall::begin_copy() {
  if (puts_ != 0 || waits_) issue();
}

void GpuCall::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  begin_copy();
  for_each_part(to, from, bytes,
                [&](std::size_t at, std::size_t some) { driver_.copy(stream_, to + at, from + at, some); });
}

void GpuCall::copy_by_host(std::byte* to, const std::byte* from, std::size_t bytes) {
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  constexpr auto copy_now = [](void* held) {
    const std::unique_ptr<Copy> copy(static_cast<Copy*>(held));
    std::memcpy(copy->to, copy->from, copy->bytes);
  };
  std::unique_ptr<Copy> what(new (std::nothrow) Copy{to, from, bytes});
  if (what == nullptr) throw GpuError("no memory for a copy by the host");
  begin_copy();
  driver_.call(stream_, copy_now, what.get());
  static_cast<void>(what.release());
}

/// Not in parts: pieces of memory matter to the driver's copies alone, not to a kernel's loads and stores.
void GpuCall::copy_by_kernel(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (puts_ == SmallPutsArgs::kMostPuts) issue();
  small_.puts[puts_++] = {to, from, bytes, words_};
  largest_ = std::max(largest_, bytes);
}

void GpuCall::launch_puts() {
  constexpr std::size_t kOfThread = 16;  // bytes of one copy
  FewPutsArgs few;
  const bool are_few = puts_ <= FewPutsArgs::kMostPuts && words_ <= FewPutsArgs::kMostWords;
  if (are_few) {
    std::copy_n(small_.puts, puts_, few.puts);
    std::copy_n(small_.words, words_, few.words);
  }
  const Kernel kernel = are_few ? Kernel::few_puts : Kernel::small_puts;
  void* const args = are_few ? static_cast<void*>(&few) : &small_;
  driver_.launch(device_, stream_, {kernel, args, threads_for(largest_ / kOfThread), static_cast<unsigned>(puts_)});
  puts_ = words_ = largest_ = 0;
}

/// Issues the gathered operations on words: as the stream's own, unless the user wants kernels for them.
void GpuCall::operate() {
  if (!words_by_kernels()) return driver_.operate(stream_, {ops_.data(), count_});
  OperateArgs args;
  args.count = args.waits = 0;
  for (const WordOp& op : std::span(ops_).first(count_)) {
    const bool waits = op.kind == WordOp::Kind::wait;
    args.waits |= std::uint64_t{waits} << args.count;
    args.words[args.count++] = {static_cast<std::uint64_t*>(op.word), op.value};
  }
  driver_.launch(device_, stream_, {Kernel::operate, &args});
}

void GpuCall::issue() {
  if (count_ != 0) operate();
  count_ = 0;
  waits_ = false;
  if (puts_ != 0) launch_puts();
}

}  // namespace sluice::device
