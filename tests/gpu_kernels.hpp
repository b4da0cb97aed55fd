// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sluice::test {

/// Gives the library's kernels, and those of tests/device, to a driver that is an emulated one; any other has its own
/// way to run them.
void add_kernels(void* driver);

}  // namespace sluice::test
