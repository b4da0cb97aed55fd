// SPDX-License-Identifier: Apache-2.0
// Ends of channels, for the objects of this folder: opening, closing, and waiting for peers with limits.
#pragma once

#include <sluice/channel.hpp>
#include <sluice/context.hpp>
#include <sluice/error.hpp>
#include <sluice/kokkos/queue.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace sluice::kokkos::detail {

[[noreturn]] inline void refuse(const Context& context, Code code, const std::string& why) {
  throw Error(code, context.rank(), -1, 0, 0, why);
}

/// Replaces the queue of an object of the program's, "the `kind` 'name'". Blocks the host until the old queue has run
/// everything.
/// @throws Error{Code::misuse} for a queue of another GPU, or of another kind of stream
template <class Exec>
void replace(Queue<Exec>& old, const Queue<Exec>& queue, const Context& context, const char* kind,
             const std::string& name) {
  if (queue == old) return;
  if (queue.stream().kind() != old.stream().kind() || device_of(queue.exec()) != device_of(old.exec()))
    refuse(context, Code::misuse,
           std::string("the ") + kind + " '" + name + "' was made for another GPU, or kind of stream");
  old.fence(std::string("sluice: ") + kind + " goes to another instance");
  old = queue;
}

/// Opens an end of a channel: a Sender, or a Receiver. `where`: a Context, or a Scope.
template <class End, class Where>
End open(Where& where, Rank peer, Tag tag, const Slice& slots, const ChannelOptions& options) {
  if constexpr (std::is_same_v<End, Sender>)
    return where.sender(peer, tag, slots, options);
  else
    return where.receiver(peer, tag, slots, options);
}

/// Opens an end on the scope `name`, for "the `kind` 'name'" of the program. The likeliest reason for Code::misuse is a
/// second object of that name, so the error says so.
template <class End>
End open_named(const std::string& kind, const std::string& name, Scope& scope, Rank peer, Tag tag, const Slice& slots,
               const ChannelOptions& options) {
  try {
    return open<End>(scope, peer, tag, slots, options);
  } catch (const Error& reason) {
    if (reason.code() != Code::misuse) throw;
    throw Error(Code::misuse, reason.rank(), reason.peer(), reason.tag(), 0,
                "the " + kind + " '" + name +
                    "' cannot open its channels; those that are open at once have names of their own (" +
                    reason.what() + ")");
  }
}

/// Closes ends before their owner frees memory that peers access. Returns false if peers may still access it: if an
/// end cannot be closed, or while an exception passes (more than `exceptions` are uncaught), when the destructors of
/// the ends tell the peers that this rank is lost.
bool close_all(int exceptions, auto... ends) noexcept {
  if ((ends.empty() && ...)) return true;
  if (std::uncaught_exceptions() > exceptions) return false;
  const auto close = [](auto all) {
    for (auto& end : all) end.close();
  };
  try {
    (close(ends), ...);
    return true;
  } catch (...) {
    return false;
  }
}

/// Never frees Views, which peers may still access. They stay reachable, so that LeakSanitizer reports no leak. Called
/// by destructors: without memory for that the process ends, since peers would write into freed memory.
inline void keep_for_peers(std::shared_ptr<const void> views) {
  static auto& kept = *new std::pair<std::mutex, std::vector<std::shared_ptr<const void>>>;
  const std::lock_guard lock(kept.first);
  kept.second.push_back(std::move(views));
}

/// True if a put would neither block the host nor, unless `stream_may_wait`, make a GPU's stream wait for credit. On a
/// host stream a put waits for its peer in the stream's thread.
bool can_put(const auto& queue, Sender& sender, bool stream_may_wait) {
  return queue.on_host_stream() || sender.credited() ||
         (stream_may_wait && !queue.in_program_order() && sender.connected());
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
  ///   the timeout if the call is `limited`; {Code::closed} if the peer has closed its end and will put no more
  void check(auto& end, const auto& what, bool limited = true) const {
    const auto waited = std::chrono::steady_clock::now() - begin_;
    if (waited > context_.connect_timeout() && !end.connected())
      end.wait_connected(Timeout::zero());  // throws with the reason
    const auto error = [&](Code code, const std::string& text) {
      return Error(code, context_.rank(), end.peer(), end.tag(), end.epoch() + 1, text);
    };
    if constexpr (requires { end.closed(); }) {
      if (end.closed()) throw error(Code::closed, what());
    }
    if (limited && waited > context_.timeout()) throw error(Code::timeout, what());
  }

 private:
  const Context& context_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace sluice::kokkos::detail
