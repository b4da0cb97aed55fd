// SPDX-License-Identifier: Apache-2.0
// Access of tests to the wrapped backends.
#pragma once

#include <cstdint>

#include <sluice/types.hpp>

#include "base/words.hpp"

namespace sluice::test {

/// The signal word of the wrapped channel whose receiving end was announced last in this process.
base::Word& newest_signal();

/// How often an engine of this process that has a wrapped backend has found nothing under way, and could sleep.
std::uint64_t rests();

/// Posts of this process so far: messages of channels with bytes in their slots, and accesses that move bytes or count.
struct Posts {
  std::uint64_t messages = 0;
  std::uint64_t accesses = 0;
};
Posts posts();

/// Holds back all that is posted in this process, so that nothing completes; or lets it go on.
void hold(bool held);
/// While they are held, no accesses of this process are posted.
void hold_accesses(bool held);
/// While they fail, each access of this process that is posted makes its target fail, and moves its bytes later.
void fail_accesses(bool failing);

/// From now on none of what is posted in this process can be reached from a GPU's stream: there is no memory for it.
void refuse_reaching();
/// From now on puts of this process that are rung for get no bell to share.
void refuse_bells();

/// From now on no wrapped channel to `peer` can be opened in this process. Nothing is sent to `peer` about it.
void lose_path_to(Rank peer);

}  // namespace sluice::test
