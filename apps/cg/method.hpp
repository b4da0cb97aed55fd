// SPDX-License-Identifier: Apache-2.0
// Pipelined conjugate gradients (Ghysels, Vanroose: Hiding Global Synchronization Latency in the Preconditioned
// Conjugate Gradient Algorithm, 2014, algorithm 3, without a preconditioner): each iteration has one sum over all
// ranks, of two numbers, which is under way while the matrix is multiplied.
#pragma once

#include "apps/cg/model.hpp"
#include "apps/cg/problem.hpp"
#include "apps/cg/vectors.hpp"
#include "apps/common/simulation.hpp"
#include "apps/common/stream_collective.hpp"

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <vector>

namespace cg {

template <std::size_t D, class Space>
using Simulation = apps::Simulation<Laplacian<D>, Space>;

/// The parts of an iteration beside the step that multiplies by the matrix.
inline constexpr std::array<const char*, 3> kPartNames = {"sum_start_s", "sum_wait_s", "vectors_s"};
using PartSeconds = std::array<double, kPartNames.size()>;

/// This rank's part of the method. A step of the simulation multiplies by the matrix: one copy of its field is w, the
/// other becomes A w.
template <std::size_t D, class Space>
class Method {
 public:
  Method(Simulation<D, Space>& simulation, const Problem& problem)
      : simulation_(simulation), nx_(simulation.session().block().nx),
        rows_(simulation.session().block().cells() / nx_), vectors_(static_cast<std::size_t>(5 * nx_ * rows_)),
        numbers_(new_numbers(simulation.session().context)),
        sum_(apps::open_sum(simulation.session(), numbers_, simulation.queue().stream())) {
    const apps::Box box = simulation.session().block();
    for (Index i = 0; i < rows_; ++i)
      for (Index x = 0; x < nx_; ++x)
        row(i).r[x] = in_field(0, i)[x] = problem.charge(box.x + x, box.y + i % box.ny, box.z + i / box.ny);
  }

  Method(const Method&) = delete;
  Method& operator=(const Method&) = delete;
  /// Ends the simulation: the work on its stream refers to this.
  ~Method() {
    sum_.reset();
    simulation_.end();
  }

  /// Enqueues what is before the first iteration: w = A r, and its products. The field has r.
  void begin() {
    multiply();
    simulation_.queue().run([this, w = now_] { products(w); });
  }

  /// Enqueues an iteration.
  void iterate() {
    run_if_timed([this] { marked_ = apps::Clock::now(); });
    sum_->start();
    mark(0);
    multiply();
    run_if_timed([this] { marked_ = apps::Clock::now(); });
    sum_->wait();
    mark(1);
    simulation_.queue().run([this, w = 1 - now_, q = now_] { advance_all(w, q); });
    mark(2);
  }

  // Once what was enqueued has run:

  /// The residual before the last iteration, as a part of the first one.
  double residual() const { return first_ > 0 ? std::sqrt(gamma_ / first_) : 0; }
  const PartSeconds& seconds() const { return seconds_; }
  /// Writes the result into the field.
  void show_result() {
    for (Index i = 0; i < rows_; ++i) std::copy_n(row(i).x, nx_, in_field(now_, i));
  }
  /// The residual of the result itself: |b - A x| / |b|. Changes the field.
  double true_residual(const Problem& problem) {
    show_result();
    multiply();
    simulation_.synchronize();
    const apps::Box box = simulation_.session().block();
    std::array<double, 2> sums{};  // of the squares of b - A x and of b
    for (Index i = 0; i < rows_; ++i)
      for (Index x = 0; x < nx_; ++x) {
        const double b = problem.charge(box.x + x, box.y + i % box.ny, box.z + i / box.ny);
        const double left = b - in_field(now_, i)[x];
        sums[0] += left * left;
        sums[1] += b * b;
      }
    simulation_.session().collectives->sum(sums);
    return std::sqrt(sums[0] / sums[1]);
  }

 private:
  static sluice::Slice new_numbers(sluice::Context context) { return context.allocate(2 * sizeof(double)).all(); }

  Row row(Index i) {
    double* const first = vectors_.data() + 5 * nx_ * i;
    return {first, first + nx_, first + 2 * nx_, first + 3 * nx_, first + 4 * nx_};
  }
  double* in_field(int copy, Index i) {
    const Index ny = simulation_.session().block().ny;
    return simulation_.initial(copy) + simulation_.strides().offset(0, i % ny, i / ny);
  }

  void multiply() {
    simulation_.step();
    now_ = 1 - now_;
  }

  /// The products of this rank's r and w, which the next sum takes.
  void products(int w) {
    for_rows([&](Index i, double& rr, double& wr) {
      rr += dot(row(i).r, row(i).r, nx_);
      wr += dot(row(i).r, in_field(w, i), nx_);
    });
  }

  /// From the sums to those of the next iteration. Below 1e-12 of the first residual nothing changes any more: rounding
  /// would only add up.
  void advance_all(int w, int q) {
    constexpr double kExact = 1e-24;
    const auto sums = numbers_.as<double>();
    const double gamma = sums[0];
    if (first_ == 0) first_ = gamma;
    double beta = alpha_ == 0 ? 0 : gamma / gamma_;
    const double below = alpha_ == 0 ? sums[1] : sums[1] - beta * gamma / alpha_;
    const bool goes_on = gamma > kExact * first_ && below > 0;
    alpha_ = goes_on ? gamma / below : 0;
    if (!goes_on) beta = 0;
    gamma_ = gamma;
    for_rows([this, w, q, alpha = alpha_, beta](Index i, double& rr, double& wr) {
      advance(row(i), in_field(w, i), in_field(q, i), alpha, beta, nx_);
      rr += dot(row(i).r, row(i).r, nx_);
      wr += dot(row(i).r, in_field(q, i), nx_);
    });
  }

  void for_rows(const auto& body) {
    double rr = 0;
    double wr = 0;
    const auto& space = simulation_.queue().exec();
    Kokkos::parallel_reduce("vectors", sluice::kokkos::LightPolicy<Space>(space, 0, rows_), body, rr, wr);
    const auto sums = numbers_.as<double>();
    sums[0] = rr;
    sums[1] = wr;
  }

  void run_if_timed(auto work) {
    if (simulation_.session().options.phases) simulation_.queue().run(work);
  }
  void mark(std::size_t part) {
    run_if_timed([this, part] {
      seconds_[part] += apps::seconds_since(marked_);
      marked_ = apps::Clock::now();
    });
  }

  Simulation<D, Space>& simulation_;
  Index nx_;
  Index rows_;
  std::vector<double> vectors_;
  sluice::Slice numbers_;  // r.r and r.w
  std::unique_ptr<apps::StreamCollective> sum_;
  int now_ = 0;  // the copy of the field that the next step reads
  double alpha_ = 0;
  double gamma_ = 0;
  double first_ = 0;  // the first gamma
  apps::Clock::time_point marked_;
  PartSeconds seconds_{};
};

}  // namespace cg
