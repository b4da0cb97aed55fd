// SPDX-License-Identifier: Apache-2.0
#include "apps/fft/solver.hpp"

#include "apps/common/gather_field.hpp"
#include "apps/fft/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace fft {
namespace {

apps::Buffers new_buffers(sluice::Context& context, const apps::Pencils& pencils) {
  Index most = 0;
  for (int axis = 0; axis < 3; ++axis) most = std::max(most, cells(pencils.pencil(axis, context.rank()).block));
  const auto count = static_cast<std::size_t>(most);
  const std::size_t bytes = count * sizeof(Complex);
  return {std::vector<Complex>(count), std::vector<Complex>(count), context.allocate(bytes).all(),
          context.allocate(bytes).all()};
}

/// Calls `visit(cell of the box, its place in memory)`, along x first.
template <class Visit>
void each_cell(const apps::Pencil& pencil, const Visit& visit) {
  const auto [xs, ys, zs] = pencil.block;
  for (Index z = zs.begin; z < zs.begin + zs.length; ++z)
    for (Index y = ys.begin; y < ys.begin + ys.length; ++y)
      for (Index x = xs.begin; x < xs.begin + xs.length; ++x)
        visit(std::array<Index, 3>{x, y, z}, static_cast<std::size_t>(pencil.offset({x, y, z})));
}

}  // namespace

Solver::Solver(sluice::Context& context, const Options& options)
    : begin_(apps::Clock::now()), options_(options), pencils_(options.mesh(), context.size()),
      session_(context, options.common, pencils_.along(0)), buffers_(new_buffers(context, pencils_)),
      queue_(options.common.stream) {
  forward_.push_back(pass("x to y, slab ", 0, 1, Direction::forward));
  forward_.push_back(pass("y to z, slab ", 1, 2, Direction::forward));
  backward_.push_back(pass("z to y, slab ", 2, 1, Direction::backward));
  backward_.push_back(pass("y to x, slab ", 1, 0, Direction::backward));
}

/// The stream outlives the exchanges on it, and all that its work refers to outlives the stream.
Solver::~Solver() {
  for (auto* const passes : {&forward_, &backward_})
    for (Pass& pass : *passes) pass.moved.close();
  queue_.end();
}

Solver::Pass Solver::pass(const char* name, int from, int to, Direction direction) {
  apps::Transposition moved(session_, name, pencils_, from, to, options_.slabs, buffers_, queue_.stream());
  std::vector<apps::Lines> before;
  std::vector<apps::Lines> after;
  for (int slab = 0; slab < moved.slabs(); ++slab) {
    // Lines along y are transformed behind the first transposition of either way.
    if (from != 1)
      before.emplace_back(pencils_.pencil(from, session_.rank), moved.before(slab), buffers_.pencil(from), direction);
    after.emplace_back(pencils_.pencil(to, session_.rank), moved.after(slab), buffers_.pencil(to), direction);
  }
  return {std::move(moved), std::move(before), std::move(after)};
}

void Solver::set_initial() {
  each_cell(pencils_.pencil(0, session_.rank), [&](const std::array<Index, 3>& cell, std::size_t place) {
    buffers_.pencil(0)[place] = initial(options_.mesh(), cell[0], cell[1], cell[2]);
  });
}

void Solver::mark(apps::Phase phase) {
  if (options_.common.phases) queue_.run([this, phase] { phases_.mark(phase); });
}

void Solver::enqueue(const std::vector<Pass>& passes) {
  if (options_.common.phases) queue_.run([this] { phases_.start(); });
  for (const Pass& pass : passes)
    apps::transpose(pass.moved, pass.before, pass.after, queue_, [this](apps::Phase phase) { mark(phase); });
}

void Solver::forward() { enqueue(forward_); }

void Solver::backward() {
  enqueue(backward_);
  queue_.run([this] {
    const double part = 1 / static_cast<double>(options_.mesh().cells());
    for (Complex& cell : buffers_.first) cell *= part;
  });
  mark(apps::Phase::boundary);
}

void Solver::start() {
  create_s_ = apps::seconds_since(begin_);
  session_.collectives->barrier();
  phases_ = {};
  begin_ = apps::Clock::now();
}

apps::Result Solver::stop() {
  synchronize();
  apps::Result result = session_.result("fft");
  result.solve_s = apps::seconds_since(begin_);
  result.create_s = create_s_;
  result.steps = options_.steps;
  result.backend = apps::backend_of(session_, forward_[0].moved.describe() + "\n" + forward_[1].moved.describe());
  if (options_.common.phases) result.phases = phases_.seconds();
  apps::take_slowest(result, *session_.collectives);
  return result;
}

std::vector<Complex> Solver::gather() {
  const apps::Pencil pencil = pencils_.pencil(2, session_.rank);
  std::vector<Complex> mine;
  each_cell(pencil, [&](const std::array<Index, 3>&, std::size_t place) { mine.push_back(buffers_.pencil(2)[place]); });
  const Index row = pencil.block[0].length;
  return apps::gather_field<Complex>(*session_.collectives, pencils_.along(2), session_.rank, mine.data(),
                                     {row, row * pencil.block[1].length});
}

double Solver::error() {
  double most = 0;
  each_cell(pencils_.pencil(0, session_.rank), [&](const std::array<Index, 3>& cell, std::size_t place) {
    const double error = std::abs(buffers_.pencil(0)[place] - initial(options_.mesh(), cell[0], cell[1], cell[2]));
    most = std::isnan(error) ? INFINITY : std::max(most, error);
  });
  return session_.collectives->max(most);
}

}  // namespace fft
