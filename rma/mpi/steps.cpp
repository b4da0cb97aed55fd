// SPDX-License-Identifier: Apache-2.0
// A step changes a block of 16 bytes, whatever the size of the elements, since it takes as long as one for a single
// byte (sluice-bench mpi_windows: accumulate). The processor has no instruction that adds to several elements: a step
// is a compare-and-swap of the block, and starts again if another rank has changed it meanwhile.
#include "rma/mpi/steps.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/wide.hpp"
#include "rma/mpi/operations.hpp"

namespace sluice::mpi_rma {
namespace {

#ifdef SLUICE_CHANGES_16_BYTES

/// The bytes of a step.
struct Block {
  static constexpr std::size_t kBytes = 16;
  using Words [[gnu::vector_size(kBytes)]] = std::uint64_t;

  static bool usable() noexcept { return base::changes_16_bytes; }
  /// In two loads: if they do not fit together, `exchange` finds that.
  static Words load(std::byte* at) noexcept {
    const auto half = [&](std::size_t from) {
      return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at + from)).load(std::memory_order_relaxed);
    };
    return Words{half(0), half(kBytes / 2)};
  }
  static bool exchange(std::byte* at, Words& there, Words wanted) noexcept {
    base::Halves found{there[0], there[1]};
    const bool done = base::exchange(at, found, {wanted[0], wanted[1]});
    there = Words{found.low, found.high};
    return done;
  }
};

#else

struct Block {
  static constexpr std::size_t kBytes = 8;
  using Words [[gnu::vector_size(kBytes)]] = std::uint64_t;

  static bool usable() noexcept { return true; }
  static Words load(std::byte* at) noexcept {
    return Words{std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at)).load(std::memory_order_relaxed)};
  }
  static bool exchange(std::byte* at, Words& there, Words wanted) noexcept {
    std::uint64_t found = there[0];
    const std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(at));
    const bool done = word.compare_exchange_strong(found, wanted[0]);
    there = Words{found};
    return done;
  }
};

#endif

using Words = Block::Words;

// The operations of a step, on all elements of a block. `Lanes`: a vector of integers without sign, of integers, or of
// numbers.

struct Sum {
  template <class Lanes>
  static Lanes of(Lanes there, Lanes operand) {
    return there + operand;
  }
};
struct Product {
  template <class Lanes>
  static Lanes of(Lanes there, Lanes operand) {
    return there * operand;
  }
};
struct Least {
  template <class Lanes>
  static Lanes of(Lanes there, Lanes operand) {
    return operand < there ? operand : there;
  }
};
struct Largest {
  template <class Lanes>
  static Lanes of(Lanes there, Lanes operand) {
    return operand > there ? operand : there;
  }
};
struct BothTrue {
  template <class Lanes>
  static Lanes of(Lanes there, Lanes operand) {
    return reinterpret_cast<Lanes>((there != 0) & (operand != 0)) & 1;
  }
};
struct OneTrue {
  template <class Lanes>
  static Lanes of(Lanes there, Lanes operand) {
    return reinterpret_cast<Lanes>((there | operand) != 0) & 1;
  }
};
struct UnlikeTruth {
  template <class Lanes>
  static Lanes of(Lanes there, Lanes operand) {
    return reinterpret_cast<Lanes>((there != 0) ^ (operand != 0)) & 1;
  }
};
struct BitAnd {
  template <class Lanes>
  static Lanes of(Lanes there, Lanes operand) {
    return there & operand;
  }
};
struct BitOr {
  template <class Lanes>
  static Lanes of(Lanes there, Lanes operand) {
    return there | operand;
  }
};
struct BitXor {
  template <class Lanes>
  static Lanes of(Lanes there, Lanes operand) {
    return there ^ operand;
  }
};
struct Replaced {
  template <class Lanes>
  static Lanes of(Lanes, Lanes operand) {
    return operand;
  }
};

template <class T, class Operation>
Words changed(Words there, Words operand) {
  using Lanes [[gnu::vector_size(Block::kBytes)]] = T;
  return reinterpret_cast<Words>(Operation::of(reinterpret_cast<Lanes>(there), reinterpret_cast<Lanes>(operand)));
}

/// The elements of a whole block.
template <class T, class Operation>
void change_block(std::byte* at, const std::byte* operands, std::byte* before) {
  Words operand;
  std::memcpy(&operand, operands, sizeof operand);
  Words there = Block::load(at);
  while (!Block::exchange(at, there, changed<T, Operation>(there, operand))) {
  }
  if (before != nullptr) std::memcpy(before, &there, sizeof there);
}

/// Some elements of a block, `bytes` bytes from `from` on; the others stay. They do not take part in the operation
/// either: what they are may be no numbers, for which a program may want a signal.
template <class T, class Operation>
void change_part(std::byte* block, std::size_t from, std::size_t bytes, const std::byte* operands, std::byte* before) {
  std::array<std::byte, Block::kBytes> mine{};
  std::array<std::byte, Block::kBytes> taken{};
  std::memcpy(mine.data() + from, operands, bytes);
  std::memset(taken.data() + from, 0xff, bytes);
  const auto operand = std::bit_cast<Words>(mine);
  const auto mask = std::bit_cast<Words>(taken);
  Words there = Block::load(block);
  while (!Block::exchange(block, there, (there & ~mask) | (changed<T, Operation>(there & mask, operand) & mask))) {
  }
  if (before == nullptr) return;
  const auto found = std::bit_cast<std::array<std::byte, Block::kBytes>>(there);
  std::memcpy(before, found.data() + from, bytes);
}

/// Cuts the elements into blocks: `whole(block, offset)`, and at the ends `part(block, from, bytes, offset)`.
void in_blocks(std::byte* at, std::size_t bytes, auto whole, auto part) {
  std::size_t done = 0;
  const std::size_t from = reinterpret_cast<std::uintptr_t>(at) % Block::kBytes;
  if (from != 0) {
    done = std::min(bytes, Block::kBytes - from);
    part(at - from, from, done, std::size_t{0});
  }
  for (; bytes - done >= Block::kBytes; done += Block::kBytes) whole(at + done, done);
  if (done < bytes) part(at + done, std::size_t{0}, bytes - done, done);
}

template <class T, class Operation>
void change_all(std::byte* at, const std::byte* operands, std::byte* before, std::size_t bytes) {
  const auto at_old = [&](std::size_t offset) { return before == nullptr ? nullptr : before + offset; };
  in_blocks(
      at, bytes,
      [&](std::byte* block, std::size_t offset) {
        change_block<T, Operation>(block, operands + offset, at_old(offset));
      },
      [&](std::byte* block, std::size_t from, std::size_t part, std::size_t offset) {
        change_part<T, Operation>(block, from, part, operands + offset, at_old(offset));
      });
}

template <class T>
T value_at(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// One integer changes by an instruction, which does not start again where other ranks change it too.
template <class T>
void add(std::byte* at, const std::byte* operands, std::byte* before, std::size_t bytes) {
  if (bytes != sizeof(T)) return change_all<T, Sum>(at, operands, before, bytes);
  const T old = std::atomic_ref(*reinterpret_cast<T*>(at)).fetch_add(value_at<T>(operands));
  if (before != nullptr) std::memcpy(before, &old, sizeof old);
}

template <class T>
void replace(std::byte* at, const std::byte* operands, std::byte* before, std::size_t bytes) {
  if (before == nullptr) {
    for (std::size_t i = 0; i < bytes; i += sizeof(T))
      std::atomic_ref(*reinterpret_cast<T*>(at + i)).store(value_at<T>(operands + i), std::memory_order_release);
  } else if (bytes == sizeof(T)) {
    const T old = std::atomic_ref(*reinterpret_cast<T*>(at)).exchange(value_at<T>(operands));
    std::memcpy(before, &old, sizeof old);
  } else {
    change_all<T, Replaced>(at, operands, before, bytes);
  }
}

template <class T>
void read(std::byte* at, const std::byte*, std::byte* before, std::size_t bytes) {
  for (std::size_t i = 0; before != nullptr && i < bytes; i += sizeof(T)) {
    const T value = std::atomic_ref(*reinterpret_cast<T*>(at + i)).load(std::memory_order_acquire);
    std::memcpy(before + i, &value, sizeof value);
  }
}

/// Elements that are stored or loaded: words of 8 bytes, in which none is cut, and the elements at the ends.
template <class T, auto change_one_by_one, auto change_words>
void in_words(std::byte* at, const std::byte* operands, std::byte* before, std::size_t bytes) {
  constexpr std::size_t kStored = sizeof(std::uint64_t);
  if (bytes < 2 * kStored) return change_one_by_one(at, operands, before, bytes);
  const std::size_t head = (kStored - reinterpret_cast<std::uintptr_t>(at) % kStored) % kStored;
  const std::size_t body = (bytes - head) / kStored * kStored;
  const auto change = [&](auto work, std::size_t from, std::size_t part) {
    if (part != 0)
      work(at + from, operands == nullptr ? nullptr : operands + from, before == nullptr ? nullptr : before + from,
           part);
  };
  change(change_one_by_one, 0, head);
  change(change_words, head, body);
  change(change_one_by_one, head + body, bytes - head - body);
}

template <class T>
void replace_all(std::byte* at, const std::byte* operands, std::byte* before, std::size_t bytes) {
  if (before != nullptr) return replace<T>(at, operands, before, bytes);
  in_words<T, replace<T>, replace<std::uint64_t>>(at, operands, before, bytes);
}

template <class T>
void read_all(std::byte* at, const std::byte* operands, std::byte* before, std::size_t bytes) {
  in_words<T, read<T>, read<std::uint64_t>>(at, operands, before, bytes);
}

/// Calls `visit(value)` with a value of the integer type without sign of that size.
ChangeElements for_size(std::size_t size, auto visit) {
  switch (size) {
    case 1: return visit(std::uint8_t{});
    case 2: return visit(std::uint16_t{});
    case 4: return visit(std::uint32_t{});
    case 8: return visit(std::uint64_t{});
    default: return nullptr;
  }
}

/// Calls `visit(value)` with a value of the type of these integers or floating-point numbers.
ChangeElements for_number(const Basic& basic, auto visit) {
  if (basic.kind == Kind::floating) {
    if (basic.size == sizeof(float)) return visit(float{});
    return basic.size == sizeof(double) ? visit(double{}) : nullptr;
  }
  return for_size(basic.size, [&](auto plain) {
    using Unsigned = decltype(plain);
    return basic.is_signed ? visit(std::make_signed_t<Unsigned>{}) : visit(Unsigned{});
  });
}

template <class Operation>
ChangeElements by_bits(std::size_t size) {
  return for_size(size, [](auto value) -> ChangeElements { return &change_all<decltype(value), Operation>; });
}

ChangeElements arithmetic(MPI_Op op, const Basic& basic) {
  if (op == MPI_MIN)
    return for_number(basic, [](auto value) -> ChangeElements { return &change_all<decltype(value), Least>; });
  if (op == MPI_MAX)
    return for_number(basic, [](auto value) -> ChangeElements { return &change_all<decltype(value), Largest>; });
  Basic plain = basic;
  plain.is_signed = false;  // a sum that overflows is one modulo a power of 2
  if (op == MPI_PROD)
    return for_number(plain, [](auto value) -> ChangeElements { return &change_all<decltype(value), Product>; });
  if (op != MPI_SUM) return nullptr;
  return for_number(plain, [](auto value) -> ChangeElements {
    if constexpr (std::is_floating_point_v<decltype(value)>) {
      return &change_all<decltype(value), Sum>;
    } else {
      return &add<decltype(value)>;
    }
  });
}

ChangeElements logical(MPI_Op op, const Basic& basic) {
  if (op == MPI_LAND) return by_bits<BothTrue>(basic.size);
  if (op == MPI_LOR) return by_bits<OneTrue>(basic.size);
  return op == MPI_LXOR ? by_bits<UnlikeTruth>(basic.size) : nullptr;
}

ChangeElements bitwise(MPI_Op op, const Basic& basic) {
  if (op == MPI_BAND) return by_bits<BitAnd>(basic.size);
  if (op == MPI_BOR) return by_bits<BitOr>(basic.size);
  return op == MPI_BXOR ? by_bits<BitXor>(basic.size) : nullptr;
}

}  // namespace

ChangeElements change_of(MPI_Op op, const Basic& basic) {
  if (!Block::usable()) return nullptr;
  if (op == MPI_NO_OP)
    return for_size(basic.size, [](auto value) -> ChangeElements { return &read_all<decltype(value)>; });
  if (op == MPI_REPLACE)
    return for_size(basic.size, [](auto value) -> ChangeElements { return &replace_all<decltype(value)>; });
  ChangeElements found = nullptr;
  const bool integer = basic.kind == Kind::integer;
  if (integer || basic.kind == Kind::floating) found = arithmetic(op, basic);
  // Truth in Fortran is what its compiler says.
  if (found == nullptr && (integer || (basic.kind == Kind::logical && basic.size == 1))) found = logical(op, basic);
  if (found == nullptr && (integer || basic.kind == Kind::bytes)) found = bitwise(op, basic);
  return found;
}

KnownChange find_change(MPI_Op op, MPI_Datatype type) {
  KnownChange found{op, type, nullptr, find_size(type)};
  if (found.size == 0) return found;
  const Basic& basic = *flat_of(type).only;
  if (fits_a_word(basic) && defined(op, basic.kind)) found.steps = change_of(op, basic);
  return found;
}

}  // namespace sluice::mpi_rma
