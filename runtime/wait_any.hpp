// SPDX-License-Identifier: Apache-2.0
// Waits of the host for whichever of several receivers comes first.
#pragma once

#include <sluice/wait_any.hpp>

#include <memory>
#include <string>
#include <vector>

#include "runtime/receiver.hpp"

namespace sluice::detail {

class WaitAnyCore {
 public:
  std::size_t add(std::shared_ptr<ReceiverCore> receiver);
  /// Returns nothing if no receiver is left, or after `timeout`. `from`: the return address of the public
  /// function.
  std::optional<WaitAny::Arrival> wait_for(Timeout timeout, const void* from);
  std::size_t left() const noexcept { return left_; }
  /// The default of `wait`.
  Timeout timeout() const noexcept;
  [[noreturn]] void throw_timeout(Timeout stated) const;

  const base::Origin origin;

 private:
  /// Looks from `next_` on, so that each has its turn. Null: none is ready.
  ReceiverCore* find() noexcept;
  bool await_one(Timeout timeout);
  /// Takes the next epoch of `next_`.
  std::optional<WaitAny::Arrival> take(ReceiverCore& receiver, const void* from);
  void leave_out(std::size_t index) noexcept;
  void check_all() const;
  void find_places();
  std::string states() const;
  /// Of those that have not left, of which there is one.
  const ReceiverCore& one_left() const noexcept;

  std::vector<std::shared_ptr<ReceiverCore>> receivers_;  // null: left
  std::size_t left_ = 0;
  std::size_t next_ = 0;
  std::vector<base::Parking*> places_;  // of the words that are waited for
};

}  // namespace sluice::detail
