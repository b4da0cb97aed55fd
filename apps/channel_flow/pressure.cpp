// SPDX-License-Identifier: Apache-2.0
#include "apps/channel_flow/pressure.hpp"

#include <algorithm>
#include <cstddef>

namespace channel_flow {
namespace {

apps::Buffers new_buffers(apps::Session& session, const apps::Pencils& pencils) {
  const auto along_x = static_cast<std::size_t>(apps::cells(pencils.pencil(0, session.rank).block));
  const auto along_y = static_cast<std::size_t>(apps::cells(pencils.pencil(1, session.rank).block));
  const std::size_t bytes = std::max(along_x, along_y) * sizeof(Complex);
  return {std::vector<Complex>(along_x), std::vector<Complex>(along_y), session.context.allocate(bytes).all(),
          session.context.allocate(bytes).all()};
}

}  // namespace

Pressure::Pressure(apps::Session& session, const apps::Pencils& pencils, int slabs, apps::WorkQueue& queue)
    : queue_(queue), scale_(static_cast<double>(session.decomposition.mesh().nx * session.decomposition.mesh().ny)),
      buffers_(new_buffers(session, pencils)),
      to_y_(session, "x to y, slab ", pencils, 0, 1, slabs, buffers_, queue.stream()),
      to_x_(session, "y to x, slab ", pencils, 1, 0, slabs, buffers_, queue.stream()),
      sweeps_(session, pencils, slabs, buffers_.second.data(), queue) {
  const apps::Pencil x = pencils.pencil(0, session.rank);
  const apps::Pencil y = pencils.pencil(1, session.rank);
  for (int slab = 0; slab < to_y_.slabs(); ++slab) {
    x_forward_.emplace_back(x, to_y_.before(slab), buffers_.first.data(), apps::Direction::forward);
    y_forward_.emplace_back(y, to_y_.after(slab), buffers_.second.data(), apps::Direction::forward);
    y_backward_.emplace_back(y, to_x_.before(slab), buffers_.second.data(), apps::Direction::backward);
    x_backward_.emplace_back(x, to_x_.after(slab), buffers_.first.data(), apps::Direction::backward);
  }
}

void Pressure::solve(const apps::Mark& mark) {
  apps::transpose(to_y_, x_forward_, y_forward_, queue_, mark);
  sweeps_.solve();
  mark(apps::Phase::boundary);
  apps::transpose(to_x_, y_backward_, x_backward_, queue_, mark);
}

void Pressure::close() noexcept {
  to_y_.close();
  to_x_.close();
  sweeps_.close();
}

}  // namespace channel_flow
