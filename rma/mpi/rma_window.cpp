// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/rma_window.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <stdexcept>
#include <utility>

#include "rma/first_failure.hpp"
#include "rma/mpi/log.hpp"
#include "rma/mpi/refused.hpp"

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
      base(static_cast<std::byte*>(what.base)), rank(ranks->rank), size(ranks->size), notifications(what.info),
      bytes_attribute(what.bytes), unit_attribute(static_cast<int>(what.unit)), flavor_attribute(what.flavor),
      notifications_most(notifications.most()) {
  Part mine;
  mine.place = kNoPlace;
  try {
    mine.place = job->control.take(Epochs::kWords);
    // On this rank alone: MPI need not know the others to keep names, attributes, info and error handlers.
    if (backing == MPI_WIN_NULL && PMPI_Win_create(nullptr, 0, 1, what.info, MPI_COMM_SELF, &handle) != MPI_SUCCESS)
      throw std::runtime_error("MPI has made no window for its attributes");
    offer(mine);
    mine.counters = notifications.begin(job->context);
    mine.ready = true;
  } catch (const std::exception& reason) {
    why_ = reason.what();
  }
  exchange(mine);
  if (!ready()) return;
  areas = std::make_unique<Areas>(job->context, job->control, parts);
  if (made.flavor == MPI_WIN_FLAVOR_SHARED) areas->map(mapped());
  epochs = std::make_unique<Epochs>(*this);
}

/// Facts that only this rank has, in words that peers read.
void RmaWindow::exchange(const Part& mine) {
  Control& control = job->control;
  const auto values = std::to_array<std::uint64_t>({static_cast<std::uint64_t>(mine.bytes),
                                                    static_cast<std::uint64_t>(mine.unit), mine.number, mine.shift,
                                                    std::uint64_t{mine.ready}, mine.counters.word(), mine.base});
  static_assert(values.size() <= kCountersWord);
  if (mine.place != kNoPlace)
    for (std::size_t i = 0; i < values.size(); ++i) std::atomic_ref(control.own(mine.place)[i]).store(values[i]);
  for (const Member& member : ranks->exchange(mine.place)) {
    parts.emplace_back();
    if (member.place == kNoPlace) continue;
    const auto read = control.read(member.rank, member.place, 0, values.size());
    parts.back() = {static_cast<std::int64_t>(read[0]),
                    static_cast<std::int64_t>(read[1]),
                    read[2],
                    read[3],
                    read.at(6),
                    member.place,
                    member.rank,
                    read[4] != 0,
                    Counters::of_word(read[5])};
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

/// A window of a word, at offsets that are no addresses of memory. Attached memory has its address as its offset.
void RmaWindow::offer_dynamic(Part& mine) {
  mine.bytes = std::numeric_limits<std::int64_t>::max();
  memory_ = job->context.allocate(kOwnBytes);
  mine.number = new_number();
  window_ = job->context.window(memory_name(mine.number), memory_.all());
}

void RmaWindow::offer(Part& mine) {
  if (dynamic()) return offer_dynamic(mine);
  mine.bytes = made.bytes;
  mine.unit = made.unit;
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
    mine.base = address;
    region_ = job->context.region(base - mine.shift, aligned(mine.shift + static_cast<std::uintptr_t>(made.bytes)));
    memory = region_.all();
  }
  mine.number = new_number();
  window_ = job->context.window(memory_name(mine.number), memory);
  if (window_.atomics() == AtomicsBy::gpus)  // accumulates of MPI are in program order
    throw Error(Code::bad_argument, rank, -1, 0, 0, "a window of a GPU's memory");
}

void RmaWindow::attach(std::byte* from, std::size_t bytes) { attached_.attach(job->context, window_, from, bytes); }

void RmaWindow::detach(const std::byte* from) { attached_.detach(window_, from); }

bool RmaWindow::ready() const { return refused() == 0 && std::ranges::all_of(parts, &Part::ready); }

int RmaWindow::first_with_memory() const {
  const auto found = std::ranges::find_if(parts, [](const Part& part) { return part.bytes != 0; });
  return found == parts.end() ? 0 : static_cast<int>(found - parts.begin());
}

int RmaWindow::refused() const {
  const auto refusing = std::ranges::find_if(parts, [](const Part& part) { return part.counters.refused != 0; });
  return refusing == parts.end() ? 0 : refusing->counters.refused;
}

void RmaWindow::close(Epochs::Lock& lock) {
  rma::FirstFailure failure(false);
  failure.of([&] { areas->drain_all(); });
  failure.of([&] { areas->close(); });
  failure.of([&] { epochs->barrier(lock); });
  failure.of([&] { close_memory(kContextTimeout); });
  free_members();
  failure.report();  // else peers may use the words yet
  give_back_words();
}

void RmaWindow::give_up() {
  if (!why_.empty()) log(Level::warn, "MPI serves a window: " + why_);
  if (made.flavor != MPI_WIN_FLAVOR_SHARED && handle != MPI_WIN_NULL) PMPI_Win_free(&handle);
  ranks->meet();  // all have read the words
  give_back_words();
}

void RmaWindow::give_back_words() {
  const Place words = parts[static_cast<std::size_t>(rank)].place;
  if (words != kNoPlace) job->control.give_back(words, Epochs::kWords);
}

void RmaWindow::abandon() {
  areas->close();
  free_members();
}

std::vector<int> RmaWindow::ranks_of(MPI_Group group) {
  if (members_ == MPI_GROUP_NULL) PMPI_Comm_group(comm, &members_);
  int count = 0;
  PMPI_Group_size(group, &count);
  std::vector<int> those(static_cast<std::size_t>(count));
  while (numbers_.size() < those.size()) numbers_.push_back(static_cast<int>(numbers_.size()));
  if (count > 0) PMPI_Group_translate_ranks(group, count, numbers_.data(), members_, those.data());
  if (std::ranges::find(those, MPI_UNDEFINED) != those.end())
    throw Refused(MPI_ERR_GROUP, "a process of the group is not one of the window");
  return those;
}

void RmaWindow::free_members() {
  if (members_ != MPI_GROUP_NULL) PMPI_Group_free(&members_);
}

void RmaWindow::close_memory(std::optional<Timeout> timeout) {
  rma::FirstFailure failure(false);
  if (window_.bytes() != 0) failure.of([&] { window_.close(timeout); });
  failure.of([&] { notifications.close(timeout); });
  failure.report();
}

std::string RmaWindow::describe() const {
  std::string text = "rank " + std::to_string(rank) + " of " + std::to_string(size) + ", " +
                     std::to_string(made.bytes) + " bytes: Sluice serves it";
  if (made.flavor == MPI_WIN_FLAVOR_SHARED) return text + ", in memory that MPI shares";
  if (dynamic()) text += ", and what is attached";
  return window_.bytes() == 0 ? text : text + "; " + window_.describe();
}

}  // namespace sluice::mpi_rma
