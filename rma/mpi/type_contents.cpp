// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/type_contents.hpp"

namespace sluice::mpi_rma {

namespace {

/// The kind of the predefined types without a name that a combiner makes.
std::optional<Kind> kind_of(int combiner) {
  switch (combiner) {
    case MPI_COMBINER_F90_REAL: return Kind::floating;
    case MPI_COMBINER_F90_COMPLEX: return Kind::complex;
    case MPI_COMBINER_F90_INTEGER: return Kind::integer;
    default: return std::nullopt;
  }
}

}  // namespace

TypeContents::TypeContents(MPI_Datatype type) {
#if MPI_VERSION >= 4
  MPI_Count ints = 0;
  MPI_Count addresses = 0;
  MPI_Count counts = 0;
  MPI_Count types = 0;
  PMPI_Type_get_envelope_c(type, &ints, &addresses, &counts, &types, &combiner_);
  const bool large = counts > 0;
#else
  int ints = 0;
  int addresses = 0;
  int types = 0;
  PMPI_Type_get_envelope(type, &ints, &addresses, &types, &combiner_);
#endif
  if (combiner_ == MPI_COMBINER_NAMED || unnamed_kind()) return;
  ints_.resize(static_cast<std::size_t>(ints));
  addresses_.resize(static_cast<std::size_t>(addresses));
  types_.resize(static_cast<std::size_t>(types));
#if MPI_VERSION >= 4
  if (large) {
    std::vector<MPI_Count> all(static_cast<std::size_t>(counts));
    PMPI_Type_get_contents_c(type, ints, addresses, counts, types, ints_.data(), addresses_.data(), all.data(),
                             types_.data());
    counts_.assign(all.begin(), all.end());
    return;
  }
#endif
  PMPI_Type_get_contents(type, static_cast<int>(ints), static_cast<int>(addresses), static_cast<int>(types),
                         ints_.data(), addresses_.data(), types_.data());
}

TypeContents::~TypeContents() {
  for (MPI_Datatype& type : types_) {
    int ints = 0;
    int addresses = 0;
    int types = 0;
    int combiner = MPI_COMBINER_NAMED;
    PMPI_Type_get_envelope(type, &ints, &addresses, &types, &combiner);
    if (combiner != MPI_COMBINER_NAMED && !kind_of(combiner)) PMPI_Type_free(&type);
  }
}

std::optional<Kind> TypeContents::unnamed_kind() const { return kind_of(combiner_); }

std::int64_t TypeContents::next_count() {
  if (!counts_.empty()) return counts_.at(count_at_++);
  return ints_.at(count_at_++);
}

std::int64_t TypeContents::next_address() {
  if (!counts_.empty()) return counts_.at(count_at_++);
  return addresses_.at(address_at_++);
}

}  // namespace sluice::mpi_rma
