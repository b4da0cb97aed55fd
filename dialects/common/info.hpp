// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <array>
#include <optional>
#include <string>

namespace sluice::stream_mpi {

/// The value of a key; nothing without one, or without an info.
inline std::optional<std::string> value_of(MPI_Info info, const char* key) {
  std::array<char, MPI_MAX_INFO_VAL + 1> value{};
  int flag = 0;
  if (info != MPI_INFO_NULL) PMPI_Info_get(info, key, MPI_MAX_INFO_VAL, value.data(), &flag);
  return flag == 0 ? std::nullopt : std::optional<std::string>(value.data());
}

}  // namespace sluice::stream_mpi
