// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/areas.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "rma/mpi/refused.hpp"
#include "rma/mpi/rma_window.hpp"

namespace sluice::mpi_rma {
namespace {

/// Fewer bytes are copied through memory that is pinned for good; more are pinned where they are, which takes about as
/// long as a copy of two megabytes.
constexpr std::size_t kSmall = 256 * 1024;
constexpr std::size_t kStaging = 4 * kSmall;
/// Every provider has messages of so many bytes.
constexpr std::size_t kMessage = std::size_t{4} << 20;

/// Calls `move(part, offset of the part)` for parts that are messages. The one part of a short slice is that slice: a
/// copy of it takes as long as a put.
template <class Move>
void in_messages(const Slice& all, Move move) {
  if (all.bytes() <= kMessage) return move(all, 0);
  for (std::size_t done = 0; done < all.bytes(); done += kMessage)
    move(all.slice(done, std::min(kMessage, all.bytes() - done)), done);
}

}  // namespace

Areas::Area& Areas::area(int rank) {
  Area& found = areas_[rank];
  if (found.target.peer() < 0) {
    const Part& part = parts_[static_cast<std::size_t>(rank)];
    if (part.number == 0)
      throw Refused(MPI_ERR_RMA_RANGE, "rank " + std::to_string(rank) + " has no memory in the window");
    found.target = context_.target(part.rank, "mpi-rma window " + std::to_string(part.number));
  }
  return found;
}

std::size_t Areas::at(int rank, std::uint64_t offset) const {
  return offset + parts_[static_cast<std::size_t>(rank)].shift;
}

Target& Areas::target(int rank) {
  Area& used = area(rank);
  used.used = true;
  return used.target;
}

Slice Areas::stage(std::size_t bytes) {
  if (staging_.bytes() == 0) staging_ = context_.allocate(kStaging);
  if (staged_ + bytes > kStaging) drain_all();
  const std::size_t begin = staged_;
  staged_ += (bytes + 7) / 8 * 8;
  return staging_.slice(begin, bytes);
}

Slice Areas::staged(const std::byte* from, std::size_t bytes) {
  if (bytes > kSmall) return context_.region(const_cast<std::byte*>(from), bytes).all();
  Slice copy = stage(bytes);
  std::memcpy(copy.data(), from, bytes);
  return copy;
}

void Areas::write(int rank, std::uint64_t offset, const std::byte* from, std::size_t bytes, bool steady) {
  if (bytes == 0) return;
  if (!mapped_.empty()) {
    std::memcpy(mapped_[static_cast<std::size_t>(rank)] + offset, from, bytes);
    return;
  }
  Area& there = area(rank);
  there.used = true;
  in_messages(staged(from, bytes),
              [&](const Slice& part, std::size_t done) { there.target.put({}, part, at(rank, offset + done)); });
  if (bytes > kSmall && !steady) drain(there);
}

void Areas::read(int rank, std::uint64_t offset, std::byte* to, std::size_t bytes) {
  if (bytes == 0) return;
  if (!mapped_.empty()) {
    std::memcpy(to, mapped_[static_cast<std::size_t>(rank)] + offset, bytes);
    return;
  }
  Area& there = area(rank);
  const Slice place = bytes > kSmall ? context_.region(to, bytes).all() : stage(bytes);
  there.used = true;
  in_messages(place, [&](const Slice& part, std::size_t done) { there.target.get({}, part, at(rank, offset + done)); });
  if (bytes <= kSmall) there.reads.push_back({place, to});
}

Slice Areas::scratch(std::size_t bytes) {
  if (scratch_.bytes() < bytes) scratch_ = context_.allocate(bytes);
  return scratch_.slice(0, bytes);
}

void Areas::read_into(int rank, std::uint64_t offset, const Slice& to) {
  if (!mapped_.empty()) return read(rank, offset, to.data(), to.bytes());
  target(rank).get({}, to, at(rank, offset));
}

void Areas::write_from(int rank, std::uint64_t offset, const Slice& from) {
  if (!mapped_.empty()) return write(rank, offset, from.data(), from.bytes(), true);
  target(rank).put({}, from, at(rank, offset));
}

void Areas::drain(Area& area) {
  if (!area.used) return;
  area.target.flush({});  // not `drain`, which reads the clock
  area.used = false;
  for (const Read& read : area.reads) std::memcpy(read.to, read.from.data(), read.from.bytes());
  area.reads.clear();
}

void Areas::drain(std::map<int, Area>& areas, int rank) {
  const auto found = areas.find(rank);
  if (found != areas.end()) drain(found->second);
}

void Areas::notify(int rank, std::uint32_t counter) {
  drain(areas_, rank);
  Area& there = counters_[rank];
  const Part& part = parts_[static_cast<std::size_t>(rank)];
  if (there.target.peer() < 0) there.target = context_.target(part.rank, part.counters.name());
  there.target.notify({}, counter);
  there.used = true;
}

void Areas::drain(int rank) {
  drain(areas_, rank);
  drain(counters_, rank);
}

void Areas::drain_all() {
  for (auto* const areas : {&areas_, &counters_})
    for (auto& [rank, area] : *areas) drain(area);
  staged_ = 0;
}

void Areas::close() {
  for (auto& [rank, area] : areas_) area.target.close();
  areas_.clear();
  close_counters();
}

void Areas::close_counters() {
  for (auto& [rank, area] : counters_) area.target.close();
  counters_.clear();
}

}  // namespace sluice::mpi_rma
