// SPDX-License-Identifier: Apache-2.0
// <cuda.h>, whose functions this library exports while everything else in it is hidden.
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop
