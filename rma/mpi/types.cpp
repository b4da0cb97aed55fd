// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/types.hpp"

#include <algorithm>
#include <array>
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
  if (run.count == 0 || run.basic->size == 0) return;  // of no bytes: MPI_UB, of MPI 2
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

/// The facts that follow from the runs.
void finish(Flat& flat, std::ptrdiff_t extent) {
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
  flat.dense = flat.runs.size() == 1 && flat.only->dense() && extent == static_cast<std::ptrdiff_t>(flat.bytes);
}

/// The indices that a type has in one dimension of an array: blocks of `length`, `stride` apart, below `end`.
struct Blocks {
  std::int64_t size = 0;  ///< of the array
  std::int64_t first = 0;
  std::int64_t length = 0;
  std::int64_t stride = 0;
  std::int64_t end = 0;
};

std::vector<Blocks> read_subarray(TypeContents& contents) {
  std::vector<Blocks> dimensions(static_cast<std::size_t>(contents.next_int()));
  for (Blocks& blocks : dimensions) blocks.size = blocks.stride = contents.next_count();
  for (Blocks& blocks : dimensions) blocks.length = contents.next_count();
  for (Blocks& blocks : dimensions) {
    blocks.first = contents.next_count();
    blocks.end = blocks.first + blocks.length;
  }
  return dimensions;
}

/// MPI 4.0, 5.1.4: every distribution is a cyclic one of blocks.
std::vector<Blocks> read_distributed_array(TypeContents& contents) {
  std::int64_t processes = contents.next_int();
  std::int64_t rank = contents.next_int();
  std::vector<Blocks> dimensions(static_cast<std::size_t>(contents.next_int()));
  for (Blocks& blocks : dimensions) blocks.size = blocks.end = contents.next_count();
  std::vector<int> distributions(dimensions.size());
  for (int& distribution : distributions) distribution = contents.next_int();
  for (Blocks& blocks : dimensions) blocks.length = contents.next_int();
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    Blocks& blocks = dimensions[i];
    const std::int64_t parts = contents.next_int();
    if (distributions[i] == MPI_DISTRIBUTE_NONE) {
      blocks.length = blocks.size;
    } else if (blocks.length == MPI_DISTRIBUTE_DFLT_DARG) {
      blocks.length = distributions[i] == MPI_DISTRIBUTE_BLOCK ? (blocks.size + parts - 1) / parts : 1;
    }
    processes /= parts;
    blocks.first = rank / processes * blocks.length;
    blocks.stride = parts * blocks.length;
    rank %= processes;
  }
  return dimensions;
}

/// A part of an array of values of a type, dimension by dimension, from the one that is contiguous in memory on.
void append_array(Flat& flat, const Flat& child, TypeContents& contents, std::vector<Blocks> dimensions) {
  if (contents.next_int() == MPI_ORDER_C) std::ranges::reverse(dimensions);
  Flat part = child;
  for (const Blocks& blocks : dimensions) {
    Flat parts;
    for (std::int64_t at = blocks.first; at < blocks.end; at += blocks.stride)
      append(parts, part, at * part.extent, std::min(blocks.length, blocks.end - at));
    finish(parts, blocks.size * part.extent);
    part = std::move(parts);
  }
  append(flat, part, 0, 1);
}

void append_derived(Flat& flat, TypeContents& contents) {
  const int combiner = contents.combiner();
  if (combiner == MPI_COMBINER_STRUCT) return append_struct(flat, contents);
  if (contents.types().empty())
    throw Refused(MPI_ERR_TYPE, "a datatype of an unknown kind, " + std::to_string(combiner));
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
    case MPI_COMBINER_SUBARRAY: return append_array(flat, child, contents, read_subarray(contents));
    default: return append_array(flat, child, contents, read_distributed_array(contents));  // MPI_COMBINER_DARRAY
  }
}

std::unique_ptr<const Flat> flatten(MPI_Datatype type) {
  auto flat = std::make_unique<Flat>();
  if (const Basic* const named = named_type(type)) {
    add_run(*flat, {0, 1, named});
  } else {
    TypeContents contents(type);
    if (const auto kind = contents.predefined_kind()) {
      add_run(*flat, {0, 1, other_type(type, *kind)});
    } else {
      append_derived(*flat, contents);
    }
  }
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  PMPI_Type_get_extent(type, &lower, &extent);
  finish(*flat, extent);
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

/// The elements of a type, if a thread has found them before; else null.
const Flat* known_flat(MPI_Datatype type) {
  void* found = nullptr;
  int flag = 0;
  PMPI_Type_get_attr(type, flat_key(), static_cast<void*>(&found), &flag);
  return flag != 0 ? static_cast<const Flat*>(found) : nullptr;
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
  if (const Flat* const known = known_flat(type)) return *known;
  // One thread sets the attribute: setting it again would delete elements that another thread uses. Types contain
  // types.
  static std::recursive_mutex& mutex = *new std::recursive_mutex;
  const std::lock_guard lock(mutex);
  if (const Flat* const known = known_flat(type)) return *known;
  std::unique_ptr<const Flat> flat = flatten(type);
  const Flat& made = *flat;
  PMPI_Type_set_attr(type, flat_key(), const_cast<Flat*>(flat.release()));
  return made;
}

}  // namespace sluice::mpi_rma
