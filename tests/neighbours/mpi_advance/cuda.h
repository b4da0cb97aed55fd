// SPDX-License-Identifier: Apache-2.0
// The little of CUDA's driver that MPI Advance's tests name, for stream_mpi.py.
#pragma once

using CUresult = int;
inline constexpr CUresult CUDA_SUCCESS = 0;
inline CUresult cuGetErrorName(CUresult, const char** name) { return *name = "error", CUDA_SUCCESS; }
inline CUresult cuGetErrorString(CUresult, const char** text) { return *text = "error", CUDA_SUCCESS; }
