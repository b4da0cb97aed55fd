// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/by_word.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "rma/mpi/operations.hpp"
#include "rma/mpi/rma_window.hpp"
#include "rma/mpi/steps.hpp"

namespace sluice::mpi_rma {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

std::size_t place_of(const std::byte* at, std::size_t size) { return reinterpret_cast<std::uintptr_t>(at) % size; }

/// Elements of up to 8 bytes together in a word.
class Element {
 public:
  Element(std::byte* at, std::size_t size)
      : word_(*reinterpret_cast<std::uint64_t*>(at - place_of(at, kWord))), shift_(place_of(at, kWord)), size_(size) {}

  /// Replaces the elements by what `next(element)` makes of them, in one step. `element` are those before.
  template <class Next>
  void change(std::byte* element, Next next) {
    std::uint64_t found = word_.load();
    for (;;) {
      std::memcpy(element, bytes_of(found) + shift_, size_);
      std::uint64_t wanted = found;
      next(bytes_of(wanted) + shift_);
      if (wanted == found || word_.compare_exchange_weak(found, wanted)) return;
    }
  }

 private:
  static std::byte* bytes_of(std::uint64_t& word) { return reinterpret_cast<std::byte*>(&word); }

  std::atomic_ref<std::uint64_t> word_;
  std::size_t shift_;
  std::size_t size_;
};

/// The elements from `at` on, by MPI's own reduction: for operations that have no step.
void reduce_words(const WordChange& change, std::byte* at, std::size_t stream, std::size_t bytes) {
  const Basic& basic = *change.flat.only;
  for (std::size_t i = 0; i < bytes;) {
    const std::size_t part = std::min(bytes - i, kWord - place_of(at + i, kWord));
    alignas(kWord) std::byte unwanted[kWord];
    std::byte* const before = change.before == nullptr ? unwanted : change.before + stream + i;
    Element(at + i, part).change(before, [&](std::byte* element) {
      alignas(kWord) std::byte value[kWord];
      std::memcpy(value, element, part);
      apply(change.op, basic, change.operands + stream + i, value, part / basic.size);
      std::memcpy(element, value, part);
    });
    i += part;
  }
}

}  // namespace

bool by_word(RmaWindow& window, const There& there, const Flat& flat, std::int64_t begin) {
  const Basic& basic = *flat.only;
  if (!window.by_word || !fits_a_word(basic)) return false;
  const std::byte* const memory = window.areas->mapped(there.rank) + begin;
  bool aligned = true;
  each_element_piece(flat, static_cast<std::size_t>(there.count), [&](std::ptrdiff_t offset, std::size_t, std::size_t) {
    aligned = aligned && place_of(memory + offset, basic.size) == 0;
  });
  return aligned;
}

void change_by_word(RmaWindow& window, const WordChange& change) {
  std::byte* const memory = window.areas->mapped(change.there.rank) + change.begin;
  const ChangeElements steps = change_of(change.op, *change.flat.only);
  const auto behind = [](auto* begin, std::size_t stream) { return begin == nullptr ? nullptr : begin + stream; };
  each_element_piece(change.flat, static_cast<std::size_t>(change.there.count),
                     [&](std::ptrdiff_t offset, std::size_t stream, std::size_t bytes) {
                       if (steps == nullptr) return reduce_words(change, memory + offset, stream, bytes);
                       steps(memory + offset, behind(change.operands, stream), behind(change.before, stream), bytes);
                     });
}

void compare_swap_by_word(RmaWindow& window, const There& there, Bytes element, const void* desired,
                          const void* expected, void* result) {
  std::byte* const at = window.areas->mapped(there.rank) + element.offset;
  Element(at, element.size).change(static_cast<std::byte*>(result), [&](std::byte* there_now) {
    if (std::memcmp(there_now, expected, element.size) == 0) std::memcpy(there_now, desired, element.size);
  });
}

}  // namespace sluice::mpi_rma
