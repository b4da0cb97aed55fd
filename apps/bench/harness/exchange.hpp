// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/sluice.hpp>

#include <cstring>
#include <type_traits>

namespace bench {

/// Sends `mine` to the peer and returns the peer's value. Both ranks call it. Only for set-up, because it opens two
/// channels and closes them.
template <class T>
requires std::is_trivially_copyable_v<T> T exchange(sluice::Context& context, sluice::Rank peer, const T& mine) {
  sluice::Scope scope = context.scope("sluice-bench set-up");
  const sluice::Memory memory = context.allocate(2 * sizeof(T));
  sluice::Sender out = scope.sender(peer, 0, memory.slice(0, sizeof(T)));
  sluice::Receiver in = scope.receiver(peer, 0, memory.slice(sizeof(T), sizeof(T)));
  std::memcpy(memory.data(), &mine, sizeof(T));
  out.put({});
  T theirs;
  std::memcpy(&theirs, in.wait({}).data(), sizeof(T));
  in.release({});
  // Closed before the next exchange, whose channels have the same names and must not match these.
  out.close();
  in.close();
  return theirs;
}

}  // namespace bench
