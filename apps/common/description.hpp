// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace apps {

/// What reports name of the text that a channel or a plan says about itself, which is for people and has no other form.
struct Description {
  std::string backend = "none";   ///< what moves the data; none: not connected, or no channel
  std::string fired_by = "none";  ///< stream, NIC or engine; none: a receiver, or not connected
};

/// Reads the first channel of `text` by position: "'name' WHERE, SLOTS: BACKEND: how; fired by the WHO", each channel
/// in a line of its own.
Description read_description(const std::string& text);

}  // namespace apps
