// SPDX-License-Identifier: Apache-2.0
#include "rma/signal.hpp"

#include <algorithm>

namespace sluice::rma {

bool take_signal_now(Receiver& in) {
  if (!in.test()) return false;
  in.release({});
  return true;
}

void take_signal(Receiver& in, const Group& group, base::Limit& limit, Patrol* patrol, const char* what) {
  if (take_signal_now(in)) return;
  for (Timeout step = Patrol::kBegin;; step = Patrol::kPeriod) {
    if (limit.over()) throw group.error(Code::timeout, what, in.peer());
    if (in.wait_for(std::min<Timeout>(limit.left(), step))) return in.release({});
    if (in.closed()) throw group.error(Code::peer_lost, "the rank has left", in.peer());
    if (patrol != nullptr) patrol->look();
  }
}

}  // namespace sluice::rma
