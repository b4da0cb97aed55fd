// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/changes.hpp"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "rma/mpi/operations.hpp"

namespace sluice::mpi_rma {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// The operations, on an element and its operand.

struct Sum {
  template <class T>
  static T of(T there, T operand) {
    return static_cast<T>(there + operand);
  }
};
struct Product {
  template <class T>
  static T of(T there, T operand) {
    return static_cast<T>(1U * there * operand);  // short integers would be multiplied as int, which can overflow
  }
};
struct Least {
  template <class T>
  static T of(T there, T operand) {
    return operand < there ? operand : there;
  }
};
struct Largest {
  template <class T>
  static T of(T there, T operand) {
    return operand > there ? operand : there;
  }
};
struct BothTrue {
  template <class T>
  static T of(T there, T operand) {
    return there != 0 && operand != 0;
  }
};
struct OneTrue {
  template <class T>
  static T of(T there, T operand) {
    return (there | operand) != 0;
  }
};
struct UnlikeTruth {
  template <class T>
  static T of(T there, T operand) {
    return (there != 0) != (operand != 0);
  }
};
struct BitAnd {
  template <class T>
  static T of(T there, T operand) {
    return there & operand;
  }
};
struct BitOr {
  template <class T>
  static T of(T there, T operand) {
    return there | operand;
  }
};
struct BitXor {
  template <class T>
  static T of(T there, T operand) {
    return there ^ operand;
  }
};
struct Replaced {
  template <class T>
  static T of(T, T operand) {
    return operand;
  }
};

template <class T, class Operation>
[[gnu::always_inline]] inline void change_each(std::byte* there, const std::byte* operands, std::byte* before,
                                               std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += sizeof(T)) {
    const T old = load<T>(there + i);
    const T operand = load<T>(operands + i);
    if (before != nullptr) store(before + i, old);
    store(there + i, Operation::of(old, operand));
  }
}

#if defined(__x86_64__)

const bool g_has_avx2 = [] {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0;
}();

template <class T, class Operation>
[[gnu::target("avx2")]] void change_256(std::byte* there, const std::byte* operands, std::byte* before,
                                        std::size_t bytes) {
  change_each<T, Operation>(there, operands, before, bytes);
}

#endif

template <class T, class Operation>
void change(std::byte* there, const std::byte* operands, std::byte* before, std::size_t bytes) {
  if (bytes == sizeof(T)) return change_each<T, Operation>(there, operands, before, sizeof(T));
#if defined(__x86_64__)
  if (g_has_avx2) return change_256<T, Operation>(there, operands, before, bytes);
#endif
  change_each<T, Operation>(there, operands, before, bytes);
}

void read(std::byte* there, const std::byte*, std::byte* before, std::size_t bytes) {
  if (before != nullptr) std::memcpy(before, there, bytes);
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
ChangeElements by_value(const Basic& basic) {
  return for_number(basic, [](auto value) -> ChangeElements { return &change<decltype(value), Operation>; });
}

template <class Operation>
ChangeElements by_bits(std::size_t size) {
  return for_size(size, [](auto value) -> ChangeElements { return &change<decltype(value), Operation>; });
}

ChangeElements arithmetic(MPI_Op op, const Basic& basic) {
  if (op == MPI_MIN) return by_value<Least>(basic);
  if (op == MPI_MAX) return by_value<Largest>(basic);
  Basic plain = basic;
  plain.is_signed = false;  // a sum that overflows is one modulo a power of 2
  if (op == MPI_SUM) return by_value<Sum>(plain);
  return op == MPI_PROD ? by_value<Product>(plain) : nullptr;
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
  if (!basic.dense()) return nullptr;
  if (op == MPI_NO_OP) return &read;
  if (op == MPI_REPLACE) return by_bits<Replaced>(basic.size);
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
  if (defined(op, basic.kind)) found.change = change_of(op, basic);
  return found;
}

}  // namespace sluice::mpi_rma
