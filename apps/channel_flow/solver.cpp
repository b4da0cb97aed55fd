// SPDX-License-Identifier: Apache-2.0
#include "apps/channel_flow/solver.hpp"

#include "apps/common/gather_field.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace channel_flow {
namespace {

Velocity fields(const Block& block) { return {Field(block), Field(block), Field(block)}; }

}  // namespace

Solver::Solver(sluice::Context& context, const Options& options)
    : begin_(apps::Clock::now()), options_(options), pencils_(options.mesh(), context.size()),
      session_(context, options.common, pencils_.along(0)),
      flow_(options.mesh(), pencils_.pencil(0, context.rank()).block),
      velocity_(fields(pencils_.pencil(0, context.rank()).block)), predicted_(velocity_), pressure_(velocity_[0]),
      queue_(options.common.stream), poisson_(session_, pencils_, options.slabs, queue_),
      velocity_halo_(session_, pencils_, "velocity", {&velocity_[0], &velocity_[1], &velocity_[2]}, queue_),
      predicted_halo_(session_, pencils_, "predicted", {&predicted_[1], &predicted_[2]}, queue_),
      pressure_halo_(session_, pencils_, "pressure", {&pressure_}, queue_) {}

/// The stream outlives the exchanges on it, and all that its work refers to outlives the stream.
Solver::~Solver() {
  poisson_.close();
  for (Halo* const halo : {&velocity_halo_, &predicted_halo_, &pressure_halo_}) halo->close();
  queue_.end();
}

void Solver::mark(apps::Phase phase) {
  if (options_.common.phases) queue_.run([this, phase] { phases_.mark(phase); });
}

void Solver::exchange(Halo& halo) {
  halo.start();
  mark(apps::Phase::pack);
  halo.finish();
  mark(apps::Phase::wait);
}

void Solver::step() {
  if (options_.common.phases) queue_.run([this] { phases_.start(); });
  exchange(velocity_halo_);
  run(apps::Phase::interior, [this] { flow_.spread(velocity_, predicted_); });
  exchange(predicted_halo_);
  run(apps::Phase::interior, [this] { flow_.divergence(predicted_, poisson_.cells()); });
  poisson_.solve([this](apps::Phase phase) { mark(phase); });
  run(apps::Phase::interior, [this] {
    const Complex* cells = poisson_.cells();
    for (Index z = 0; z < pressure_.nz(); ++z)
      for (Index y = 0; y < pressure_.ny(); ++y)
        for (Index x = 0; x < pressure_.nx(); ++x) pressure_.row(y, z)[x] = (cells++)->real() / poisson_.scale();
  });
  exchange(pressure_halo_);
  run(apps::Phase::interior, [this] {
    flow_.project(pressure_, predicted_);
    for (std::size_t i = 0; i < velocity_.size(); ++i) velocity_[i] = predicted_[i];
  });
}

void Solver::start() {
  flow_.set_initial(velocity_);
  create_s_ = apps::seconds_since(begin_);
  session_.collectives->barrier();
  exchange(velocity_halo_);  // the first one opens the channels
  synchronize();
  session_.collectives->barrier();
  phases_ = {};
  begin_ = apps::Clock::now();
}

apps::Result Solver::stop() {
  synchronize();
  apps::Result result = session_.result("channel_flow");
  result.solve_s = apps::seconds_since(begin_);
  result.create_s = create_s_;
  result.steps = options_.steps;
  result.backend = apps::backend_of(session_, velocity_halo_.describe() + "\n" + poisson_.describe());
  if (options_.common.phases) result.phases = phases_.seconds();
  apps::take_slowest(result, *session_.collectives);
  return result;
}

double Solver::divergence() {
  exchange(velocity_halo_);
  synchronize();
  return session_.collectives->max(flow_.largest_divergence(velocity_));
}

std::vector<double> Solver::gather(int component) {
  const Field& field = velocity_[static_cast<std::size_t>(component)];
  return apps::gather_field<double>(*session_.collectives, session_.decomposition, session_.rank, field.row(0, 0),
                                    {field.nx(), field.nx() * (field.ny() + 2)});
}

}  // namespace channel_flow
