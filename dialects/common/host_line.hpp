// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "c/handles.hpp"
#include "dialects/common/line.hpp"
#include "dialects/common/outcome.hpp"

#include <sluice/stream.hpp>

#include <memory>
#include <optional>

namespace sluice::stream_mpi {

/// A host stream, of its own or of the program.
///
/// On a stream of its own, whose items are all of this line, a host that waits runs them itself, which saves two
/// changes of thread at each wait; and a call that enqueues a short start behind nothing runs it, so that credits and
/// small messages leave early.
class HostLine final : public Line {
 public:
  explicit HostLine(const Context& context);
  HostLine(const Context& context, sluice_host_stream* const* variable);
  ~HostLine() override;

  std::optional<Stream> gpu() const override { return std::nullopt; }
  void start(OperationList operations) override;
  void wait_all(OperationList operations) override;
  int wait() override;

 private:
  struct Group;
  class Groups;
  struct Shared;
  class Item;
  class OwnItems;
  using Step = void(const Group& group);

  static void keep_while_used(std::unique_ptr<Shared> shared);
  void enqueue(Step* step, Group& group);
  void await_here();

  Timeout limit_;
  std::unique_ptr<Shared> shared_;
  std::shared_ptr<OwnItems> own_items_;
  std::optional<HostStream> own_;  ///< destroyed first: it may run items
  sluice_host_stream* const* variable_ = nullptr;
};

}  // namespace sluice::stream_mpi
