// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/attached.hpp"

#include <mpi.h>

#include <exception>
#include <iterator>
#include <string>
#include <utility>

#include "rma/mpi/log.hpp"
#include "rma/mpi/refused.hpp"

namespace sluice::mpi_rma {
namespace {

/// Page size of every kernel that Sluice runs on; larger pages are multiples of it.
constexpr std::uintptr_t kPage = 4096;

std::uintptr_t address_of(const std::byte* base) { return reinterpret_cast<std::uintptr_t>(base); }

}  // namespace

/// The pages of a region: the first and the last by themselves, if it has a part of them.
std::vector<Attached::Piece> Attached::pieces_of(std::uintptr_t begin, std::uintptr_t end) {
  std::vector<Piece> pieces;
  const std::uintptr_t first = begin / kPage * kPage;
  const std::uintptr_t behind = (end + kPage - 1) / kPage * kPage;
  std::uintptr_t whole = first;  // what begins here, and ends at `whole_end`, is the region's alone
  std::uintptr_t whole_end = behind;
  if (begin != first || end < first + kPage) {
    pieces.push_back({first, kPage, true});
    whole += kPage;
  }
  if (end != behind && whole < behind) {
    whole_end -= kPage;
    pieces.push_back({whole_end, kPage, true});
  }
  if (whole < whole_end) pieces.push_back({whole, whole_end - whole, false});
  return pieces;
}

bool Attached::overlaps(std::uintptr_t begin, std::uintptr_t end) const {
  const auto next = regions_.lower_bound(begin);
  return (next != regions_.end() && next->first < end) ||
         (next != regions_.begin() && std::prev(next)->second.end > begin);
}

void Attached::take(Context& context, Window& window, const Piece& piece) {
  std::size_t* const count = piece.shared ? &shared_[piece.at] : nullptr;
  if (count == nullptr || *count == 0) {
    try {
      window.attach(piece.at, context.region(reinterpret_cast<std::byte*>(piece.at), piece.bytes).all());
    } catch (...) {
      if (count != nullptr) shared_.erase(piece.at);
      throw;
    }
  }
  if (count != nullptr) ++*count;
}

void Attached::drop(Window& window, const Piece& piece) {
  if (piece.shared && shared_.at(piece.at) > 1) {
    --shared_[piece.at];
    return;
  }
  window.detach(piece.at);
  shared_.erase(piece.at);
}

void Attached::drop_all(Window& window, std::vector<Piece>& pieces) {
  for (; !pieces.empty(); pieces.pop_back()) drop(window, pieces.back());
}

/// Detaches the pieces of a region that could not be attached as a whole.
void Attached::take_back(Window& window, std::vector<Piece>& pieces) noexcept {
  try {
    drop_all(window, pieces);
  } catch (const std::exception& reason) {
    // A peer that was not told of the region accesses it, and does not answer.
    log(Level::warn, std::string("memory of MPI_Win_attach, which has failed, stays attached: ") + reason.what());
  }
}

void Attached::attach_bytes(Context& context, Window& window, std::uintptr_t begin, std::uintptr_t end) {
  const std::vector<Piece> wanted = pieces_of(begin, end);
  const auto region = regions_.try_emplace(begin, Region{end, {}}).first;
  std::vector<Piece>& taken = region->second.pieces;
  try {
    taken.reserve(wanted.size());
    for (const Piece& piece : wanted) {
      take(context, window, piece);
      taken.push_back(piece);
    }
  } catch (...) {
    take_back(window, taken);
    regions_.erase(region);
    throw;
  }
}

void Attached::attach(Context& context, Window& window, std::byte* base, std::size_t bytes) {
  const std::uintptr_t begin = address_of(base);
  const std::lock_guard lock(mutex_);
  if (bytes == 0) {
    empty_.insert(begin);
    return;
  }
  if (begin == 0 || begin + bytes < begin) throw Refused(MPI_ERR_RMA_ATTACH, "there is no memory at this address");
  if (overlaps(begin, begin + bytes)) throw Refused(MPI_ERR_RMA_ATTACH, "a part of the memory is attached already");
  try {
    attach_bytes(context, window, begin, begin + bytes);
  } catch (const Error& reason) {
    throw Refused(MPI_ERR_RMA_ATTACH, std::string("the memory cannot be attached: ") + reason.what());
  }
}

void Attached::detach(Window& window, const std::byte* base) {
  const std::lock_guard lock(mutex_);
  const auto region = regions_.find(address_of(base));
  if (region != regions_.end()) {
    drop_all(window, region->second.pieces);
    regions_.erase(region);
    return;
  }
  const auto empty = empty_.find(address_of(base));
  if (empty == empty_.end()) throw Refused(MPI_ERR_ARG, "no memory that begins at this address is attached");
  empty_.erase(empty);
}

}  // namespace sluice::mpi_rma
