// SPDX-License-Identifier: Apache-2.0
// The cores of the ends of channels that a layer of the library has opened for itself.
#pragma once

#include "runtime/handles.hpp"
#include "runtime/receiver.hpp"
#include "runtime/sender.hpp"

namespace sluice::detail {

inline ReceiverCore& core_of(const Receiver& receiver) {
  return static_cast<ReceiverCore&>(*ChannelAccess::end(receiver));
}
inline SenderCore& core_of(const Sender& sender) { return static_cast<SenderCore&>(*ChannelAccess::end(sender)); }

}  // namespace sluice::detail
