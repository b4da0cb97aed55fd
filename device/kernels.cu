// SPDX-License-Identifier: Apache-2.0
// The kernels, for CUDA and for HIP, found by name in the images of driver.hpp.
#include "device/kernels.hpp"

namespace sluice::device {

SLUICE_KERNEL sluice_write(WriteArgs args) {
  if (kernel::Block().index() == 0) kernel::write(args);
}

SLUICE_KERNEL sluice_small_puts(SmallPutsArgs args) { kernel::small_put(kernel::Block(), args, kernel::Grid().x()); }

SLUICE_KERNEL sluice_few_puts(FewPutsArgs args) { kernel::small_put(kernel::Block(), args, kernel::Grid().x()); }

SLUICE_KERNEL sluice_operate(OperateArgs args) {
  if (kernel::Block().index() == 0) kernel::operate(args);
}

SLUICE_KERNEL sluice_acquire(OutArgs args) { kernel::acquire(kernel::Block(), args); }

SLUICE_KERNEL sluice_put(OutArgs args) { kernel::put(kernel::Block(), args, kernel::Grid().x()); }

SLUICE_KERNEL sluice_begin_put(OutArgs args) { kernel::begin_put(kernel::Block(), args); }

SLUICE_KERNEL sluice_copy(OutArgs args) {
  const kernel::Grid grid;
  kernel::copy(kernel::Block(), args, grid.y(), grid.x(), grid.size_x());
}

SLUICE_KERNEL sluice_end_put(OutArgs args) { kernel::end_put(kernel::Block(), args); }

SLUICE_KERNEL sluice_wait(InArgs args) { kernel::wait(kernel::Block(), args); }

SLUICE_KERNEL sluice_release(InArgs args) { kernel::release(kernel::Block(), args); }

SLUICE_KERNEL sluice_reduce(ReduceArgs args) {
  const kernel::Grid grid;
  kernel::reduce(kernel::Block(), args, grid.x(), grid.size_x());
}

SLUICE_KERNEL sluice_change(ChangeArgs args) {
  const kernel::Grid grid;
  kernel::change(kernel::Block(), args, grid.x(), grid.size_x());
}

}  // namespace sluice::device
