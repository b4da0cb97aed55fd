// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/types.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "rma/mpi/basic_types.hpp"
#include "rma/mpi/refused.hpp"
#include "rma/mpi/type_contents.hpp"

namespace sluice::mpi_rma {
namespace {

/// Adds elements, as a part of the last run if they follow it.
void add_run(Flat& flat, const Run& run) {
  if (run.count == 0) return;
  if (!flat.runs.empty()) {
    Run& last = flat.runs.back();
    const auto next = last.offset + static_cast<std::ptrdiff_t>(last.count * last.basic->extent);
    if (last.basic == run.basic && run.offset == next) {
      last.count += run.count;
      return;
    }
  }
  flat.runs.push_back(run);
}

/// Adds `count` values of a type, one after another.
void append(Flat& flat, const Flat& child, std::ptrdiff_t offset, std::int64_t count) {
  if (count <= 0) return;
  each_run(child, static_cast<std::size_t>(count), [&](std::ptrdiff_t at, std::size_t n, const Basic& basic) {
    add_run(flat, {offset + at, n, &basic});
  });
}

/// Blocks of lengths that the type names, at displacements in bytes or in values.
void append_blocks(Flat& flat, const Flat& child, TypeContents& contents, bool in_bytes, bool one_length) {
  const std::int64_t blocks = contents.next_count();
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(one_length ? 1 : blocks));
  for (std::int64_t& length : lengths) length = contents.next_count();
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::ptrdiff_t at = in_bytes ? contents.next_address() : contents.next_count() * child.extent;
    append(flat, child, at, lengths[one_length ? 0 : static_cast<std::size_t>(i)]);
  }
}

void append_vector(Flat& flat, const Flat& child, TypeContents& contents, bool in_bytes) {
  const std::int64_t blocks = contents.next_count();
  const std::int64_t length = contents.next_count();
  const std::ptrdiff_t stride = in_bytes ? contents.next_address() : contents.next_count() * child.extent;
  for (std::int64_t i = 0; i < blocks; ++i) append(flat, child, i * stride, length);
}

void append_struct(Flat& flat, TypeContents& contents) {
  const std::int64_t blocks = contents.next_count();
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(blocks));
  for (std::int64_t& length : lengths) length = contents.next_count();
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::ptrdiff_t at = contents.next_address();
    append(flat, flat_of(contents.types().at(static_cast<std::size_t>(i))), at, lengths[static_cast<std::size_t>(i)]);
  }
}

/// MPI itself tells where the elements of a type with a complicated layout are: it packs a buffer in which each byte
/// holds a part of its own offset.
void append_as_packed(Flat& flat, const Flat& child, MPI_Datatype type) {
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  int size = 0;
  PMPI_Type_get_true_extent(type, &lower, &extent);
  PMPI_Type_size(type, &size);
  std::vector<std::uint64_t> offsets(static_cast<std::size_t>(size));
  std::vector<unsigned char> buffer(static_cast<std::size_t>(extent));
  std::vector<unsigned char> packed(offsets.size());
  for (unsigned shift = 0; shift < 64 && (extent >> shift) > 0; shift += 8) {
    for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = static_cast<unsigned char>(i >> shift);
    int position = 0;
    PMPI_Pack(buffer.data() - lower, 1, type, packed.data(), size, &position, MPI_COMM_SELF);
    for (std::size_t i = 0; i < packed.size(); ++i) offsets[i] |= std::uint64_t{packed[i]} << shift;
  }
  for (std::size_t at = 0; at < offsets.size();) {
    for (const Run& run : child.runs) {
      for (std::size_t i = 0; i < run.count && at < offsets.size(); ++i, at += run.basic->size)
        add_run(flat, {lower + static_cast<std::ptrdiff_t>(offsets[at]), 1, run.basic});
    }
  }
}

void append_derived(Flat& flat, MPI_Datatype type, TypeContents& contents) {
  const int combiner = contents.combiner();
  if (combiner == MPI_COMBINER_STRUCT) return append_struct(flat, contents);
  const Flat& child = flat_of(contents.types().at(0));
  switch (combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED: return append(flat, child, 0, 1);
    case MPI_COMBINER_CONTIGUOUS: return append(flat, child, 0, contents.next_count());
    case MPI_COMBINER_VECTOR: return append_vector(flat, child, contents, false);
    case MPI_COMBINER_HVECTOR: return append_vector(flat, child, contents, true);
    case MPI_COMBINER_INDEXED: return append_blocks(flat, child, contents, false, false);
    case MPI_COMBINER_HINDEXED: return append_blocks(flat, child, contents, true, false);
    case MPI_COMBINER_INDEXED_BLOCK: return append_blocks(flat, child, contents, false, true);
    case MPI_COMBINER_HINDEXED_BLOCK: return append_blocks(flat, child, contents, true, true);
    case MPI_COMBINER_SUBARRAY:
    case MPI_COMBINER_DARRAY: return append_as_packed(flat, child, type);
    default: throw Refused(MPI_ERR_TYPE, "a datatype of an unknown kind, " + std::to_string(combiner));
  }
}

/// The facts that follow from the runs.
void finish(Flat& flat, MPI_Datatype type) {
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  PMPI_Type_get_extent(type, &lower, &extent);
  flat.extent = extent;
  for (const Run& run : flat.runs) {
    const auto end = run.offset + static_cast<std::ptrdiff_t>((run.count - 1) * run.basic->extent + run.basic->span());
    flat.begin = flat.elements == 0 ? run.offset : std::min(flat.begin, run.offset);
    flat.end = flat.elements == 0 ? end : std::max(flat.end, end);
    flat.elements += run.count;
    flat.bytes += run.count * run.basic->size;
    if (flat.only == nullptr) flat.only = run.basic;
  }
  const auto differs = [&](const Run& run) { return run.basic != flat.only; };
  if (std::ranges::any_of(flat.runs, differs)) flat.only = nullptr;
  flat.dense = flat.runs.size() == 1 && flat.only->dense() && extent == static_cast<MPI_Aint>(flat.bytes);
}

std::unique_ptr<const Flat> flatten(MPI_Datatype type) {
  auto flat = std::make_unique<Flat>();
  if (const Basic* const named = named_type(type)) {
    add_run(*flat, {0, 1, named});
  } else {
    TypeContents contents(type);
    if (const auto kind = contents.unnamed_kind()) {
      add_run(*flat, {0, 1, unnamed_type(type, *kind)});
    } else {
      append_derived(*flat, type, contents);
    }
  }
  finish(*flat, type);
  return flat;
}

extern "C" int sluice_rma_drop_type(MPI_Datatype, int, void* flat, void*) {
  delete static_cast<const Flat*>(flat);
  return MPI_SUCCESS;
}

/// The attribute of a derived type that holds its elements.
int flat_key() {
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, &sluice_rma_drop_type, &made, nullptr);
    return made;
  }();
  return key;
}

const Flat& named_flat(MPI_Datatype type) {
  static std::mutex& mutex = *new std::mutex;
  static auto& flats = *new std::map<MPI_Datatype, std::unique_ptr<const Flat>>;
  const std::lock_guard lock(mutex);
  auto& flat = flats[type];
  if (flat == nullptr) flat = flatten(type);
  return *flat;
}

}  // namespace

std::size_t find_size(MPI_Datatype type) {
  const Basic* const basic = type == MPI_DATATYPE_NULL ? nullptr : named_type(type);
  return basic != nullptr && basic->dense() && basic->second_at == 0 ? basic->size : 0;
}

const Flat& flat_of(MPI_Datatype type) {
  // The predefined types that this thread has used last, which are never freed: a call names two.
  struct Recent {
    MPI_Datatype type;
    const Flat* flat;
  };
  thread_local std::array<Recent, 4> recent{};
  thread_local std::size_t oldest = 0;
  for (const Recent& one : recent) {
    if (one.flat != nullptr && one.type == type) return *one.flat;
  }
  if (named_type(type) != nullptr) {
    Recent& next = recent[oldest++ % recent.size()];
    next = {type, &named_flat(type)};
    return *next.flat;
  }
  void* found = nullptr;
  int flag = 0;
  PMPI_Type_get_attr(type, flat_key(), static_cast<void*>(&found), &flag);
  if (flag != 0) return *static_cast<const Flat*>(found);
  std::unique_ptr<const Flat> flat = flatten(type);
  const Flat& made = *flat;
  PMPI_Type_set_attr(type, flat_key(), const_cast<Flat*>(flat.release()));
  return made;
}

}  // namespace sluice::mpi_rma
