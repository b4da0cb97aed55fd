// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/lines.hpp"
#include "apps/common/pencils.hpp"
#include "apps/common/phases.hpp"
#include "apps/common/stream_collective.hpp"
#include "apps/common/work_queue.hpp"

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace apps {

/// Memory of a rank, for all its pencils and transpositions.
struct Buffers {
  std::vector<Complex> first;   ///< pencils along x and along z
  std::vector<Complex> second;  ///< pencils along y
  sluice::Slice sent;
  sluice::Slice received;

  /// The first cell of the pencil along an axis.
  Complex* pencil(int axis) { return axis == 1 ? second.data() : first.data(); }
};

/// Moves the cells of pencils along one axis to those along another, in slabs that follow each other: each is packed,
/// exchanged and unpacked by itself. Slabs are cut along the axis that is neither.
class Transposition {
 public:
  Transposition(const Session& session, const std::string& name, const Pencils& pencils, int from, int to, int slabs,
                Buffers& buffers, sluice::Stream stream);

  int slabs() const { return static_cast<int>(slabs_.size()); }
  /// This rank's part of a slab, before and after.
  const Block& before(int slab) const { return at(slab).before; }
  const Block& after(int slab) const { return at(slab).after; }

  void pack(int slab) const;
  void start(int slab) const { at(slab).exchange->start(); }
  void wait(int slab) const { at(slab).exchange->wait(); }
  void unpack(int slab) const;
  /// Closes the exchanges. Work that a stream still has of `pack` and `unpack` may run.
  void close() noexcept {
    for (Slab& slab : slabs_) slab.exchange.reset();
  }
  /// The channels of one slab: those of all slabs are alike.
  std::string describe() const { return at(0).exchange->describe(); }

 private:
  /// Cells that this rank sends to a rank, or gets from it.
  struct Piece {
    Block block;
    Complex* packed = nullptr;
  };
  struct Slab {
    Block before;
    Block after;
    std::vector<Piece> out;
    std::vector<Piece> in;
    std::unique_ptr<StreamCollective> exchange;
  };
  const Slab& at(int slab) const { return slabs_[static_cast<std::size_t>(slab)]; }

  Pencil from_;
  Pencil to_;
  Complex* source_;
  Complex* target_;
  std::vector<Slab> slabs_;
};

/// Is called behind each part of what is enqueued.
using Mark = std::function<void(Phase phase)>;

/// Enqueues a transposition, slab by slab, with the lines that are transformed before it and behind it: none, or those
/// of each slab. All of them outlive the stream of the queue.
void transpose(const Transposition& moved, std::span<const Lines> before, std::span<const Lines> after,
               WorkQueue& queue, const Mark& mark);

}  // namespace apps
