// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/channel_flow/flow.hpp"
#include "apps/common/host_exchange.hpp"
#include "apps/common/work_queue.hpp"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace channel_flow {

/// Fills the ghosts of fields from the neighbours along y, where the ranks wrap around, and along z, where walls are at
/// both ends. Each neighbour gets one message, with the faces of all fields.
class Halo {
 public:
  /// `fields` outlive the halo.
  Halo(apps::Session& session, const apps::Pencils& pencils, std::string name, std::vector<Field*> fields,
       apps::WorkQueue& queue);

  // Enqueued; work that needs no ghosts has its place in between:
  void start();
  void finish();
  std::string describe() const { return exchange_->describe(); }
  /// Closes the exchange. Work of this that the stream still has may run.
  void close() noexcept { exchange_.reset(); }

 private:
  static constexpr std::size_t kSides = 4;  // below and above along y, then along z
  struct Message {
    int peer = 0;
    std::vector<std::size_t> sides;  // in the order of the message
    sluice::Slice slots;
  };

  std::size_t values_of(std::size_t side) const;
  /// Calls `visit(cells of a row, their number)` for a face of all fields: ghosts, or the cells beside them.
  template <class Visit>
  void each_face_row(std::size_t side, bool ghosts, const Visit& visit) const;
  Message& message_of(std::vector<Message>& messages, int peer) const;
  void move_own();
  void pack(int slot) const;
  void unpack(int slot) const;

  std::vector<Field*> fields_;
  apps::WorkQueue& queue_;
  int rank_;
  std::array<std::optional<int>, kSides> neighbours_;
  std::vector<Message> out_;
  std::vector<Message> in_;
  std::unique_ptr<apps::Exchange> exchange_;
  int slot_ = 0;
};

}  // namespace channel_flow
