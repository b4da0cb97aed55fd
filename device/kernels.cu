// SPDX-License-Identifier: Apache-2.0
// The kernels, for CUDA and for HIP, found by name in the images of kernel_images.hpp.
#include "device/kernels.hpp"

namespace sluice::device {

SLUICE_KERNEL sluice_put(PutArgs args) { kernel::put(kernel::Block(), args); }

SLUICE_KERNEL sluice_wait(WaitArgs args) {
  if (kernel::Block().index() == 0) kernel::wait(args);
}

SLUICE_KERNEL sluice_write(WriteArgs args) {
  if (kernel::Block().index() == 0) kernel::write(args);
}

}  // namespace sluice::device
