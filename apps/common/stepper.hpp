// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/app_stream.hpp"
#include "apps/common/chunks.hpp"
#include "apps/common/exchange.hpp"
#include "apps/common/field.hpp"
#include "apps/common/halo.hpp"
#include "apps/common/halo_buffers.hpp"
#include "apps/common/kernels.hpp"
#include "apps/common/phases.hpp"
#include "apps/common/progress.hpp"

#include <Kokkos_Core.hpp>

#include <atomic>
#include <cstddef>
#include <vector>

namespace apps {

/// One rank's part of an explicit time step: pack, put, interior, wait, unpack, boundary.
///
/// A Model says what the update is: `Value`, the type of a cell; `cell(at, pitch)`, the new value of the cell at `at`;
/// `row(in, pitch, out, n)`, the same for n cells of a row, fast; and, for measured steps, `measure(in, out, n)`, a
/// number for n updated cells that is summed over the field. GPUs call `cell` and `measure`, which are constexpr so
/// that their compilers take them.
///
/// Kernels run in `Space`, one dispatch per phase, ordered by `AppStream`; the host never waits in here but for a
/// measure on a GPU. What is enqueued refers to this object, so it must outlive the stream.
template <class Model, class Space>
class Stepper {
 public:
  using Value = typename Model::Value;

  Stepper(const Space& space, const Model& model, const Box& block, const Halo& halo, const HaloBuffers& buffers,
          const Value& initial)
      : space_(space), model_(model), field_(space, block.nx, block.ny, initial), interior_{halo.interior},
        boundary_(halo.boundary), packed_(packed_boxes(halo)), packs_(out_transfers(halo, buffers)),
        mirrors_(mirrors_of(halo)), unpacked_(unpacked_boxes(halo)), unpacks_(in_transfers(halo, buffers)) {}
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  const Field<Value, Space>& field() const { return field_; }
  /// Cell (0, 0) as of the last enqueued step, which has run, in the host's memory.
  const Value* cells() const {
    field_.download(space_, now_);
    return field_.host_origin(now_);
  }

  void time_phases(PhaseTimer* timer) { timer_ = timer; }
  void show_progress(Progress* progress) { progress_ = progress; }

  /// What the host wrote into the field's copies is what the next step reads.
  void begin() { field_.upload(space_); }

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
  enum class Measure : bool { no, yes };
  using Boxes = BoxChunks<Space>;
  using Policy = Kokkos::RangePolicy<Space, Kokkos::IndexType<Index>>;

  bool abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

  Index offset(const Box& box) const { return box.y * field_.pitch() + box.x; }

  // Boxes that are copied, without their place: rows and columns from (0, 0).
  static void append(std::vector<Box>& boxes, const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) boxes.push_back({0, 0, piece.cells.nx, piece.cells.ny});
  }
  static std::vector<Box> packed_boxes(const Halo& halo) {
    std::vector<Box> boxes;
    for (const Message& message : halo.messages) append(boxes, message.out);
    for (const LocalCopy& copy : halo.copies) boxes.push_back({0, 0, copy.to.nx, copy.to.ny});
    return boxes;
  }
  static std::vector<Box> unpacked_boxes(const Halo& halo) {
    std::vector<Box> boxes;
    for (const Message& message : halo.messages) append(boxes, message.in);
    return boxes;
  }

  template <class SlotOf>
  Transfer<Value> transfer(const Piece& piece, const SlotOf& slot_of) const {
    Transfer<Value> made{offset(piece.cells), {}};
    for (int slot = 0; slot < kSlots; ++slot) made.slots[slot] = reinterpret_cast<Value*>(slot_of(slot)) + piece.at;
    return made;
  }
  std::vector<Transfer<Value>> out_transfers(const Halo& halo, const HaloBuffers& buffers) const {
    std::vector<Transfer<Value>> all;
    for (std::size_t i = 0; i < halo.messages.size(); ++i)
      for (const Piece& piece : halo.messages[i].out)
        all.push_back(transfer(piece, [&](int slot) { return buffers.out(i, slot); }));
    return all;
  }
  std::vector<Transfer<Value>> in_transfers(const Halo& halo, const HaloBuffers& buffers) const {
    std::vector<Transfer<Value>> all;
    for (std::size_t i = 0; i < halo.messages.size(); ++i)
      for (const Piece& piece : halo.messages[i].in)
        all.push_back(transfer(piece, [&](int slot) { return buffers.in(i, slot); }));
    return all;
  }
  std::vector<Mirror> mirrors_of(const Halo& halo) const {
    std::vector<Mirror> all;
    for (const LocalCopy& copy : halo.copies) all.push_back({offset(copy.from), offset(copy.to)});
    return all;
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
    stream.run([this, from, measure] { measured_ += update("interior", interior_, interior_.count(), from, measure); });
    mark(stream, Phase::interior);
    exchange.wait();
    mark(stream, Phase::wait);
    stream.run([this, slot, from] { unpack(from, slot); });
    mark(stream, Phase::unpack);
    exchange.release();
    stream.run([this, from, measure] {
      measured_ += update("boundary", boundary_.reader(), boundary_.count(), from, measure);
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
    if (packed_.count() == 0 || abandoned()) return;
    Kokkos::parallel_for(
        "pack", Policy(space_, 0, packed_.count()),
        Pack<Value, typename Boxes::Reader>{packed_.reader(), packs_.data(), packs_.size(), mirrors_.data(),
                                            field_.origin(from), field_.pitch(), slot});
  }

  void unpack(int from, int slot) {
    if (unpacked_.count() == 0 || abandoned()) return;
    Kokkos::parallel_for("unpack", Policy(space_, 0, unpacked_.count()),
                         Unpack<Value, typename Boxes::Reader>{unpacked_.reader(), unpacks_.data(), field_.origin(from),
                                                               field_.pitch(), slot});
  }

  // On the host the interior goes by rows; the boundary, four boxes at most, a box at a time.
  template <class Reader>
  double update(const char* label, const Reader& chunks, Index count, int from, Measure measure) {
    double sum = 0;
    if (count == 0 || abandoned()) return sum;
    const Policy policy(space_, 0, count);
    const Update<Model, Reader> kernel{chunks, model_, field_.origin(from), field_.origin(1 - from), field_.pitch()};
    if constexpr (requires { &Model::measure; }) {
      if (measure == Measure::yes) {
        Kokkos::parallel_reduce(label, policy, MeasuredUpdate<Model, Reader>{kernel}, sum);
        return sum;
      }
    }
    Kokkos::parallel_for(label, policy, kernel);
    return sum;
  }

  Space space_;
  Model model_;
  Field<Value, Space> field_;
  int now_ = 0;  // which copy the next step reads
  RowChunks<Space> interior_;
  Boxes boundary_;
  Boxes packed_;  // boxes of packs_, then of mirrors_
  SpaceList<Transfer<Value>, Space> packs_;
  SpaceList<Mirror, Space> mirrors_;
  Boxes unpacked_;  // boxes of unpacks_
  SpaceList<Transfer<Value>, Space> unpacks_;
  double measured_ = 0;
  std::atomic<bool> abandoned_{false};
  PhaseTimer* timer_ = nullptr;
  Progress* progress_ = nullptr;
};

}  // namespace apps
