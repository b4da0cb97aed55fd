// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sluice::cabana {

/// The communication space: Cabana's classes take it in place of Cabana::Mpi.
struct CommSpace {};

}  // namespace sluice::cabana
