// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/access.hpp"

#include <stdexcept>

namespace sluice::backends::shm {

Key ShmOffer::key() const {
  Target target;
  target.slots = where(memory_, memory_.data);
  target.slot_bytes = memory_.bytes;
  target.bounced = memory_.segment == nullptr;
  target.address = reinterpret_cast<std::uintptr_t>(memory_.data);
  return pack(target, {memory_.segment}, sent_);
}

std::string ShmOffer::describe() const {
  return memory_.segment != nullptr ? "shm: the peer maps it"
                                    : "shm: the peer's kernel copies, since it cannot be mapped";
}

void KernelAccess::carry_out(device::Lane, const Request& request) {
  std::byte* const here = local_.data + request.local.offset;
  if (request.kind == Request::Kind::get) {
    offered_.read(here, request.offset, request.local.bytes, watch());
  } else {
    offered_.write(here, request.offset, request.local.bytes, watch());
  }
}

std::string KernelAccess::describe() const {
  return "shm: by the kernel's cross-memory copy, since the peer's memory cannot be mapped; no atomics";
}

std::unique_ptr<Access> open_access(const device::Extent& local, pid_t pid, Mappings& mappings, device::Watch& watch,
                                    Key key) {
  const Target target = unpack(key);
  if (!target.bounced) {
    Mapped mapped;
    device::Extent offered;
    offered.data = mappings.find(target.slots, key, mapped);
    offered.bytes = target.slot_bytes;
    return std::make_unique<MappedAccess>(local, offered, watch, std::move(mapped),
                                          "shm: carried out by the stream in the peer's memory, which is mapped");
  }
  if (pid == 0) throw std::runtime_error("the peer's memory cannot be mapped, and the kernel forbids to copy from it");
  return std::make_unique<KernelAccess>(local, CrossMemory{pid, target.address}, target.slot_bytes, watch);
}

}  // namespace sluice::backends::shm
