// SPDX-License-Identifier: Apache-2.0
#include "runtime/end_info.hpp"

#include <utility>

#include "base/text.hpp"

namespace sluice::runtime {
device::Extent extent_of(const Slice& memory) {
  const auto& block = detail::SliceAccess::block(memory);
  if (block == nullptr) return {memory.data(), memory.bytes()};
  return {memory.data(), memory.bytes(), block->extent.segment, block->extent.driver};
}

EndInfo::EndInfo(Opening what, std::uint64_t number)
    : opening(std::move(what)), id(number),
      slot_bytes(opening.memory.bytes() / static_cast<std::size_t>(opening.options.depth)),
      slots{extent_of(opening.memory), slot_bytes, opening.options.depth} {}

Batch EndInfo::batch(std::uint64_t first, std::size_t count, Stream::Kind used_by, bool marked) const noexcept {
  return detail::SliceAccess::batch(opening.memory, slots, first, count, used_by != Stream::Kind::program_order,
                                    marked);
}

Error EndInfo::error(Code code, std::uint64_t epoch, const std::string& what) const {
  constexpr const char* kRoles[] = {"sender: ", "receiver: ", "target: ", "window: ", "counter: ", "notices: "};
  const char* const end = kRoles[static_cast<std::size_t>(opening.key.role)];
  const std::string named = opening.name.empty() ? end : "'" + opening.name + "' " + end;
  return {code, opening.rank, opening.peer, opening.key.tag, epoch, named + what};
}

void EndInfo::misuse(std::uint64_t epoch, const std::string& what) const { throw error(Code::misuse, epoch, what); }

const char* EndInfo::noun() const noexcept {
  constexpr const char* kNouns[] = {"channel", "channel", "target", "window", "counter", "window"};
  return kNouns[static_cast<std::size_t>(opening.key.role)];
}

std::string EndInfo::direction() const {
  if (opening.key.role == Role::counter) return "counter " + std::to_string(opening.key.tag);
  if (opening.key.role == Role::notices) return "notices";
  const std::string peer = std::to_string(opening.peer);
  if (of_window()) return (sends() ? "a window of rank " : "a target of rank ") + peer;
  return (sends() ? "to rank " : "from rank ") + peer + ", tag " + std::to_string(opening.key.tag);
}

base::trace::Channel EndInfo::trace_channel(Rank rank, base::trace::Track engine) const {
  const ChannelKey& key = opening.key;
  const std::string label = opening.name.empty() ? direction() : opening.name + ": " + direction();
  const std::string both = std::to_string(sends() ? rank : key.world_peer) + ' ' +
                           std::to_string(sends() ? key.world_peer : rank) + ' ' + std::to_string(key.tag) + ' ' +
                           key.scope;
  // Channels of the same key come one after another.
  const int which = base::trace::count(both + (sends() ? " out" : " in"));
  return {base::trace::kept(label), base::hash(both + ' ' + std::to_string(which)), engine, sends()};
}

}  // namespace sluice::runtime
