// SPDX-License-Identifier: Apache-2.0
// The cores of the ends of channels that a layer of the library has opened for itself.
#pragma once

#include <sluice/error.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "base/limit.hpp"
#include "runtime/handles.hpp"
#include "runtime/receiver.hpp"
#include "runtime/sender.hpp"

namespace sluice::detail {

inline ReceiverCore& core_of(const Receiver& receiver) {
  return static_cast<ReceiverCore&>(*ChannelAccess::end(receiver));
}
inline SenderCore& core_of(const Sender& sender) { return static_cast<SenderCore&>(*ChannelAccess::end(sender)); }

/// The text of an error without its kind, which the next one names again.
inline std::string without_kind(const Error& error) {
  const std::string_view what = error.what();
  const std::string kind = std::string(name(error.code())) + ": ";
  return std::string(what.starts_with(kind) ? what.substr(kind.size()) : what);
}

/// All begin to close before one is waited for. False: not within the limit.
inline bool close_all(std::span<runtime::ChannelEnd* const> ends, base::Limit& limit) {
  base::Limit at_once(Timeout::zero());
  for (runtime::ChannelEnd* const end : ends) (void)end->close_within(at_once);
  return std::ranges::all_of(ends, [&](runtime::ChannelEnd* end) { return end->close_within(limit); });
}

}  // namespace sluice::detail
