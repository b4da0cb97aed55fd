// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/chunks.hpp"
#include "apps/common/decomposition.hpp"
#include "apps/common/exchange.hpp"
#include "apps/common/field.hpp"
#include "apps/common/kernels.hpp"
#include "apps/common/parts.hpp"
#include "apps/common/phases.hpp"
#include "apps/common/progress.hpp"

#include <sluice/kokkos.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace apps {

/// One rank's part of an explicit time step: pack, put, interior, wait, unpack, boundary.
///
/// A Model defines the update: `Value`, the type of a cell; `kDimensions`, 2 or 3; `kStencil`; `cell(at, strides)`, the
/// new value of the cell at `at`, or `cell(at, strides, place)`; `row(in, strides, out, n)`, the same for n cells of a
/// row, fast; and, for measured steps, `measure(in, out, n)`, a number for n updated cells that is summed over the
/// field. GPUs call `cell` and `measure`, which are constexpr so that GPU compilers accept them.
/// Kernels run in `Space`, one dispatch per phase, ordered by a Queue; the host never waits in here, except for a
/// measure on a GPU. The enqueued work refers to this object, so it must outlive the queue's stream.
template <class Model, class Space>
class Stepper {
 public:
  using Value = typename Model::Value;
  using Queue = sluice::kokkos::Queue<Space>;

  Stepper(sluice::Context& context, const Space& space, const Model& model, const Decomposition& decomposition,
          const Value& initial)
      : space_(space), model_(model), field_(space, decomposition.box(context.rank()), initial),
        packing_(context, space, sluice::kokkos::Block<kD>{context.rank(), decomposition.grid<kD>(), 1, stencil()},
                 kSlots, {field_.ghosted(0)}, sluice::kokkos::Side::own, sluice::kokkos::OwnGhosts::at_once),
        moved_{packing_.own(), packing_.others({field_.ghosted(1)})} {
    const Parts parts = divide(decomposition, context.rank());
    if (parts.interior.cells() > 0) interior_ = Chunks<Space>({parts.interior});
    boundary_ = Chunks<Space>(parts.boundary);
    load();
  }
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  const Field<Value, Space, Model::kDimensions>& field() const { return field_; }
  /// The first cell after the last enqueued step, which must have run, in the host's memory.
  const Value* cells() const {
    field_.download(space_, now_);
    return field_.host_origin(now_);
  }

  /// The slots in which messages are packed, and in which they land.
  Links links() const {
    Links links;
    const auto into = [](std::vector<Link>& ends) {
      return [&ends](int peer, const sluice::Slice& slots, const std::string& contents) {
        ends.push_back({peer, slots, contents});
      };
    };
    packing_.for_each_sent(into(links.out));
    packing_.for_each_received(into(links.in));
    return links;
  }

  void time_phases(PhaseTimer* timer) { timer_ = timer; }
  void show_progress(Progress* progress) { progress_ = progress; }

  /// Makes the values that the host wrote into the field's copies the input of the next step.
  void begin() { field_.upload(space_); }

  /// Enqueues a step.
  void step(Exchange& exchange, const Queue& queue) { enqueue(exchange, queue, Measure::no); }

  /// Enqueues a step that measures: after it has run, `measured()` is this rank's sum of Model::measure.
  void step_measured(Exchange& exchange, const Queue& queue) {
    queue.run([this] { measured_ = 0; });
    enqueue(exchange, queue, Measure::yes);
  }
  double measured() const { return measured_; }

  /// Enqueues an exchange alone: it fills the ghosts and changes no cell.
  void exchange_only(Exchange& exchange, const Queue& queue) {
    const int slot = exchange.acquire();
    packing_.pack(queue, slot, moved_[now_]);
    exchange.put();
    exchange.wait();
    packing_.unpack(queue, slot, moved_[now_]);
    exchange.release();
  }

 private:
  enum class Measure : bool { no, yes };
  static constexpr std::size_t kD = Model::kDimensions;
  static constexpr bool kMeasures = requires { &Model::measure; };
  using Packing = sluice::kokkos::Packing<Space, kD, typename Field<Value, Space, kD>::Ghosted>;

  static sluice::kokkos::Stencil<kD> stencil() {
    return Model::kStencil == Stencil::faces ? sluice::kokkos::faces<kD>() : sluice::kokkos::full<kD>();
  }

  void enqueue(Exchange& exchange, const Queue& queue, Measure measure) {
    const int from = now_;
    if (timer_ != nullptr) queue.run([this] { timer_->start(); });
    const int slot = exchange.acquire();
    packing_.pack(queue, slot, moved_[from]);
    mark(queue, Phase::pack);
    exchange.put();
    mark(queue, Phase::put);
    queue.run([this, from, measure] { measured_ += update("interior", interior_, from, measure); });
    mark(queue, Phase::interior);
    exchange.wait();
    mark(queue, Phase::wait);
    packing_.unpack(queue, slot, moved_[from]);
    exchange.release();
    mark(queue, Phase::unpack);
    queue.run([this, from, measure] {
      measured_ += update("boundary", boundary_, from, measure);
      if (progress_ != nullptr) progress_->step();
    });
    mark(queue, Phase::boundary);
    now_ = 1 - now_;
  }

  void mark(const Queue& queue, Phase phase) {
    if (timer_ != nullptr) queue.run([this, phase] { timer_->mark(phase); });
  }

  double update(const char* label, const Chunks<Space>& chunks, int from, Measure measure) {
    return chunks.count() == 0 ? 0 : launch(label, chunks, chunks.count(), from, measure);
  }

  /// Launches the updates with no work: a GPU loads a kernel at its first launch, and that may wait for streams that
  /// wait for a peer.
  void load() {
    if constexpr (kOnGpu<Space>) {
      launch("load", {}, 1, 0, Measure::no);
      if constexpr (kMeasures) launch("load", {}, 1, 0, Measure::yes);
    }
  }

  double launch(const char* label, const Chunks<Space>& chunks, Index items, int from, Measure measure) {
    const sluice::kokkos::LightPolicy<Space> policy(space_, 0, items);
    const Update<Model, Space> kernel{chunks,           model_,        field_.origin(from), field_.origin(1 - from),
                                      field_.strides(), field_.block()};
    double sum = 0;
    if constexpr (kMeasures) {
      if (measure == Measure::yes) {
        Kokkos::parallel_reduce(label, policy, MeasuredUpdate<Model, Space>{kernel}, sum);
        return sum;
      }
    }
    Kokkos::parallel_for(label, policy, kernel);
    return sum;
  }

  Space space_;
  Model model_;
  Field<Value, Space, kD> field_;
  Packing packing_;
  std::array<typename Packing::Moved, 2> moved_;  // one for each copy of the field
  int now_ = 0;                                   // the copy that the next step reads
  Chunks<Space> interior_;
  Chunks<Space> boundary_;
  double measured_ = 0;
  PhaseTimer* timer_ = nullptr;
  Progress* progress_ = nullptr;
};

}  // namespace apps
