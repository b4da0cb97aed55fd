// SPDX-License-Identifier: Apache-2.0
// <cuda.h>, whose functions this library exports while everything else in it is hidden.
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
/// CUDA 12's header names this cuStreamGetCaptureInfo.
extern "C" CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                              CUgraph* graph, const CUgraphNode** nodes, size_t* count);
#pragma GCC visibility pop
