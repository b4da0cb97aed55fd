// SPDX-License-Identifier: Apache-2.0
#include "apps/common/transposition.hpp"

#include <algorithm>
#include <cstddef>

namespace apps {
namespace {

// Cuts pieces off a slice, one behind the other.
class Cutter {
 public:
  explicit Cutter(const sluice::Slice& slice) : slice_(slice) {}
  sluice::Slice next(const Block& block) {
    const std::size_t bytes = static_cast<std::size_t>(cells(block)) * sizeof(Complex);
    return slice_.slice((taken_ += bytes) - bytes, bytes);
  }

 private:
  sluice::Slice slice_;
  std::size_t taken_ = 0;
};

/// Calls `visit(offset in the pencil, n)` for runs of cells of a block in the order in which they are packed: lines
/// along the axis of the pencils that they are for.
template <class Visit>
void each_line(const Pencil& pencil, const Pencil& target, const Block& block, const Visit& visit) {
  const auto [along, beside, across] = target.order;
  const Range& planes = block[static_cast<std::size_t>(across)];
  const Range& lines = block[static_cast<std::size_t>(beside)];
  const Index first = pencil.offset({block[0].begin, block[1].begin, block[2].begin});
  for (Index plane = 0; plane < planes.length; ++plane)
    for (Index line = 0; line < lines.length; ++line)
      visit(first + plane * pencil.stride(across) + line * pencil.stride(beside),
            block[static_cast<std::size_t>(along)].length);
}

}  // namespace

Transposition::Transposition(const Session& session, const std::string& name, const Pencils& pencils, int from, int to,
                             int slabs, Buffers& buffers, sluice::Stream stream)
    : from_(pencils.pencil(from, session.rank)), to_(pencils.pencil(to, session.rank)), source_(buffers.pencil(from)),
      target_(buffers.pencil(to)) {
  const int cut = 3 - from - to;
  for (int peer = 0; peer < session.decomposition.ranks(); ++peer)  // no slab of any rank is empty
    slabs = std::min(slabs, static_cast<int>(pencils.pencil(from, peer).block[static_cast<std::size_t>(cut)].length));
  Cutter sent(buffers.sent);
  Cutter received(buffers.received);
  for (int number = 0; number < slabs; ++number) {
    Slab& slab = slabs_.emplace_back();
    slab.before = apps::slab(from_.block, cut, slabs, number);
    slab.after = apps::slab(to_.block, cut, slabs, number);
    GroupBlocks blocks;
    for (int peer = 0; peer < session.decomposition.ranks(); ++peer) {
      const Block out = common_part(slab.before, pencils.pencil(to, peer).block);
      const Block in = common_part(slab.after, pencils.pencil(from, peer).block);
      if (cells(out) == 0) continue;
      blocks.from.push_back({peer, 0, sent.next(out)});
      blocks.to.push_back({peer, 0, received.next(in)});
      slab.out.push_back({out, reinterpret_cast<Complex*>(blocks.from.back().slice.data())});
      slab.in.push_back({in, reinterpret_cast<Complex*>(blocks.to.back().slice.data())});
    }
    slab.exchange = open_alltoall(session, name + std::to_string(number), blocks, stream, slabs > 1);
  }
}

void Transposition::pack(int slab) const {
  const Index stride = from_.stride(to_.order[0]);
  for (const Piece& piece : at(slab).out) {
    Complex* packed = piece.packed;
    each_line(from_, to_, piece.block, [&](Index offset, Index n) {
      for (Index i = 0; i < n; ++i) *packed++ = source_[offset + i * stride];
    });
  }
}

void Transposition::unpack(int slab) const {
  for (const Piece& piece : at(slab).in) {
    const Complex* packed = piece.packed;
    each_line(to_, to_, piece.block, [&](Index offset, Index n) {
      std::copy_n(packed, n, target_ + offset);
      packed += n;
    });
  }
}

void transpose(const Transposition& moved, std::span<const Lines> before, std::span<const Lines> after,
               WorkQueue& queue, const Mark& mark) {
  const auto transform = [&](std::span<const Lines> lines, int slab) {
    if (lines.empty()) return;
    queue.run([&line = lines[static_cast<std::size_t>(slab)]] { line.run(); });
    mark(Phase::interior);
  };
  for (int slab = 0; slab < moved.slabs(); ++slab) {
    transform(before, slab);
    queue.run([&moved, slab] { moved.pack(slab); });
    mark(Phase::pack);
    moved.start(slab);
    mark(Phase::put);
  }
  for (int slab = 0; slab < moved.slabs(); ++slab) {
    moved.wait(slab);
    mark(Phase::wait);
    queue.run([&moved, slab] { moved.unpack(slab); });
    mark(Phase::unpack);
    transform(after, slab);
  }
}

}  // namespace apps
