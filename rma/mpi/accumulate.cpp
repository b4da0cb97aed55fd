// SPDX-License-Identifier: Apache-2.0
// Accumulates. MPI promises that those of one type are atomic with each other, whatever their operation (MPI 4.0,
// 12.7.1): one rank at a time changes the elements of a block, in their place where this process maps the memory; else
// it reads them, changes them and writes them.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "rma/first_failure.hpp"
#include "rma/mpi/access.hpp"
#include "rma/mpi/changes.hpp"
#include "rma/mpi/operations.hpp"
#include "rma/mpi/reach.hpp"
#include "rma/mpi/refused.hpp"
#include "rma/mpi/rma_window.hpp"
#include "rma/mpi/types.hpp"

namespace sluice::mpi_rma {
namespace {

/// The elements, at their extent.
std::vector<std::byte> gathered(const Here& from, const Flat& flat) {
  std::vector<std::byte> all(flat.elements * static_cast<std::size_t>(from.count) * flat.only->extent);
  const auto* const begin = static_cast<const std::byte*>(from.address);
  each_element_piece(flat, static_cast<std::size_t>(from.count),
                     [&](std::ptrdiff_t offset, std::size_t stream, std::size_t bytes) {
                       std::memcpy(all.data() + stream, begin + offset, bytes);
                     });
  return all;
}

void scatter(const std::vector<std::byte>& all, const Here& to) {
  const Flat& flat = flat_of(to.type);
  auto* const begin = static_cast<std::byte*>(to.address);
  const std::byte* from = all.data();
  each_run(flat, static_cast<std::size_t>(to.count), [&](std::ptrdiff_t offset, std::size_t n, const Basic& basic) {
    copy_elements(basic, begin + offset, from, n);
    from += n * basic.extent;
  });
}

/// @throws unless they are so many elements like those of `basic`
void check_elements(const Here& here, std::size_t elements, const Basic& basic) {
  const Flat& flat = flat_of(here.type);
  const std::size_t count = total(flat.elements, here.count);
  const bool alike = flat.only != nullptr && flat.only->size == basic.size && flat.only->extent == basic.extent;
  if (count == elements && alike) return;
  throw Refused(MPI_ERR_TYPE, std::to_string(count) + " elements here and " + std::to_string(elements) +
                                  " at the target, or elements of other types");
}

/// Memory of this rank as an array of elements: the program's own, or a copy.
class Array {
 public:
  explicit Array(const Here& here) : here_(here), flat_(flat_of(here.type)) {
    if (flat_.dense) {
      data_ = static_cast<std::byte*>(here.address) + flat_.begin;
    } else {
      copy_ = gathered(here, flat_);
      data_ = copy_.data();
    }
  }
  std::byte* data() { return data_; }
  /// The elements are to be seen by the program.
  void finish() {
    if (!flat_.dense) scatter(copy_, here_);
  }

 private:
  const Here& here_;
  const Flat& flat_;
  std::vector<std::byte> copy_;
  std::byte* data_;
};

/// Holds the turn of the block at an offset.
class OneAtATime {
 public:
  OneAtATime(RmaWindow& window, Epochs::Lock& lock, int rank, std::uint64_t offset)
      : window_(window), rank_(rank), word_(Turns::word_of(offset)) {
    window_.epochs->take_turn(lock, rank_, word_);
  }
  OneAtATime(const OneAtATime&) = delete;
  OneAtATime& operator=(const OneAtATime&) = delete;
  ~OneAtATime() { window_.epochs->end_turn(rank_, word_, writes_ ? Turns::kBroken : 0); }

  /// `put` writes into the memory of the rank. Returns once the bytes are there.
  template <class Put>
  void write(Put put) {
    writes_ = true;
    rma::FirstFailure failure(false);
    failure.of(put);
    failure.of([&] { window_.areas->drain(rank_); });
    failure.report();
    writes_ = false;
  }

 private:
  RmaWindow& window_;
  int rank_;
  std::size_t word_;
  bool writes_ = false;
};

/// Changes elements in turns of their blocks.
class InTurn {
 public:
  InTurn(RmaWindow& window, Epochs::Lock& lock, int rank, MPI_Op op, const Basic& basic, std::byte* operands,
         std::byte* before)
      : window_(window), lock_(lock), rank_(rank), op_(op), basic_(basic), change_(change_of(op, basic)),
        operands_(operands), before_(before) {}

  /// Elements that adjoin, at `stream` of the arrays.
  void add(std::uint64_t offset, std::size_t stream, std::size_t bytes) {
    const std::size_t step = basic_.dense() ? basic_.extent : bytes;
    while (bytes > 0) {
      const std::uint64_t left = Turns::kBlock - offset % Turns::kBlock;
      const std::size_t part = std::min(bytes, (left + step - 1) / step * step);
      add_part({offset, stream, part});
      offset += part;
      stream += part;
      bytes -= part;
    }
  }
  /// Carries out what was added.
  void finish() {
    if (parts_.empty()) return;
    OneAtATime turn(window_, lock_, rank_, parts_.front().offset);
    change(turn);
    parts_.clear();
  }

 private:
  /// Bytes of the arrays at a time. An element may end in the next block.
  static constexpr std::size_t kMost = Turns::kBlock + 64;
  static constexpr std::size_t kParts = 1000;

  struct Part {
    std::uint64_t offset;
    std::size_t stream;
    std::size_t bytes;
  };

  void add_part(const Part& part) {
    if (!parts_.empty()) {
      const Part& first = parts_.front();
      const bool fits = part.offset / Turns::kBlock == first.offset / Turns::kBlock &&
                        part.stream + part.bytes - first.stream <= kMost && parts_.size() < kParts;
      if (!fits) finish();
    }
    parts_.push_back(part);
  }

  void change(OneAtATime& turn) {
    std::byte* const memory = window_.areas->mapped(rank_);
    if (memory != nullptr && change_ != nullptr) return change_in_place(memory);
    const std::size_t begin = parts_.front().stream;
    const std::size_t bytes = parts_.back().stream + parts_.back().bytes - begin;
    const Slice there = window_.areas->scratch(kMost);
    rma::FirstFailure failure(false);
    failure.of([&] {
      for (const Part& part : parts_)
        window_.areas->read_into(rank_, part.offset, there.slice(part.stream - begin, part.bytes));
    });
    failure.of([&] { window_.areas->drain(rank_); });  // before others use the memory
    failure.report();
    const std::size_t elements = (bytes + basic_.extent - 1) / basic_.extent;
    if (op_ == MPI_NO_OP) return copy_before(there, begin, bytes);
    // A result may lie where the operands do.
    if (before_ == nullptr) {
      apply(op_, basic_, operands_ + begin, there.data(), elements);
    } else {
      const std::vector<std::byte> operands(operands_ + begin, operands_ + begin + bytes);
      copy_before(there, begin, bytes);
      apply(op_, basic_, operands.data(), there.data(), elements);
    }
    turn.write([&] {
      for (const Part& part : parts_)
        window_.areas->write_from(rank_, part.offset, there.slice(part.stream - begin, part.bytes));
    });
  }

  void change_in_place(std::byte* memory) {
    const auto from = [](std::byte* all, const Part& part) { return all == nullptr ? nullptr : all + part.stream; };
    for (const Part& part : parts_)
      change_(memory + part.offset, from(operands_, part), from(before_, part), part.bytes);
  }

  void copy_before(const Slice& there, std::size_t begin, std::size_t bytes) {
    if (before_ != nullptr) std::memcpy(before_ + begin, there.data(), bytes);
  }

  RmaWindow& window_;
  Epochs::Lock& lock_;
  int rank_;
  MPI_Op op_;
  const Basic& basic_;
  ChangeElements change_;
  std::byte* operands_;
  std::byte* before_;
  std::vector<Part> parts_;
};

}  // namespace

void accumulate(RmaWindow& window, Epochs::Lock& lock, const Here& operands, const Here& result, const There& to,
                MPI_Op op) {
  const Flat& theirs = flat_of(to.type);
  const std::size_t elements = total(theirs.elements, to.count);
  if (elements == 0) return;
  if (theirs.only == nullptr) throw Refused(MPI_ERR_TYPE, "an accumulate of elements of several types");
  const Basic& basic = *theirs.only;
  check_operation(op, basic);
  if (op != MPI_NO_OP) check_elements(operands, elements, basic);
  if (result.type != MPI_DATATYPE_NULL) check_elements(result, elements, basic);
  const std::int64_t begin = reach(window, to, theirs);
  std::optional<Array> changes;
  std::optional<Array> before;
  if (op != MPI_NO_OP) changes.emplace(operands);
  if (result.type != MPI_DATATYPE_NULL) before.emplace(result);
  std::byte* const from = changes ? changes->data() : nullptr;
  std::byte* const old = before ? before->data() : nullptr;
  InTurn turn(window, lock, to.rank, op, basic, from, old);
  each_element_piece(theirs, static_cast<std::size_t>(to.count),
                     [&](std::ptrdiff_t offset, std::size_t stream, std::size_t bytes) {
                       turn.add(static_cast<std::uint64_t>(begin + offset), stream, bytes);
                     });
  turn.finish();
  if (before) before->finish();
}

void compare_and_swap(RmaWindow& window, Epochs::Lock& lock, const void* desired, const void* expected, void* result,
                      const There& to) {
  const Flat& flat = flat_of(to.type);
  const auto may_be = [&](Kind kind) { return flat.only->kind == kind; };
  if (flat.only == nullptr || flat.elements != 1 ||
      !(may_be(Kind::integer) || may_be(Kind::logical) || may_be(Kind::bytes)))
    throw Refused(MPI_ERR_TYPE, "MPI_Compare_and_swap takes an integer, a logical value or a byte");
  const auto at = static_cast<std::uint64_t>(reach(window, to, flat));
  const std::size_t size = flat.only->size;
  OneAtATime turn(window, lock, to.rank, at);
  if (std::byte* const memory = window.areas->mapped(to.rank))
    return swap_if_equal(memory + at, desired, expected, result, size);
  const Slice there = window.areas->scratch(size);
  window.areas->read_into(to.rank, at, there);
  window.areas->drain(to.rank);
  const bool equal = std::memcmp(expected, there.data(), size) == 0;
  std::memcpy(result, there.data(), size);
  if (!equal) return;
  std::memcpy(there.data(), desired, size);
  turn.write([&] { window.areas->write_from(to.rank, at, there); });
}

}  // namespace sluice::mpi_rma
