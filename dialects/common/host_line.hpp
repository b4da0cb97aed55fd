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
/// changes of thread at each wait.
class HostLine final : public Line {
 public:
  explicit HostLine(const Context& context);
  HostLine(const Context& context, sluice_host_stream* const* variable);

  std::optional<Stream> gpu() const override { return std::nullopt; }
  void start(OperationList operations) override;
  void wait_all(OperationList operations) override;
  int wait() override;

 private:
  struct Batch;
  class Item;
  class OwnItems;
  using Step = void(const Batch& batch);

  void enqueue(Step* step, OperationList operations);
  void await_here();

  std::optional<HostStream> own_;
  std::shared_ptr<OwnItems> own_items_;  ///< of `own_`
  sluice_host_stream* const* variable_ = nullptr;
  Timeout limit_;
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  std::weak_ptr<const Batch> last_;  ///< of the last item, if it has not run yet
};

}  // namespace sluice::stream_mpi
