// SPDX-License-Identifier: Apache-2.0
#include "apps/common/field_file.hpp"

#include "apps/common/report.hpp"

#include <fmt/core.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace apps {
namespace {

template <class T>
constexpr std::size_t kRecordBytes = sizeof(T) + sizeof(std::int32_t);

template <class T>
constexpr char kKind = std::is_floating_point_v<T> ? 'f' : 'u';

// NumPy's "NPY format" 1.0: a magic string, the length of a Python dictionary, the dictionary. The dictionary ends with
// a newline at a multiple of 64 bytes.
template <class T>
std::string header(const Mesh& mesh) {
  constexpr std::size_t kBeforeDictionary = 10;
  const char order = std::endian::native == std::endian::little ? '<' : '>';
  const std::string planes = mesh.nz > 1 ? fmt::format("{}, ", mesh.nz) : "";
  std::string dictionary =
      fmt::format("{{'descr': [('value', '{}{}{}'), ('rank', '{}i4')], 'fortran_order': False, 'shape': ({}{}, {}), }}",
                  order, kKind<T>, sizeof(T), order, planes, mesh.ny, mesh.nx);
  while ((kBeforeDictionary + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
  dictionary += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(dictionary.size() & 255U);
  bytes += static_cast<char>(dictionary.size() >> 8U);
  return bytes + dictionary;
}

template <class T>
void copy_record(const T& value, std::int32_t rank, char* to) {
  std::memcpy(to, &value, sizeof value);
  std::memcpy(to + sizeof value, &rank, sizeof rank);
}

}  // namespace

template <class T>
void write_field(const std::string& file, std::span<const T> cells, const Decomposition& decomposition) {
  if (file.empty()) return;
  const Mesh& mesh = decomposition.mesh();
  std::string bytes = header<T>(mesh);
  const std::size_t begin = bytes.size();
  bytes.resize(begin + cells.size() * kRecordBytes<T>);
  for (int rank = 0; rank < decomposition.ranks(); ++rank) {
    const Box box = decomposition.box(rank);
    for (Index z = box.z; z < box.z + box.nz; ++z)
      for (Index y = box.y; y < box.y + box.ny; ++y)
        for (Index x = box.x; x < box.x + box.nx; ++x) {
          const auto cell = static_cast<std::size_t>((z * mesh.ny + y) * mesh.nx + x);
          copy_record(cells[cell], rank, &bytes[begin + cell * kRecordBytes<T>]);
        }
  }
  write_text(file, bytes);
}
template void write_field<double>(const std::string& file, std::span<const double> cells,
                                  const Decomposition& decomposition);
template void write_field<std::uint8_t>(const std::string& file, std::span<const std::uint8_t> cells,
                                        const Decomposition& decomposition);

}  // namespace apps
