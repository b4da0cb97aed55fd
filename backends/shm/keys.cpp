// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/keys.hpp"

#include <stdexcept>
#include <type_traits>

namespace sluice::backends::shm {

namespace {

/// A segment that goes with a key, by a descriptor, by what its driver calls it, or by both.
struct Sending {
  std::uint64_t segment = 0;
  std::uint64_t bytes = 0;
  bool keep = false;  ///< the segment lives as long as its process
  bool by_descriptor = false;
  Stream::Kind vendor = Stream::Kind::host;  ///< of a GPU's memory
  device::GpuNames names;
};
static_assert(std::is_trivially_copyable_v<Sending>);

/// The segments that came with a key, each with its descriptor; null: it has none.
std::vector<std::pair<Sending, base::Fd*>> sendings_in(Key& key) {
  std::vector<std::pair<Sending, base::Fd*>> all;
  std::size_t descriptors = 0;
  for (std::size_t at = sizeof(Target); at + sizeof(Sending) <= key.bytes.size(); at += sizeof(Sending)) {
    const auto one = value_in<Sending>(key.bytes, at);
    const bool has = one.by_descriptor && descriptors < key.received.size();
    all.emplace_back(one, has ? &key.received[descriptors] : nullptr);
    descriptors += one.by_descriptor ? 1 : 0;
  }
  return all;
}

/// Maps what came with a key, with the next of its descriptors if it needs one.
std::shared_ptr<device::Mapping> map(const Sending& what, base::Fd* descriptor) {
  device::GpuExport share{what.names, {}};
  if (descriptor != nullptr) share.fd = std::move(*descriptor);
  device::Driver* driver = nullptr;
  if (what.vendor != Stream::Kind::host) {
    driver = device::driver(what.vendor);
    if (driver == nullptr || !driver->why_not().empty())
      throw std::runtime_error("it is memory of a GPU, and there is no driver for that here");
  }
  if (what.by_descriptor && !share.fd)
    throw std::runtime_error("the descriptor of its segment did not come: too few may be open (ulimit -n)");
  return std::make_shared<device::Mapping>(share, what.bytes, driver);
}

}  // namespace

Where where(const device::Extent& memory, const void* at) {
  if (memory.segment == nullptr || at == nullptr) return {};
  const auto offset = static_cast<const std::byte*>(at) - memory.segment->data;
  return {memory.segment->id, memory.segment->bytes, static_cast<std::uint64_t>(offset)};
}

Target direct_target(const Slots& slots, const Signal& signal) {
  Target target;
  target.slots = where(slots.memory, slots.memory.data);
  target.slot_bytes = slots.slot_bytes;
  target.stride = slots.slot_bytes;
  target.depth = slots.depth;
  target.word = where(signal.memory, signal.word);
  target.parking = where(signal.memory, signal.parking);
  return target;
}

Key pack(const Target& target, std::initializer_list<const device::Segment*> segments, Sent& sent) {
  Key key{bytes_of(target), {}, {}};
  for (const device::Segment* segment : segments) {
    if (segment == nullptr || (segment->shared && !sent.insert(segment->id).second)) continue;
    const auto vendor = segment->driver == nullptr ? Stream::Kind::host : segment->driver->kind();
    const Blob sending = bytes_of(
        Sending{segment->id, segment->bytes, segment->shared, bool(segment->share.fd), vendor, segment->share.names});
    key.bytes.insert(key.bytes.end(), sending.begin(), sending.end());
    if (segment->share.fd) key.sent.push_back(segment->share.fd.get());
  }
  return key;
}

void Mappings::keep(Key& key) {
  for (const auto& [one, fd] : sendings_in(key)) {
    if (!one.keep || (own_ && one.vendor != Stream::Kind::host)) continue;
    try {
      auto mapping = map(one, fd);
      mapped_[one.segment] = mapping;
      kept_.push_back(std::move(mapping));
    } catch (const std::runtime_error& reason) {
      not_mapped_[one.segment] = reason.what();  // what needs it fails
    }
  }
}

/// Maps the segment, which came with the key.
std::shared_ptr<device::Mapping> Mappings::take(std::uint64_t segment, Key& key) {
  if (const auto why = not_mapped_.find(segment); why != not_mapped_.end()) throw std::runtime_error(why->second);
  for (const auto& [one, fd] : sendings_in(key)) {
    if (one.segment == segment) return map(one, fd);
  }
  throw std::runtime_error("the descriptor of its segment did not come: too few may be open (ulimit -n)");
}

std::byte* Mappings::find(const Where& where, Key& key, Mapped& in_use, device::Driver** driver) {
  if (where.segment == 0) return nullptr;
  std::shared_ptr<device::Mapping> mapping = mapped_[where.segment].lock();
  if (mapping == nullptr) {
    const auto ours = own_ ? device::find_segment(where.segment) : nullptr;
    mapping =
        ours != nullptr && ours->driver != nullptr ? std::make_shared<device::Mapping>(ours) : take(where.segment, key);
    std::erase_if(mapped_, [](const auto& entry) { return entry.second.expired(); });
    mapped_[where.segment] = mapping;
  }
  in_use.push_back(mapping);
  if (driver != nullptr) *driver = mapping->driver();
  return mapping->data() + where.offset;
}

}  // namespace sluice::backends::shm
