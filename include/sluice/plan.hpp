// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/channel.hpp>
#include <sluice/export.hpp>

#include <memory>
#include <optional>
#include <string>

namespace sluice {

namespace detail {
class PlanCore;
struct PlanAccess;
}  // namespace detail

/// Many channels, fired by as few stream operations as possible. All choices are made in `commit`. The channels outlive
/// the plan and, once committed, are driven by it alone: when such a plan is gone they can only be closed. Movable, not
/// copyable; one thread or stream at a time.
///
/// On a GPU's stream the verbs may be captured into graphs, which may be launched any number of times, among calls
/// outside of graphs. From the first capture on small kernels do what the verbs say, and poll where they wait. What is
/// captured must move every channel on by a multiple of its slots: else the next call throws Error{Code::misuse}, and
/// the graph must not be launched. `slot` is right while capturing. The host does not count launches: `close` waits for
/// what was enqueued outside of graphs alone, and a launch that comes later finds nothing to be done. Not for
/// memory that a peer in another process cannot map: Error{Code::unsupported}.
class SLUICE_EXPORT Plan {
 public:
  /// Empty: made by `Context::plan`.
  Plan() noexcept;
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  /// @throws Error{Code::misuse} after commit, or for a channel that is in a plan already or of another context.
  Plan& add(Sender& sender);
  Plan& add(Receiver& receiver);

  /// Waits for the plan's own peers to connect, and fixes the kind of stream.
  void commit(Stream stream, std::optional<Timeout> timeout = kContextTimeout);

  /// On `stream`, waits until every sender's next source slot may be overwritten.
  void acquire(Stream stream);
  /// Enqueues the next epoch of every sender.
  void start(Stream stream);
  /// Enqueues a wait for the next epoch of every receiver.
  void wait(Stream stream);
  /// Gives back the oldest waited epoch of every receiver.
  void release(Stream stream);

  /// The slot of the sender's next epoch.
  Slice slot(const Sender& sender) const;
  /// The slot of the receiver's last waited epoch.
  Slice slot(const Receiver& receiver) const;

  /// A line per channel, and how many stream operations a start and a wait take.
  std::string describe() const;

 private:
  friend struct detail::PlanAccess;
  explicit Plan(std::shared_ptr<detail::PlanCore> core) noexcept;

  std::shared_ptr<detail::PlanCore> core_;
};

}  // namespace sluice
