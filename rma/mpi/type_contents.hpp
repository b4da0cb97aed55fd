// SPDX-License-Identifier: Apache-2.0
// MPI's account of how a datatype was made.
#pragma once

#include "rma/mpi/types.hpp"

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace sluice::mpi_rma {

/// The arguments by which a datatype was made, read one after another, whether they are int, MPI_Aint or MPI_Count.
class TypeContents {
 public:
  explicit TypeContents(MPI_Datatype type);
  TypeContents(const TypeContents&) = delete;
  TypeContents& operator=(const TypeContents&) = delete;
  ~TypeContents();

  int combiner() const { return combiner_; }
  /// The kind of a predefined type, as far as MPI tells: `other` for each one with a name. None: the type is derived.
  std::optional<Kind> predefined_kind() const;
  /// None of a predefined type, nor of one whose combiner is not known.
  const std::vector<MPI_Datatype>& types() const { return types_; }
  /// The next argument that is an int however large the counts are.
  int next_int() { return ints_.at(int_at_++); }
  /// The next argument that counts values.
  std::int64_t next_count();
  /// The next argument in bytes.
  std::int64_t next_address();

 private:
  int combiner_ = MPI_COMBINER_NAMED;
  std::vector<int> ints_;
  std::vector<MPI_Aint> addresses_;
  std::vector<std::int64_t> counts_;  // of a type that was made with large counts: those and addresses, in order
  std::vector<MPI_Datatype> types_;
  std::size_t int_at_ = 0;
  std::size_t count_at_ = 0;
  std::size_t address_at_ = 0;
};

}  // namespace sluice::mpi_rma
