// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/type_contents.hpp"

namespace sluice::mpi_rma {

namespace {

/// MPI's numbers of arguments by which a type was made.
struct Envelope {
#if MPI_VERSION >= 4
  using Number = MPI_Count;
#else
  using Number = int;
#endif
  explicit Envelope(MPI_Datatype type) {
#if MPI_VERSION >= 4
    PMPI_Type_get_envelope_c(type, &ints, &addresses, &counts, &types, &combiner);
#else
    PMPI_Type_get_envelope(type, &ints, &addresses, &types, &combiner);
#endif
  }
  Number ints = 0;
  Number addresses = 0;
  Number counts = 0;
  Number types = 0;
  int combiner = MPI_COMBINER_NAMED;
};

/// The kind of the predefined types of a combiner.
std::optional<Kind> kind_of(int combiner) {
  switch (combiner) {
    case MPI_COMBINER_NAMED: return Kind::other;
    case MPI_COMBINER_F90_REAL: return Kind::floating;
    case MPI_COMBINER_F90_COMPLEX: return Kind::complex;
    case MPI_COMBINER_F90_INTEGER: return Kind::integer;
    default: return std::nullopt;
  }
}

/// True for types that a program has made. A predefined one must not be freed, and MPI 4.1 has unnamed ones of a
/// combiner of their own (MPI_COMBINER_VALUE_INDEX).
bool derived(int combiner) {
  switch (combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
    case MPI_COMBINER_CONTIGUOUS:
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR:
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK:
    case MPI_COMBINER_STRUCT:
    case MPI_COMBINER_SUBARRAY:
    case MPI_COMBINER_DARRAY: return true;
    default: return false;
  }
}

}  // namespace

TypeContents::TypeContents(MPI_Datatype type) {
  const Envelope envelope(type);
  combiner_ = envelope.combiner;
  if (!derived(combiner_)) return;
  ints_.resize(static_cast<std::size_t>(envelope.ints));
  addresses_.resize(static_cast<std::size_t>(envelope.addresses));
  types_.resize(static_cast<std::size_t>(envelope.types));
#if MPI_VERSION >= 4
  if (envelope.counts > 0) {
    std::vector<MPI_Count> all(static_cast<std::size_t>(envelope.counts));
    PMPI_Type_get_contents_c(type, envelope.ints, envelope.addresses, envelope.counts, envelope.types, ints_.data(),
                             addresses_.data(), all.data(), types_.data());
    counts_.assign(all.begin(), all.end());
    return;
  }
#endif
  PMPI_Type_get_contents(type, static_cast<int>(envelope.ints), static_cast<int>(envelope.addresses),
                         static_cast<int>(envelope.types), ints_.data(), addresses_.data(), types_.data());
}

TypeContents::~TypeContents() {
  for (MPI_Datatype& type : types_)
    if (derived(Envelope(type).combiner)) PMPI_Type_free(&type);
}

std::optional<Kind> TypeContents::predefined_kind() const { return kind_of(combiner_); }

std::int64_t TypeContents::next_count() {
  if (!counts_.empty()) return counts_.at(count_at_++);
  return next_int();
}

std::int64_t TypeContents::next_address() {
  if (!counts_.empty()) return counts_.at(count_at_++);
  return addresses_.at(address_at_++);
}

}  // namespace sluice::mpi_rma
