// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/access.hpp"

#include <stdexcept>
#include <utility>

#include "backends/access.hpp"
#include "backends/shm/cross_memory.hpp"

namespace sluice::backends::shm {
namespace {

/// The kernel copies, and knows no atomics.
class KernelAccess final : public StreamAccess {
 public:
  KernelAccess(CrossMemory offered, std::size_t bytes, Counters counters, device::Watch& watch, Mapped mapped)
      : StreamAccess({.offered = bytes, .no_atomics = kNotMapped, .no_gpus = kNotMapped}, counters, watch,
                     "shm: by the kernel's cross-memory copy, since the peer's memory cannot be mapped"),
        offered_(offered), mapped_(std::move(mapped)) {}

  Held forget_peer() noexcept override { return {std::exchange(mapped_, {}), {}}; }

 private:
  static constexpr const char* kNotMapped = "it cannot be mapped";

  void carry_out(device::Lane, const Request& request) override {
    const auto call = request.kind == Request::Kind::get ? process_vm_readv : process_vm_writev;
    offered_.copy(call, request.local.data(), request.offset, request.local.size(), watch_);
  }

  CrossMemory offered_;
  Mapped mapped_;  // the counters
};

}  // namespace

Offer offer_memory(const device::Extent& memory, const device::Extent& counters, Sent& sent) {
  check_offered(memory);
  Target target;
  target.slots = where(memory, memory.data);
  target.slot_bytes = memory.bytes;
  target.bounced = memory.segment == nullptr;
  if (memory.driver == nullptr) target.address = reinterpret_cast<std::uintptr_t>(memory.data);
  target.word = where(counters, counters.data);
  target.counters_bytes = counters.bytes;
  const char* const how =
      target.bounced ? "shm: the peer's kernel copies, since it cannot be mapped" : "shm: the peer maps it";
  return {pack(target, {memory.segment, counters.segment}, sent), how, nullptr};
}

std::unique_ptr<Access> open_access(pid_t pid, Mappings& mappings, device::Watch& watch, Key key) {
  const auto target = value_in<Target>(key.bytes);
  Mapped mapped;
  const Counters counters = counters_at(mappings.find(target.word, key, mapped), target.counters_bytes);
  if (!target.bounced) {
    device::Extent offered;
    offered.data = mappings.find(target.slots, key, mapped, &offered.driver);
    offered.bytes = target.slot_bytes;
    const char* const how = offered.driver == nullptr
                                ? "shm: carried out by the stream in the peer's memory, which is mapped"
                                : "shm: copied by the stream, since the peer's memory of a GPU is mapped";
    return std::make_unique<MappedAccess>(offered, counters, watch, std::move(mapped), how);
  }
  if (target.address == 0) throw Unreachable("it is memory of a GPU that its driver gives to no other process");
  if (pid == 0)
    throw Unreachable(
        "the peer's memory cannot be mapped, and the kernel forbids copies between the processes (ptrace_scope, "
        "seccomp, PID namespaces)");
  return std::make_unique<KernelAccess>(CrossMemory{pid, target.address}, target.slot_bytes, counters, watch,
                                        std::move(mapped));
}

}  // namespace sluice::backends::shm
