// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/channel.hpp>
#include <sluice/export.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace sluice {

namespace detail {
class PlanCore;
struct PlanAccess;
}  // namespace detail

/// Many channels that are driven together, by as few stream operations as possible. `commit` makes all choices. From
/// then on only the plan drives its channels, and after the plan is destroyed they can only be closed. The channels
/// must outlive the plan. Movable, not copyable. `Context::plan` makes a plan; another one is empty, and all its calls
/// throw Error{Code::misuse}.
///
/// @par Errors of verbs (`acquire`, `start`, `wait`, `release`)
///   - {Code::misuse}: the handle is empty, or the HostStream was moved from; this is a child of fork; the plan is not
///     committed; the stream is of another kind or GPU than in `commit`; a channel of the plan is closed. Nothing has
///     changed.
///   - {Code::unsupported}: the stream captures a graph, and this plan cannot be captured.
///   - The failure of a channel of the plan, with any code: see Sender.
///
/// @par Threads
///   One thread at a time. The verbs may name several streams of one kind, and for GPUs of one device, if the program
///   orders them.
///
/// @par Graphs
///   On a GPU's stream the verbs may be captured into graphs, which may be launched any number of times, mixed with
///   calls outside of graphs. From the first capture on, small kernels of Sluice execute the plan, and poll where they
///   wait. A graph must move every channel on by a multiple of its slots. If it does not, the next verb throws
///   {Code::misuse}, and the graph must not be launched. `slot` is right during a capture. The host does not count
///   launches: `close` waits only for work that was enqueued outside of graphs, and a launch that runs later does
///   nothing. Plans with a target that cannot be mapped, in memory of another process, cannot be captured.
class SLUICE_EXPORT Plan {
 public:
  Plan() noexcept = default;
  Plan(Plan&&) noexcept = default;
  Plan& operator=(Plan&&) noexcept = default;

  /// Adds a channel, which stays the caller's. It may have been used before. If the plan is destroyed before `commit`,
  /// the channel is free again.
  /// @throws Error{Code::misuse} after `commit`; if the channel is in a plan already, of another rank or another
  ///   `mpi::context`, closed, or driven by kernels; if a handle is empty.
  Plan& add(Sender& sender);
  Plan& add(Receiver& receiver);

  /// Blocks the host until all channels are connected and their enqueued work has completed. Then fixes the kind of
  /// stream, and for GPUs the device. A commit that failed may be tried again.
  /// @throws Error
  ///   - {Code::timeout}: `timeout`, which counts for all channels together, was exceeded.
  ///   - {Code::misuse}: the handle is empty; the plan is committed; a channel is closed, or was used or opened for
  ///     another kind of stream or another GPU.
  ///   - {Code::unsupported}: this build or machine cannot drive the stream, or the stream captures a graph.
  ///   - {Code::out_of_resources}: the GPU's driver refused a mapping.
  ///   - The failure of a channel.
  void commit(Stream stream, std::optional<Timeout> timeout = kContextTimeout);

  /// On `stream`, waits until the next source slot of every sender may be overwritten. @throws Error as verbs do.
  void acquire(Stream stream);
  /// Enqueues the next epoch of every sender, as Sender::put does.
  /// @throws Error as verbs do; {Code::misuse} also if a peer has closed its end and would never release the epoch.
  void start(Stream stream);
  /// Enqueues a wait for the next epoch of every receiver. Later work on the stream sees all bytes of all of them.
  /// @throws Error as verbs do; {Code::misuse} also if a peer has closed its end and its epoch will never come.
  void wait(Stream stream);
  /// Enqueues the release of the oldest epoch of every receiver that was waited for.
  /// @throws Error as verbs do; {Code::misuse} also if every epoch that was waited for is released.
  void release(Stream stream);

  /// The slot of the sender's next epoch, which `acquire` makes free. Call it after `commit`.
  /// @throws Error{Code::misuse} if the sender is not in this plan, or a handle is empty.
  Slice slot(const Sender& sender) const;
  /// The slot of the receiver's last epoch that was waited for.
  /// @throws Error{Code::misuse} if the receiver is not in this plan, before the first wait, or if a handle is empty.
  Slice slot(const Receiver& receiver) const;

  /// Text for people: a line for each channel, and how many stream operations a start and a wait take.
  /// @throws Error{Code::misuse} if the handle is empty.
  std::string describe() const;

 private:
  friend struct detail::PlanAccess;
  explicit Plan(std::shared_ptr<detail::PlanCore> core) noexcept : core_(std::move(core)) {}

  std::shared_ptr<detail::PlanCore> core_;
};

}  // namespace sluice
