// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/areas.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "rma/first_failure.hpp"
#include "rma/mpi/refused.hpp"
#include "rma/mpi/rma_window.hpp"
#include "rma/mpi/yield.hpp"

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

std::string memory_name(std::uint64_t number) { return "mpi-rma window " + std::to_string(number); }

Areas::Area& Areas::find_area(int rank) {
  Area& found = areas_[rank];
  if (found.target.peer() < 0 && found.memory == nullptr) open(found, rank);
  last_ = &found;
  last_rank_ = rank;
  return found;
}

void Areas::open(Area& area, int rank) {
  const Part& part = parts_[static_cast<std::size_t>(rank)];
  area.bytes = part.bytes;
  area.unit = part.unit;
  if (!mapped_.empty()) {
    area.memory = mapped_[static_cast<std::size_t>(rank)];
    return;
  }
  if (part.number == 0)
    throw Refused(MPI_ERR_RMA_RANGE, "rank " + std::to_string(rank) + " has no memory in the window");
  Target target = context_.target(part.rank, memory_name(part.number));
  if (!part.is_dynamic()) area.mapping = target.mapped();
  if (area.mapping.bytes() > 0) area.memory = area.mapping.data() + part.shift;
  if (area.memory == nullptr && part.base != 0) area.mailbox = RemoteMailbox(control_.mailbox(part.rank));
  area.target = std::move(target);
}

bool Areas::made_by_owner(Area& area, int rank, std::uint64_t offset, Mailbox::Kind kind, std::byte* data,
                          std::size_t bytes) {
  if (bytes > Mailbox::kMost || crowded()) return false;  // of a crowd, the owner has no core to look
  const Mailbox::Request wanted{kind, parts_[static_cast<std::size_t>(rank)].base + offset, data, bytes};
  // Not by Context::check, which throws a failure once: another thread may have met it.
  return area.mailbox.request(wanted, [&area] { (void)area.target.connected(); });
}

std::size_t Areas::at(int rank, std::uint64_t offset) const {
  return offset + parts_[static_cast<std::size_t>(rank)].shift;
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

bool Areas::reaches(int rank, std::uint64_t offset, std::size_t bytes) {
  return area(rank).target.reaches(offset, bytes);
}

void Areas::write(int rank, std::uint64_t offset, const std::byte* from, std::size_t bytes, bool steady) {
  if (bytes == 0) return;
  Area& there = area(rank);
  if (there.memory != nullptr) {
    use(there);
    std::memcpy(there.memory + offset, from, bytes);
    return;
  }
  if (made_by_owner(there, rank, offset, Mailbox::Kind::put, const_cast<std::byte*>(from), bytes)) return;
  const Slice source = staged(from, bytes);
  use(there);  // not before: `staged` may drain it
  rma::FirstFailure failure(false);
  failure.of([&] {
    in_messages(source,
                [&](const Slice& part, std::size_t done) { there.target.put({}, part, at(rank, offset + done)); });
  });
  if (bytes > kSmall && !steady) failure.of([&] { drain(there); });
  failure.report();
}

void Areas::read(int rank, std::uint64_t offset, std::byte* to, std::size_t bytes) {
  if (bytes == 0) return;
  Area& there = area(rank);
  if (there.memory != nullptr) {
    use(there);
    std::memcpy(to, there.memory + offset, bytes);
    return;
  }
  if (made_by_owner(there, rank, offset, Mailbox::Kind::get, to, bytes)) return;
  const Slice place = bytes > kSmall ? context_.region(to, bytes).all() : stage(bytes);
  use(there);  // not before: `stage` may drain it
  in_messages(place, [&](const Slice& part, std::size_t done) { there.target.get({}, part, at(rank, offset + done)); });
  if (bytes <= kSmall) there.reads.push_back({place, to});
}

Slice Areas::scratch(std::size_t bytes) {
  if (scratch_.bytes() < bytes) scratch_ = context_.allocate(bytes);
  return scratch_.slice(0, bytes);
}

void Areas::read_into(int rank, std::uint64_t offset, const Slice& to) {
  Area& there = area(rank);
  if (there.memory != nullptr) return read(rank, offset, to.data(), to.bytes());
  if (made_by_owner(there, rank, offset, Mailbox::Kind::get, to.data(), to.bytes())) return;
  use(there);
  there.target.get({}, to, at(rank, offset));
}

void Areas::write_from(int rank, std::uint64_t offset, const Slice& from) {
  Area& there = area(rank);
  if (there.memory != nullptr) return write(rank, offset, from.data(), from.bytes(), true);
  if (made_by_owner(there, rank, offset, Mailbox::Kind::put, from.data(), from.bytes())) return;
  use(there);
  there.target.put({}, from, at(rank, offset));
}

void Areas::drain(Area& area) {
  if (!unuse(area)) return;
  std::vector<Read>& reads = area.reads;
  try {
    if (area.target.peer() >= 0) area.target.flush({});  // not `drain`, which reads the clock
  } catch (...) {
    reads.clear();  // the program may free the memory that they were for
    let_go();
    throw;
  }
  for (const Read& read : reads) std::memcpy(read.to, read.from.data(), read.from.bytes());
  reads.clear();
}

/// The target keeps the memory until its accesses have completed, which may be late: no other access may use it.
void Areas::let_go() noexcept {
  scratch_ = {};
  staging_ = {};
  staged_ = 0;
}

void Areas::notify(int rank, std::uint32_t counter) {
  if (const auto found = areas_.find(rank); found != areas_.end()) drain(found->second);
  Area& there = counters_[rank];
  const Part& part = parts_[static_cast<std::size_t>(rank)];
  if (there.target.peer() < 0) there.target = context_.target(part.rank, part.counters.name());
  there.target.notify({}, counter);
  use(there);
}

void Areas::drain(int rank) {
  if (rank == last_rank_) {
    drain(*last_);
  } else if (const auto found = areas_.find(rank); found != areas_.end()) {
    drain(found->second);
  }
  if (counters_.empty()) return;
  if (const auto found = counters_.find(rank); found != counters_.end()) drain(found->second);
}

void Areas::drain_all() {
  rma::FirstFailure failure(false);
  for (auto* const areas : {&areas_, &counters_})
    for (auto& [rank, area] : *areas) failure.of([&] { drain(area); });
  staged_ = 0;
  failure.report();
}

std::uint64_t* Areas::turns(int rank) {
  Area& there = area(rank);
  if (!there.knows_turns) {
    const Part& part = parts_[static_cast<std::size_t>(rank)];
    std::uint64_t* const words = control_.mapped(part.rank, part.place);
    if (words != nullptr) there.turns = words + Epochs::kTurns;
    there.knows_turns = true;
  }
  return there.turns;
}

void Areas::close() {
  last_rank_ = -1;
  rma::FirstFailure failure(false);
  failure.of([&] { close(areas_); });
  failure.of([&] { close_counters(); });
  failure.report();
}

void Areas::close_counters() { close(counters_); }

void Areas::close(std::map<int, Area>& areas) {
  rma::FirstFailure failure(false);
  for (auto& [rank, area] : areas) {
    unuse(area);
    if (area.target.peer() >= 0) failure.of([&] { area.target.close(); });
  }
  failure.report();
  areas.clear();
}

}  // namespace sluice::mpi_rma
