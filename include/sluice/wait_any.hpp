// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/channel.hpp>
#include <sluice/export.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

namespace sluice {

namespace detail {
class WaitAnyCore;
}

/// Waits for the first of several receivers that gets its next epoch, as MPI_Waitany does for requests. A host that
/// hands out tasks takes the results with it. It is a host form, like Receiver::wait_for: the epoch that it returns
/// counts as waited for, and `Receiver::release` of that receiver releases it.
///
/// The receivers may have different peers, backends, depths and slots; they belong to one rank, and need not be
/// connected yet. They are looked at in turn, so that one that always has a message keeps no other waiting. An object
/// may be used again and again; making one is cheap, but for each wait to have its own would begin with the first
/// receiver each time. A receiver may be in several objects, and its own calls go on as usual.
///
/// A receiver leaves the object, and the others stay, when
///   - its peer has closed, and all epochs that it announced were taken: reported once, as an Arrival without a slot;
///   - it has failed: the failure is thrown once, and names the channel;
///   - it was closed here: not reported.
///
/// Movable, not copyable. An object that was moved from is empty.
///
/// @par Threads
///   One thread at a time, which counts as a user of each of the receivers.
class SLUICE_EXPORT WaitAny {
 public:
  /// The result of a wait.
  struct Arrival {
    /// The receiver, as the number of those that were added before it.
    std::size_t index = 0;
    /// The slot of its epoch, as Receiver::wait_for returns it. Nothing: the peer has closed, and no epoch follows.
    std::optional<Slice> slot;

    bool closed() const noexcept { return !slot; }
  };

  WaitAny() noexcept = default;
  /// Adds all, in this order. @throws Error as `add`.
  explicit WaitAny(std::span<Receiver> receivers);
  WaitAny(WaitAny&&) noexcept = default;
  WaitAny& operator=(WaitAny&&) noexcept = default;

  /// Adds one more, and returns its index. The handle may be moved later; to destroy it closes the receiver as always.
  /// @throws Error{Code::misuse} if the handle is empty, or the receiver is closed, in a committed plan, driven by
  ///   kernels, or of another rank or another `mpi::context` than those before; in a child of fork.
  std::size_t add(Receiver& receiver);

  /// Blocks the host until one of the receivers has its next epoch, waits for that epoch, and returns its slot. Returns
  /// nothing once no receiver is left.
  /// @throws Error{Code::timeout}: nothing has changed; {Code::misuse} if a plan or kernels drive a receiver by now, or
  ///   in a child of fork; else the failure of a receiver, which is left out from then on.
  std::optional<Arrival> wait(std::optional<Timeout> timeout = kContextTimeout);
  /// Like `wait`, but a timeout is no error: returns nothing then, too (`left` tells the two apart). With a timeout of
  /// 0 it does not block.
  /// @throws Error as `wait`, but for {Code::timeout}.
  std::optional<Arrival> wait_for(Timeout timeout);

  /// Number of receivers that have not left.
  std::size_t left() const noexcept;

 private:
  std::shared_ptr<detail::WaitAnyCore> core_;
};

}  // namespace sluice
