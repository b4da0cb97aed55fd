// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/gather_field.hpp"
#include "apps/common/session.hpp"
#include "apps/common/space.hpp"
#include "apps/common/staged_exchange.hpp"
#include "apps/common/stepper.hpp"

#include <memory>
#include <string>
#include <vector>

namespace apps {

/// What a simulation is about.
struct Setup {
  Mesh mesh;
  Stencil stencil = Stencil::five_point;
  Index steps = 0;  ///< at most
};

/// One rank's part of a run of `Model` in `Space`: everything between the options and a Result.
template <class Model, class Space>
class Simulation {
 public:
  using Value = typename Model::Value;

  Simulation(sluice::Context& context, const CommonOptions& options, const Setup& setup, const Model& model,
             const Space& space)
      : begin_(Clock::now()), session_(context, options, setup.mesh, setup.stencil, sizeof(Value)),
        progress_(session_.rank == 0, setup.steps, static_cast<double>(setup.mesh.nx * setup.mesh.ny)),
        stepper_(space, model, session_.block(), session_.halo, session_.buffers, Value{}),
        stream_(stream_of(options.stream, space)), exchange_(open_exchange(session_, stream_, space)) {
    stepper_.show_progress(&progress_);
    if (options.phases) stepper_.time_phases(&phases_);
  }

  ~Simulation() { stepper_.abandon(); }
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  const Session& session() const { return session_; }
  /// The distance from a cell to the one below it.
  Index pitch() const { return stepper_.field().pitch(); }
  /// Cell (0, 0) of this rank's block in both copies of the field, for the host to write before `start`.
  Value* initial(int copy) { return stepper_.field().host_origin(copy); }
  /// Cell (0, 0) of this rank's block, for the host to read once `stop` has returned.
  const Value* cells() const { return stepper_.cells(); }

  /// Ends the time of creation, exchanges the initial ghosts a few times, and starts the clock when all ranks are
  /// ready.
  void start() {
    constexpr int kWarmUps = 10;
    stepper_.begin();
    create_s_ = seconds_since(begin_);
    for (int i = 0; i < kWarmUps; ++i) stepper_.exchange_only(*exchange_, stream_);
    synchronize();
    session_.collectives->barrier();
    begin_ = Clock::now();
  }

  void step() { stepper_.step(*exchange_, stream_); }

  /// A step, and its measure summed over all ranks; over this one without communication. The host waits for it.
  double step_measured() {
    stepper_.step_measured(*exchange_, stream_);
    synchronize();
    const double mine = stepper_.measured();
    return session_.options.comm == Comm::none ? mine : session_.collectives->sum(mine);
  }

  /// Waits for the steps, hands the whole field at rank 0 to `use`, elsewhere nothing, and goes on when all ranks are
  /// ready. The clock stands still.
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
    result.backend = backend_of(session_.options.comm, *exchange_);
    if (session_.options.phases) result.phases = phases_.seconds();
    take_slowest(result, *session_.collectives);
    return result;
  }

  /// The whole field at rank 0.
  std::vector<Value> gather() {
    return gather_field<Value>(*session_.collectives, session_.decomposition, session_.rank, stepper_.cells(), pitch());
  }

 private:
  void synchronize() { session_.context.synchronize(stream_.handle()); }

  Clock::time_point begin_;
  Session session_;
  // The work on the stream refers to these, so they go after it.
  Progress progress_;
  PhaseTimer phases_;
  Stepper<Model, Space> stepper_;
  AppStream stream_;
  std::unique_ptr<Exchange> exchange_;
  double create_s_ = 0;
};

}  // namespace apps
