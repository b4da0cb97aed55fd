// SPDX-License-Identifier: Apache-2.0
#include "apps/common/collectives.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace apps {

double Collectives::sum(double value) {
  sum(std::span(&value, 1));
  return value;
}

double Collectives::max(double value) {
  max(std::span(&value, 1));
  return value;
}

void Collectives::barrier() { sum(0.0); }

namespace {

constexpr sluice::Tag kReduceTag = 0;
constexpr sluice::Tag kGatherTag = 1;
constexpr int kDepth = 2;
constexpr std::size_t kSlotBytes = Collectives::kMaxValues * sizeof(double);
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

// Channels to and from one partner.
class Pair {
 public:
  Pair(sluice::Context& context, sluice::Scope& scope, int partner)
      : memory_(context.allocate(2 * kDepth * kSlotBytes)),
        in_(scope.receiver(partner, kReduceTag, memory_.slice(0, kDepth * kSlotBytes), {.depth = kDepth})),
        out_(scope.sender(partner, kReduceTag, memory_.slice(kDepth * kSlotBytes, kDepth * kSlotBytes),
                          {.depth = kDepth})) {}

  void send(std::span<const double> values) {
    const auto bytes = std::as_bytes(values);
    std::memcpy(out_.acquire({}).data(), bytes.data(), bytes.size());
    out_.put({}, 0, bytes.size());
  }

  template <class Combine>
  void receive(std::span<double> values, Combine combine) {
    const sluice::Slice slot = in_.wait({});
    const auto theirs = slot.as<double>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = combine(values[i], theirs[i]);
    in_.release({});
  }

  void wait_connected() {
    in_.wait_connected();
    out_.wait_connected();
  }

 private:
  sluice::Memory memory_;
  sluice::Receiver in_;
  sluice::Sender out_;
};

std::size_t chunk_bytes(std::size_t bytes) { return std::min(bytes, kChunkBytes); }

// Receives one rank's part of a gather, in chunks.
class GatherChannel {
 public:
  GatherChannel(sluice::Context& context, sluice::Scope& scope, int from, std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    memory_ = context.allocate(kDepth * chunk_bytes(bytes));
    in_ = scope.receiver(from, kGatherTag, memory_.all(), {.depth = kDepth});
  }

  std::vector<std::byte> receive() {
    std::vector<std::byte> all(bytes_);
    const std::size_t chunk = chunk_bytes(bytes_);
    for (std::size_t at = 0; at < bytes_; at += chunk) {
      const sluice::Slice slot = in_.wait({});
      std::memcpy(all.data() + at, slot.data(), std::min(chunk, bytes_ - at));
      in_.release({});
    }
    return all;
  }

 private:
  std::size_t bytes_;
  sluice::Memory memory_;
  sluice::Receiver in_;
};

class SluiceCollectives : public Collectives {
 public:
  using Collectives::max;
  using Collectives::sum;

  explicit SluiceCollectives(sluice::Context& context) : context_(context), scope_(context.scope("collectives")) {
    const int rank = context.rank();
    const int size = context.size();
    // Doubling needs a power of two: each rank from `even` on sends its values to a partner, and receives the result
    // from it.
    const int even = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
    if (rank >= even) {
      proxy_.emplace_back(context, scope_, rank - even);
    } else {
      if (rank + even < size) extra_.emplace_back(context, scope_, rank + even);
      for (int distance = 1; distance < even; distance *= 2) doubling_.emplace_back(context, scope_, rank ^ distance);
    }
    for (auto* pairs : {&proxy_, &extra_, &doubling_})
      for (Pair& pair : *pairs) pair.wait_connected();
  }

  void sum(std::span<double> values) override {
    reduce(values, [](double mine, double theirs) { return mine + theirs; });
  }
  void max(std::span<double> values) override {
    reduce(values, [](double mine, double theirs) { return std::max(mine, theirs); });
  }

  void gather(std::span<const std::byte> mine, std::span<const std::size_t> bytes_of, const Sink& sink) override {
    if (context_.rank() != 0) {
      send_chunks(mine);
      return;
    }
    // Open all before the first is read: no rank may wait longer for its channel to be connected than the timeout
    // allows.
    std::vector<GatherChannel> channels;
    for (int rank = 1; rank < context_.size(); ++rank) channels.emplace_back(context_, scope_, rank, bytes_of[rank]);
    sink(0, mine);
    for (int rank = 1; rank < context_.size(); ++rank) sink(rank, channels[rank - 1].receive());
  }

 private:
  template <class Combine>
  void reduce(std::span<double> values, Combine combine) {
    if (values.size() > kMaxValues)
      throw std::length_error("a reduction of " + std::to_string(values.size()) + " values; it takes at most " +
                              std::to_string(kMaxValues));
    const auto replace = [](double, double theirs) { return theirs; };
    for (Pair& pair : proxy_) {
      pair.send(values);
      pair.receive(values, replace);
    }
    for (Pair& pair : extra_) pair.receive(values, combine);
    for (Pair& pair : doubling_) {
      pair.send(values);
      pair.receive(values, combine);
    }
    for (Pair& pair : extra_) pair.send(values);
  }

  void send_chunks(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    const std::size_t chunk = chunk_bytes(bytes.size());
    const sluice::Memory memory = context_.allocate(kDepth * chunk);
    sluice::Sender out = scope_.sender(0, kGatherTag, memory.all(), {.depth = kDepth});
    for (std::size_t at = 0; at < bytes.size(); at += chunk) {
      const auto part = bytes.subspan(at, std::min(chunk, bytes.size() - at));
      std::memcpy(out.acquire({}).data(), part.data(), part.size());
      out.put({}, 0, part.size());
    }
  }

  sluice::Context context_;
  sluice::Scope scope_;
  std::vector<Pair> proxy_;     // 0 or 1: the partner of an extra rank
  std::vector<Pair> extra_;     // 0 or 1: the extra rank that this rank is the partner of
  std::vector<Pair> doubling_;  // at distances 1, 2, 4, ...
};

}  // namespace

std::unique_ptr<Collectives> make_sluice_collectives(sluice::Context& context) {
  return std::make_unique<SluiceCollectives>(context);
}

}  // namespace apps
