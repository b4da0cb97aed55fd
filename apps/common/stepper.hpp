// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/app_stream.hpp"
#include "apps/common/exchange.hpp"
#include "apps/common/field.hpp"
#include "apps/common/halo.hpp"
#include "apps/common/halo_buffers.hpp"
#include "apps/common/phases.hpp"
#include "apps/common/progress.hpp"

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <vector>

namespace apps {

/// The update of a box of cells, as a kernel calls it: rows where rows are long, cell by cell in narrow columns.
template <class Model>
struct BoxKernel {
  using Value = typename Model::Value;
  static constexpr Index kNarrow = 8;

  Model model;
  const Value* in;
  Value* out;
  Index pitch;

  void update(const Box& box) const {
    for (Index y = box.y; y < box.y + box.ny; ++y) {
      const Index at = y * pitch + box.x;
      if (box.nx >= kNarrow) {
        model.row(in + at, pitch, out + at, box.nx);
      } else {
        for (Index x = at; x < at + box.nx; ++x) out[x] = model.cell(in + x, pitch);
      }
    }
  }

  /// Updates, and returns the sum of Model::measure; row by row, while the row is in the cache.
  double measured(const Box& box) const {
    double sum = 0;
    for (Index y = box.y; y < box.y + box.ny; ++y) {
      update({box.x, y, box.nx, 1});
      const Index at = y * pitch + box.x;
      sum += model.measure(in + at, out + at, box.nx);
    }
    return sum;
  }
};

/// One rank's part of an explicit time step: pack, put, interior, wait, unpack, boundary.
///
/// A Model says what the update is: `Value`, the type of a cell; `cell(at, pitch)`, the new value of the cell at `at`;
/// `row(in, pitch, out, n)`, the same for n cells of a row, fast; and, for measured steps, `measure(in, out, n)`, a
/// number for n updated cells that is summed over the field.
///
/// Kernels run in `Space`, one dispatch per phase, on the thread that `AppStream` chooses; the host never waits in
/// here. What is enqueued refers to this object, so it must outlive the stream.
template <class Model, class Space>
class Stepper {
 public:
  using Value = typename Model::Value;

  Stepper(const Space& space, const Model& model, const Box& block, const Halo& halo, const HaloBuffers& buffers,
          const Value& initial)
      : space_(space), model_(model), field_(space, block.nx, block.ny, initial), interior_(halo.interior),
        boundary_(halo.boundary) {
    for (std::size_t i = 0; i < halo.messages.size(); ++i) add_message(halo.messages[i], i, buffers);
    for (const LocalCopy& copy : halo.copies)
      copies_.push_back({offset(copy.from), offset(copy.to), copy.to.nx, copy.to.ny});
  }
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  const Field<Value, Space>& field() const { return field_; }
  /// Cell (0, 0) as of the last enqueued step.
  Value* cells() const { return field_.origin(now_); }

  void time_phases(PhaseTimer* timer) { timer_ = timer; }
  void show_progress(Progress* progress) { progress_ = progress; }

  /// What is still enqueued does nothing when its turn comes: after a failure nobody wants it.
  void abandon() { abandoned_.store(true, std::memory_order_relaxed); }

  /// Enqueues a step.
  void step(Exchange& exchange, AppStream& stream) { enqueue(exchange, stream, Measure::no); }

  /// Enqueues a step that measures: once it has run, `measured()` is this rank's sum of Model::measure.
  void step_measured(Exchange& exchange, AppStream& stream) {
    stream.run([this] { measured_ = 0; });
    enqueue(exchange, stream, Measure::yes);
  }
  double measured() const { return measured_; }

  /// Enqueues an exchange alone: it fills the ghosts and changes no cell.
  void exchange_only(Exchange& exchange, AppStream& stream) {
    const int slot = exchange.acquire();
    stream.run([this, slot, from = now_] { pack(from, slot); });
    exchange.put();
    exchange.wait();
    stream.run([this, slot, from = now_] { unpack(from, slot); });
    exchange.release();
  }

 private:
  enum class Part { interior, boundary };
  enum class Measure : bool { no, yes };
  using Kernel = BoxKernel<Model>;
  using Policy = Kokkos::RangePolicy<Space, Kokkos::IndexType<Index>>;

  // Cells of the field and where they are in a message: rows of nx cells, from `offset` on.
  struct Transfer {
    Value* slots[kSlots];
    Index offset;
    Index nx;
    Index ny;
  };
  struct Copy {
    Index from;
    Index to;
    Index nx;
    Index ny;
  };

  bool abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

  Index offset(const Box& box) const { return box.y * field_.pitch() + box.x; }

  void add_message(const Message& message, std::size_t index, const HaloBuffers& buffers) {
    const auto transfer = [&](const Piece& piece, auto slot_of) {
      Transfer made{{}, offset(piece.cells), piece.cells.nx, piece.cells.ny};
      for (int slot = 0; slot < kSlots; ++slot) made.slots[slot] = reinterpret_cast<Value*>(slot_of(slot)) + piece.at;
      return made;
    };
    for (const Piece& piece : message.out)
      packs_.push_back(transfer(piece, [&](int slot) { return buffers.out(index, slot); }));
    for (const Piece& piece : message.in)
      unpacks_.push_back(transfer(piece, [&](int slot) { return buffers.in(index, slot); }));
  }

  void enqueue(Exchange& exchange, AppStream& stream, Measure measure) {
    const int from = now_;
    const int slot = exchange.acquire();
    stream.run([this, slot, from] {
      if (timer_ != nullptr) timer_->start();
      pack(from, slot);
    });
    mark(stream, Phase::pack);
    exchange.put();
    mark(stream, Phase::put);
    stream.run([this, from, measure] { measured_ += update(from, Part::interior, measure); });
    mark(stream, Phase::interior);
    exchange.wait();
    mark(stream, Phase::wait);
    stream.run([this, slot, from] { unpack(from, slot); });
    mark(stream, Phase::unpack);
    exchange.release();
    stream.run([this, from, measure] {
      measured_ += update(from, Part::boundary, measure);
      if (progress_ != nullptr) progress_->step();
    });
    mark(stream, Phase::boundary);
    now_ = 1 - now_;
  }

  void mark(AppStream& stream, Phase phase) {
    if (timer_ != nullptr) stream.run([this, phase] { timer_->mark(phase); });
  }

  // One dispatch for all messages and local copies: a fork and join for each would cost more than the copying.
  void pack(int from, int slot) {
    const Index packs = static_cast<Index>(packs_.size());
    const Index count = packs + static_cast<Index>(copies_.size());
    if (count == 0 || abandoned()) return;
    Value* const cells = field_.origin(from);
    Kokkos::parallel_for("pack", Policy(space_, 0, count), [=, this](Index i) {
      const Index pitch = field_.pitch();
      if (i < packs) {
        const Transfer& t = packs_[i];
        copy_rows(cells + t.offset, pitch, t.slots[slot], t.nx, t.nx, t.ny);
      } else {
        const Copy& c = copies_[i - packs];
        copy_rows(cells + c.from, pitch, cells + c.to, pitch, c.nx, c.ny);
      }
    });
  }

  void unpack(int from, int slot) {
    if (unpacks_.empty() || abandoned()) return;
    Value* const cells = field_.origin(from);
    Kokkos::parallel_for("unpack", Policy(space_, 0, static_cast<Index>(unpacks_.size())), [=, this](Index i) {
      const Transfer& t = unpacks_[i];
      copy_rows(t.slots[slot], t.nx, cells + t.offset, field_.pitch(), t.nx, t.ny);
    });
  }

  static void copy_rows(const Value* from, Index from_pitch, Value* to, Index to_pitch, Index nx, Index ny) {
    if (nx == 1) {
      for (Index y = 0; y < ny; ++y) to[y * to_pitch] = from[y * from_pitch];
      return;
    }
    for (Index y = 0; y < ny; ++y) std::copy_n(from + y * from_pitch, nx, to + y * to_pitch);
  }

  // The interior is cut into rows; the boundary, four boxes at most, goes a box at a time.
  double update(int from, Part part, Measure measure) {
    const Kernel kernel{model_, field_.origin(from), field_.origin(1 - from), field_.pitch()};
    if (part == Part::boundary) {
      const Box* const boxes = boundary_.data();
      return dispatch("boundary", static_cast<Index>(boundary_.size()), measure, kernel,
                      [boxes](Index i) { return boxes[i]; });
    }
    const Box all = interior_;
    return dispatch("interior", all.ny, measure, kernel, [all](Index y) { return Box{all.x, all.y + y, all.nx, 1}; });
  }

  template <class BoxAt>
  double dispatch(const char* label, Index count, Measure measure, const Kernel& kernel, const BoxAt& box_at) {
    double sum = 0;
    if (count == 0 || abandoned()) return sum;
    if constexpr (requires { &Model::measure; }) {
      if (measure == Measure::yes) {
        Kokkos::parallel_reduce(
            label, Policy(space_, 0, count), [=](Index i, double& local) { local += kernel.measured(box_at(i)); }, sum);
        return sum;
      }
    }
    Kokkos::parallel_for(label, Policy(space_, 0, count), [=](Index i) { kernel.update(box_at(i)); });
    return sum;
  }

  Space space_;
  Model model_;
  Field<Value, Space> field_;
  int now_ = 0;  // which copy the next step reads
  Box interior_;
  std::vector<Box> boundary_;
  std::vector<Transfer> packs_;
  std::vector<Transfer> unpacks_;
  std::vector<Copy> copies_;
  double measured_ = 0;
  std::atomic<bool> abandoned_{false};
  PhaseTimer* timer_ = nullptr;
  Progress* progress_ = nullptr;
};

}  // namespace apps
