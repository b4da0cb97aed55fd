// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/rma_window.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <utility>

#include "rma/mpi/log.hpp"

namespace sluice::mpi_rma {
namespace {

/// Windows of Sluice's begin and end at multiples of it.
constexpr std::uintptr_t kAlign = 8;

std::uintptr_t aligned(std::uintptr_t address) { return (address + kAlign - 1) / kAlign * kAlign; }

std::uint64_t new_number() {
  static std::atomic<std::uint64_t> numbers{0};
  return ++numbers;
}

}  // namespace

RmaWindow::RmaWindow(std::shared_ptr<Ranks> among, const Creation& what, MPI_Win backing)
    : ranks(std::move(among)), job(ranks->job), comm(ranks->comm), handle(backing), made(what),
      base(static_cast<std::byte*>(what.base)), rank(ranks->rank), size(ranks->size), bytes_attribute(what.bytes),
      unit_attribute(static_cast<int>(what.unit)), flavor_attribute(what.flavor) {
  Part mine;
  mine.place = job->control.take(words());
  try {
    offer(mine);
    mine.ready = true;
  } catch (const std::exception& reason) {
    why_ = reason.what();
  }
  exchange(mine);
  by_word = std::ranges::all_of(parts, &Part::mapped);
  areas = std::make_unique<Areas>(job->context, parts);
  if (made.flavor == MPI_WIN_FLAVOR_SHARED) areas->map(mapped());
  epochs = std::make_unique<Epochs>(*this);
}

/// Words that a rank has: those of its part, and those of its epochs.
std::size_t RmaWindow::words() const { return Epochs::words(size); }

/// Facts that only this rank has, in words that peers read.
void RmaWindow::exchange(const Part& mine) {
  Control& control = job->control;
  const auto values =
      std::to_array<std::uint64_t>({static_cast<std::uint64_t>(mine.bytes), static_cast<std::uint64_t>(mine.unit),
                                    mine.number, mine.shift, std::uint64_t{mine.ready}, std::uint64_t{mine.mapped}});
  static_assert(values.size() <= Epochs::kPartWords);
  for (std::size_t i = 0; i < values.size(); ++i) control.set(mine.place, i, values[i]);
  for (const Member& member : ranks->exchange(mine.place)) {
    const auto read = control.read(member.rank, member.place, 0, values.size());
    parts.push_back({static_cast<std::int64_t>(read[0]), static_cast<std::int64_t>(read[1]), read[2], read[3],
                     member.place, member.rank, read[4] != 0, read.at(5) != 0});
  }
}

/// The memory of all ranks, as MPI has mapped it.
std::vector<std::byte*> RmaWindow::mapped() const {
  std::vector<std::byte*> all(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) {
    MPI_Aint bytes = 0;
    int unit = 0;
    void* at = nullptr;
    PMPI_Win_shared_query(handle, i, &bytes, &unit, static_cast<void*>(&at));
    all[static_cast<std::size_t>(i)] = static_cast<std::byte*>(at);
  }
  return all;
}

void RmaWindow::offer(Part& mine) {
  mine.bytes = made.bytes;
  mine.unit = made.unit;
  mine.mapped = made.bytes == 0;
  if (made.bytes == 0 || made.flavor == MPI_WIN_FLAVOR_SHARED) return;
  Slice memory;
  if (made.flavor == MPI_WIN_FLAVOR_ALLOCATE) {
    memory_ = job->context.allocate(aligned(static_cast<std::uintptr_t>(made.bytes)));
    memory = memory_.all();
    base = memory_.data();
  } else {
    const auto address = reinterpret_cast<std::uintptr_t>(made.base);
    const std::uintptr_t begin = address / kAlign * kAlign;
    mine.shift = address - begin;
    region_ = job->context.region(base - mine.shift, aligned(mine.shift + static_cast<std::uintptr_t>(made.bytes)));
    memory = region_.all();
  }
  mine.number = new_number();
  window_ = job->context.window("mpi-rma window " + std::to_string(mine.number), memory);
  // Nothing else tells it; MpiWindows.work_over_networks finds out if the words change.
  mine.mapped = window_.describe().find("atomics: by processors") != std::string::npos;
}

bool RmaWindow::ready() const {
  if (!why_.empty()) log(Level::warn, "MPI serves a window: " + why_);
  return std::ranges::all_of(parts, &Part::ready);
}

void RmaWindow::close() {
  std::unique_lock lock(mutex);
  areas->drain_all();
  areas->close();
  epochs->barrier(lock);
  if (window_.bytes() != 0) window_.close();
  job->control.give_back(parts[static_cast<std::size_t>(rank)].place, words());
}

void RmaWindow::abandon() { areas->close(); }

void RmaWindow::close_memory(Timeout timeout) {
  if (window_.bytes() != 0) window_.close(timeout);
}

std::string RmaWindow::describe() const {
  std::string text = "rank " + std::to_string(rank) + " of " + std::to_string(size) + ", " +
                     std::to_string(made.bytes) + " bytes: Sluice serves it";
  if (made.flavor == MPI_WIN_FLAVOR_SHARED) text += ", in memory that MPI shares";
  text += by_word ? "; accumulates: by atomics of words, where elements fit" : "; accumulates: one rank at a time";
  return window_.bytes() == 0 ? text : text + "; " + window_.describe();
}

}  // namespace sluice::mpi_rma
