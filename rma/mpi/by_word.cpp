// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/by_word.hpp"

#include <algorithm>
#include <cstring>

#include "rma/mpi/operations.hpp"
#include "rma/mpi/rma_window.hpp"

namespace sluice::mpi_rma {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

/// Elements of up to 8 bytes together in a word at a rank.
class Element {
 public:
  Element(Target& target, std::size_t at, std::size_t size)
      : target_(target), word_(at / kWord * kWord), shift_(at % kWord), size_(size) {}

  /// Replaces the elements by what `next(element)` makes of them, in one step. `element` are those before.
  template <class Next>
  void change(std::byte* element, Next next) {
    std::uint64_t found = target_.compare_swap(word_, 0, 0);  // reads, in one step
    for (;;) {
      std::memcpy(element, bytes_of(found) + shift_, size_);
      std::uint64_t wanted = found;
      next(bytes_of(wanted) + shift_);
      if (wanted == found) return;
      const std::uint64_t before = target_.compare_swap(word_, found, wanted);
      if (before == found) return;
      found = before;
    }
  }

 private:
  static std::byte* bytes_of(std::uint64_t& word) { return reinterpret_cast<std::byte*>(&word); }

  Target& target_;
  std::size_t word_;
  std::size_t shift_;
  std::size_t size_;
};

std::uint64_t word_at(const std::byte* from) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, kWord);
  return word;
}

/// Words of 8 bytes for which the processor has an instruction. True if it was done.
bool change_whole_word(Target& target, std::size_t at, const Basic& basic, MPI_Op op, const std::byte* operand,
                       std::byte* before) {
  if (basic.size != kWord) return false;
  std::uint64_t found = 0;
  if (op == MPI_SUM && basic.kind == Kind::integer) {
    found = target.fetch_add(at, word_at(operand));
  } else if (op == MPI_REPLACE) {
    found = target.swap(at, word_at(operand));
  } else {
    return false;
  }
  std::memcpy(before, &found, kWord);
  return true;
}

/// Sluice's own accumulate of many elements. True if it has one.
bool accumulate_at_once(RmaWindow& window, const WordChange& change) {
  const Basic& basic = *change.flat.only;
  auto number = basic.number;
  if (change.op == MPI_REPLACE && (basic.size == 4 || basic.size == 8))
    number = basic.size == 4 ? Number::uint32 : Number::uint64;
  const auto op = operation_of(change.op, basic);
  if (change.before != nullptr || !number || !op) return false;
  const int rank = change.there.rank;
  each_element_piece(change.flat, static_cast<std::size_t>(change.there.count),
                     [&](std::ptrdiff_t offset, std::size_t stream, std::size_t bytes) {
                       const Slice numbers = window.areas->staged(change.operands + stream, bytes);
                       const std::size_t at = window.areas->at(rank, static_cast<std::uint64_t>(change.begin + offset));
                       window.areas->target(rank).accumulate({}, *op, *number, numbers, at);
                     });
  window.areas->drain(rank);  // `operands` may end with the call
  return true;
}

}  // namespace

bool by_word(const RmaWindow& window, const There& there, const Flat& flat, std::int64_t begin) {
  const Basic& basic = *flat.only;
  const bool fits = basic.size == 1 || basic.size == 2 || basic.size == 4 || basic.size == 8;
  if (!window.by_word || !fits || basic.kind == Kind::pair || basic.kind == Kind::complex) return false;
  bool aligned = true;
  each_element_piece(flat, static_cast<std::size_t>(there.count), [&](std::ptrdiff_t offset, std::size_t, std::size_t) {
    aligned = aligned && static_cast<std::size_t>(begin + offset) % basic.size == 0;
  });
  return aligned;
}

void change_by_word(RmaWindow& window, const WordChange& change) {
  if (accumulate_at_once(window, change)) return;
  const Basic& basic = *change.flat.only;
  Target& target = window.areas->target(change.there.rank);
  // Elements that adjoin in one word.
  const auto work = [&](std::size_t at, std::size_t stream, std::size_t bytes) {
    std::uint64_t unwanted = 0;
    std::byte* const before =
        change.before == nullptr ? reinterpret_cast<std::byte*>(&unwanted) : change.before + stream;
    const std::byte* const operand = change.operands + stream;
    if (change_whole_word(target, at, basic, change.op, operand, before)) return;
    Element(target, at, bytes).change(before, [&](std::byte* element) {
      alignas(kWord) std::byte value[kWord];
      std::memcpy(value, element, bytes);
      apply(change.op, basic, operand, value, bytes / basic.size);
      std::memcpy(element, value, bytes);
    });
  };
  each_element_piece(change.flat, static_cast<std::size_t>(change.there.count),
                     [&](std::ptrdiff_t offset, std::size_t stream, std::size_t bytes) {
                       const auto from = static_cast<std::uint64_t>(change.begin + offset);
                       const std::size_t first = window.areas->at(change.there.rank, from);
                       for (std::size_t i = 0; i < bytes;) {
                         const std::size_t part = std::min(bytes - i, kWord - (first + i) % kWord);
                         work(first + i, stream + i, part);
                         i += part;
                       }
                     });
}

void compare_swap_by_word(RmaWindow& window, const There& there, Bytes element, const void* desired,
                          const void* expected, void* result) {
  Target& target = window.areas->target(there.rank);
  auto* const before = static_cast<std::byte*>(result);
  const std::size_t at = window.areas->at(there.rank, element.offset);
  if (element.size == kWord) {
    const std::uint64_t found = target.compare_swap(at, word_at(static_cast<const std::byte*>(expected)),
                                                    word_at(static_cast<const std::byte*>(desired)));
    std::memcpy(before, &found, kWord);
    return;
  }
  Element(target, at, element.size).change(before, [&](std::byte* there_now) {
    if (std::memcmp(there_now, expected, element.size) == 0) std::memcpy(there_now, desired, element.size);
  });
}

}  // namespace sluice::mpi_rma
