// SPDX-License-Identifier: Apache-2.0
#include "apps/common/halo.hpp"

#include <algorithm>
#include <span>

namespace apps {
namespace {

struct Range {
  Index begin;
  Index length;
};

// Along one axis, the owned cells next to the neighbour in that direction, and the ghosts beyond them.
Range edge(int direction, Index n) {
  if (direction == 0) return {0, n};
  return {direction < 0 ? 0 : n - 1, 1};
}
Range ghost(int direction, Index n) {
  if (direction == 0) return {0, n};
  return {direction < 0 ? -1 : n, 1};
}

Box edge(Direction d, const Box& block) {
  const Range x = edge(d.dx, block.nx);
  const Range y = edge(d.dy, block.ny);
  return {x.begin, y.begin, x.length, y.length};
}
Box ghost(Direction d, const Box& block) {
  const Range x = ghost(d.dx, block.nx);
  const Range y = ghost(d.dy, block.ny);
  return {x.begin, y.begin, x.length, y.length};
}

Direction opposite(Direction d) { return {-d.dx, -d.dy}; }

void append(std::vector<Piece>& pieces, Index& total, const Box& cells) {
  pieces.push_back({cells, total});
  total += cells.cells();
}

Message& message_with(std::vector<Message>& messages, int peer) {
  const auto found = std::ranges::find(messages, peer, &Message::peer);
  if (found != messages.end()) return *found;
  Message& message = messages.emplace_back();
  message.peer = peer;
  return message;
}

void divide(const Box& block, bool west, bool east, bool north, bool south, Halo& halo) {
  const Index x0 = west ? 1 : 0;
  const Index y0 = north ? 1 : 0;
  const Index x1 = block.nx - (east ? 1 : 0);
  const Index y1 = block.ny - (south ? 1 : 0);
  if (x0 >= x1 || y0 >= y1) {
    halo.boundary.push_back({0, 0, block.nx, block.ny});
    return;
  }
  halo.interior = {x0, y0, x1 - x0, y1 - y0};
  const Box sides[] = {
      {0, 0, block.nx, y0}, {0, y1, block.nx, block.ny - y1}, {0, y0, x0, y1 - y0}, {x1, y0, block.nx - x1, y1 - y0}};
  std::ranges::copy_if(sides, std::back_inserter(halo.boundary), [](const Box& side) { return side.cells() > 0; });
}

}  // namespace

Halo make_halo(const Decomposition& decomposition, int rank, Stencil stencil) {
  const Box block = decomposition.box(rank);
  const std::span directions(kDirections.data(), stencil == Stencil::five_point ? kFaces : kDirections.size());
  Halo halo;
  for (const Direction d : directions) {
    const int to = decomposition.neighbour(rank, d);
    if (to == rank) halo.copies.push_back({edge(opposite(d), block), ghost(d, block)});
    if (to != rank && to != kNobody) {
      Message& message = message_with(halo.messages, to);
      append(message.out, message.out_cells, edge(d, block));
    }
    // What the neighbour on the other side sends this way, at its turn in the sender's order.
    const int from = decomposition.neighbour(rank, opposite(d));
    if (from != rank && from != kNobody) {
      Message& message = message_with(halo.messages, from);
      append(message.in, message.in_cells, ghost(opposite(d), block));
    }
  }
  const auto remote = [&](Direction d) {
    const int peer = decomposition.neighbour(rank, d);
    return peer != rank && peer != kNobody;
  };
  divide(block, remote({-1, 0}), remote({1, 0}), remote({0, -1}), remote({0, 1}), halo);
  return halo;
}

}  // namespace apps
