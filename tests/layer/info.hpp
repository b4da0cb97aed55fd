// SPDX-License-Identifier: Apache-2.0
// Descriptions of what a provider offers (fi_info).
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string_view>

namespace layer {

struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

/// True if a hint is empty or our name.
inline bool names(const char* asked, std::string_view ours) { return !asked || asked == ours; }

/// The offer of libfabric's provider of this name for `hints` on the loopback interface; null if it is missing.
Info info_below(const char* provider, Info hints);

}  // namespace layer
