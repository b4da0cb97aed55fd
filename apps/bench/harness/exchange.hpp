// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/sluice.hpp>

#include <cstring>
#include <type_traits>

namespace bench {

/// Sends `mine` to the peer and returns the peer's value; both call it at once. For set-up: it opens two channels and
/// closes them.
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
  // Both are closed before the next exchange, which must not match a channel of this one.
  out.close();
  in.close();
  return theirs;
}

}  // namespace bench
