// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/pencils.hpp"
#include "apps/common/stream_collective.hpp"
#include "apps/common/work_queue.hpp"

#include <memory>
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

}  // namespace apps
