// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/frames.hpp"
#include "apps/common/gather_field.hpp"
#include "apps/common/session.hpp"
#include "apps/common/space.hpp"
#include "apps/common/staged_exchange.hpp"
#include "apps/common/stepper.hpp"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace apps {

/// The problem of a simulation.
struct Setup {
  Mesh mesh;
  std::optional<std::array<int, 3>> grid;  ///< of blocks: layers, rows, columns; unset: Decomposition chooses
  Index steps = 0;                         ///< at most
};

/// One rank's part of a run of `Model` in `Space`: everything between the options and a Result.
template <class Model, class Space>
class Simulation {
 public:
  using Value = typename Model::Value;

  Simulation(sluice::Context& context, const CommonOptions& options, const Setup& setup, const Model& model,
             const Space& space)
      : begin_(Clock::now()), session_(context, options, decompose(setup, context.size())),
        progress_(session_.rank == 0, setup.steps, static_cast<double>(setup.mesh.cells())),
        stepper_(session_.context, space, model, session_.decomposition, Value{}), queue_(options.stream, space),
        exchange_(open_exchange(session_, queue(), stepper_.links())) {
    stepper_.show_progress(&progress_);
    if (options.phases) stepper_.time_phases(&phases_);
  }

  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  const Session& session() const { return session_; }
  /// Distances in memory from a cell to its neighbours.
  Strides strides() const { return stepper_.field().strides(); }
  /// The first cell of this rank's block in both copies of the field, for the host to write before `start`.
  Value* initial(int copy) { return stepper_.field().host_origin(copy); }
  /// The first cell of this rank's block, for the host to read once `stop` has returned.
  const Value* cells() const { return stepper_.cells(); }

  /// The order in which the steps run, for other work between them.
  const sluice::kokkos::Queue<Space>& queue() const { return queue_.get(); }
  /// Blocks the host until all that was enqueued has run.
  void synchronize() { session_.context.synchronize(queue().stream()); }

  /// Closes the exchange and ends the host stream. Other objects that work on the stream refers to call it before they
  /// are destroyed. Behind it there are no steps.
  void end() noexcept {
    exchange_.reset();
    queue_.end();
  }

  /// Ends the time of creation, exchanges the initial ghosts a few times, and starts the clock when all ranks are
  /// ready.
  void start() {
    constexpr int kWarmUps = 10;
    stepper_.begin();
    create_s_ = seconds_since(begin_);
    session_.collectives->barrier();  // no stream may wait for a peer while any rank still loads and allocates
    for (int i = 0; i < kWarmUps; ++i) stepper_.exchange_only(*exchange_, queue());
    synchronize();
    session_.collectives->barrier();
    begin_ = Clock::now();
  }

  void step() { stepper_.step(*exchange_, queue()); }

  /// Runs a step and returns its measure, summed over all ranks; without communication only over this one. The host
  /// waits for it.
  double step_measured() {
    stepper_.step_measured(*exchange_, queue());
    synchronize();
    const double mine = stepper_.measured();
    return session_.options.comm == Comm::none ? mine : session_.collectives->sum(mine);
  }

  /// Waits for the steps, passes the whole field at rank 0 to `use`, elsewhere nothing, and continues when all ranks
  /// are ready. The clock is stopped meanwhile.
  template <class Use>
  void interrupt(const Use& use) {
    synchronize();
    const auto stopped = Clock::now();
    use(gather());
    session_.collectives->barrier();
    begin_ += Clock::now() - stopped;
  }

  /// Waits for the steps and stops the clock.
  Result stop(const std::string& app, Index steps) {
    synchronize();
    Result result = session_.result(app);
    result.solve_s = seconds_since(begin_);
    result.create_s = create_s_;
    result.steps = steps;
    result.backend = backend_of(session_, exchange_->describe());
    if (session_.options.phases) result.phases = phases_.seconds();
    take_slowest(result, *session_.collectives);
    return result;
  }

  /// The whole field at rank 0.
  std::vector<Value> gather() {
    return gather_field<Value>(*session_.collectives, session_.decomposition, session_.rank, stepper_.cells(),
                               strides());
  }

 private:
  static Decomposition decompose(const Setup& setup, int ranks) {
    return setup.grid ? Decomposition(setup.mesh, *setup.grid) : Decomposition(setup.mesh, ranks);
  }

  Clock::time_point begin_;
  Session session_;
  // The work on the stream refers to these, so they are destroyed after it.
  Progress progress_;
  PhaseTimer phases_;
  Stepper<Model, Space> stepper_;
  AppQueue<Space> queue_;
  std::unique_ptr<Exchange> exchange_;
  double create_s_ = 0;
};

/// Runs so many steps; calls `use(step, field)` at rank 0 for those that are written or shown, from step 0 on.
template <class Model, class Space, class Use>
void advance(Simulation<Model, Space>& simulation, const FrameOptions& frames, Index steps, const Use& use) {
  const bool first = simulation.session().rank == 0;
  for (Index done = 0; done <= steps; ++done) {
    if (done > 0) simulation.step();
    if (!frames.writes(done) && !frames.shows(done, steps)) continue;
    simulation.interrupt([&](const auto& field) {
      if (first) use(done, field);
    });
  }
}

}  // namespace apps
