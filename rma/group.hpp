// SPDX-License-Identifier: Apache-2.0
// The name and the ranks of a collective window, for its parts.
#pragma once

#include <sluice/context.hpp>
#include <sluice/error.hpp>
#include <sluice/window.hpp>

#include <string>

namespace sluice::rma {

/// The ranks of a collective window, and its name.
struct Group {
  Context context;
  std::string name;
  Rank rank = 0;
  int size = 0;

  /// A name for a part of the window, in the context.
  std::string part(const char* what) const { return std::string("collective window ") + what + ": " + name; }
  /// A target of the words of a rank.
  Target words_of(Rank of) const { return Context(context).target(of, part("words")); }
  /// `peer`: -1: it concerns all of them.
  Error error(Code code, const std::string& what, Rank peer = -1) const {
    return {code, rank, peer, 0, 0, "collective window '" + name + "': " + what};
  }
};

}  // namespace sluice::rma
