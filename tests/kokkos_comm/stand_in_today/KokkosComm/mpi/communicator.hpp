// SPDX-License-Identifier: Apache-2.0
// By this file the adaptor knows which KokkosComm it is compiled with.
#pragma once
