// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sluice::test {

/// Gives the kernels of the library, of benchmarks and of tests to a driver that is an emulated one; any other has its
/// own way to run them. Returns whether it is one.
bool add_kernels(void* driver);

}  // namespace sluice::test
