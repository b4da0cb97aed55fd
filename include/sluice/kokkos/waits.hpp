// SPDX-License-Identifier: Apache-2.0
// When a put blocks nobody, and how long a call waits for a peer.
#pragma once

#include <sluice/channel.hpp>
#include <sluice/context.hpp>
#include <sluice/error.hpp>
#include <sluice/kokkos/queue.hpp>

#include <chrono>
#include <utility>

namespace sluice::kokkos::detail {

/// True if a put would neither block the host nor, unless `stream_may_wait`, make a GPU's stream wait for credit. On a
/// host stream a put waits for its peer in the stream's thread.
inline bool can_put(const Stream& stream, Sender& sender, bool stream_may_wait) {
  return on_host_stream(stream) || sender.credited() ||
         (stream_may_wait && !in_program_order(stream) && sender.connected());
}

/// Between two turns a call that waits for a message blocks on it for this long: at first, and at most.
inline constexpr Timeout kShortTurn = std::chrono::microseconds(50);
inline constexpr Timeout kLongTurn = std::chrono::milliseconds(2);

/// The limits of a call that waits for peers. The call begins when this is made.
class WaitLimits {
 public:
  explicit WaitLimits(const Context& context) : context_(context) {}

  /// `what()` says what the peer of `end` has not done.
  /// @throws Error{Code::timeout} after the connect timeout if the peer has not opened its end, and with `what()` after
  ///   the timeout if the call is `limited`
  template <class End, class What>
  void check(End& end, const What& what, bool limited = true) const {
    const auto waited = std::chrono::steady_clock::now() - begin_;
    if (waited > context_.connect_timeout() && !end.connected())
      end.wait_connected(Timeout::zero());  // throws with the reason
    if (limited && waited > context_.timeout())
      throw Error(Code::timeout, context_.rank(), end.peer(), end.tag(), end.epoch() + 1, what());
  }

 private:
  const Context& context_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Gives a variable another value until this ends.
template <class T>
class Scoped {
 public:
  Scoped(T& variable, T value) : variable_(variable), before_(std::exchange(variable, value)) {}
  ~Scoped() { variable_ = before_; }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  T& variable_;
  T before_;
};

}  // namespace sluice::kokkos::detail
