// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/keys.hpp"

#include <cstring>
#include <stdexcept>

namespace sluice::backends::shm {

namespace {

/// Names the segment of a descriptor that goes with a key.
struct Sending {
  std::uint64_t segment = 0;
  std::uint64_t bytes = 0;
  bool keep = false;  ///< the segment lives as long as its process
};

}  // namespace

Where where(const device::Extent& memory, const void* at) {
  if (memory.segment == nullptr || at == nullptr) return {};
  const auto offset = static_cast<const std::byte*>(at) - memory.segment->data;
  return {memory.segment->id, memory.segment->bytes, static_cast<std::uint64_t>(offset)};
}

Key pack(const Target& target, std::initializer_list<const device::Segment*> segments, Sent& sent) {
  Key key;
  std::vector<Sending> sendings;
  for (const device::Segment* segment : segments) {
    if (segment == nullptr || (segment->shared && !sent.insert(segment->id).second)) continue;
    sendings.push_back({segment->id, segment->bytes, segment->shared});
    key.sent.push_back(segment->fd.get());
  }
  const std::size_t bytes = sendings.size() * sizeof(Sending);
  key.bytes.resize(sizeof target + bytes);
  std::memcpy(key.bytes.data(), &target, sizeof target);
  if (bytes != 0) std::memcpy(key.bytes.data() + sizeof target, sendings.data(), bytes);
  return key;
}

Target unpack(const Key& key) {
  Target target;
  if (key.bytes.size() < sizeof target) throw std::runtime_error("a key that is too short");
  std::memcpy(&target, key.bytes.data(), sizeof target);
  return target;
}

namespace {

/// What came with descriptor number `i` of the key.
Sending sending(const Key& key, std::size_t i) {
  Sending sending;
  const std::size_t at = sizeof(Target) + i * sizeof sending;
  if (at + sizeof sending > key.bytes.size()) throw std::runtime_error("a key with more descriptors than it names");
  std::memcpy(&sending, key.bytes.data() + at, sizeof sending);
  return sending;
}

base::Fd take_descriptor(Key& key, std::uint64_t segment) {
  for (std::size_t i = 0; i < key.received.size(); ++i) {
    if (sending(key, i).segment == segment && key.received[i]) return std::move(key.received[i]);
  }
  throw std::runtime_error("the descriptor of its segment did not come: too few may be open (ulimit -n)");
}

}  // namespace

void Mappings::keep(Key& key) {
  for (std::size_t i = 0; i < key.received.size(); ++i) {
    const Sending one = sending(key, i);
    if (!one.keep) continue;
    auto mapping = std::make_shared<device::Mapping>(key.received[i], one.bytes);
    mapped_[one.segment] = mapping;
    kept_.push_back(std::move(mapping));
    key.received[i] = base::Fd();
  }
}

std::byte* Mappings::find(const Where& where, Key& key, Mapped& in_use) {
  if (where.segment == 0) return nullptr;
  std::shared_ptr<device::Mapping> mapping = mapped_[where.segment].lock();
  if (mapping == nullptr) {
    mapping = std::make_shared<device::Mapping>(take_descriptor(key, where.segment), where.segment_bytes);
    std::erase_if(mapped_, [](const auto& entry) { return entry.second.expired(); });
    mapped_[where.segment] = mapping;
  }
  in_use.push_back(mapping);
  return mapping->data() + where.offset;
}

}  // namespace sluice::backends::shm
