// SPDX-License-Identifier: Apache-2.0
#include "apps/faces/reference.hpp"

#include <cstddef>
#include <utility>

namespace faces {
namespace {

// One axis: the ends of blocks, and how positions wrap around.
struct Axis {
  Index nodes;
  Index n;

  bool first(Index i) const { return i % nodes == 0; }
  bool last(Index i) const { return i % nodes == nodes - 1; }
  Index wrapped(Index i) const { return (i + n) % n; }
};

class Field {
 public:
  explicit Field(const Problem& problem) : mesh_(problem.mesh()), nodes_(problem.nodes) {
    for (Index z = 0; z < mesh_.nz; ++z)
      for (Index y = 0; y < mesh_.ny; ++y)
        for (Index x = 0; x < mesh_.nx; ++x) values_.push_back(problem.initial(x, y, z));
  }

  void step() {
    std::vector<double> next;
    next.reserve(values_.size());
    for (Index z = 0; z < mesh_.nz; ++z)
      for (Index y = 0; y < mesh_.ny; ++y)
        for (Index x = 0; x < mesh_.nx; ++x) next.push_back(0.5 * copies(x, y, z) + 0.5 * neighbours(x, y, z));
    values_ = std::move(next);
  }

  std::vector<double> values() && { return std::move(values_); }

 private:
  double at(Index x, Index y, Index z) const {
    return values_[static_cast<std::size_t>((z * mesh_.ny + y) * mesh_.nx + x)];
  }

  // The mean of all copies of a node, from the lowest block to the highest.
  double copies(Index x, Index y, Index z) const {
    const Axis ax{nodes_, mesh_.nx};
    const Axis ay{nodes_, mesh_.ny};
    const Axis az{nodes_, mesh_.nz};
    double sum = 0;
    double count = 0;
    for (Index k = z - (az.first(z) ? 1 : 0); k <= z + (az.last(z) ? 1 : 0); ++k)
      for (Index j = y - (ay.first(y) ? 1 : 0); j <= y + (ay.last(y) ? 1 : 0); ++j)
        for (Index i = x - (ax.first(x) ? 1 : 0); i <= x + (ax.last(x) ? 1 : 0); ++i) {
          sum += at(ax.wrapped(i), ay.wrapped(j), az.wrapped(k));
          ++count;
        }
    return sum / count;
  }

  // The mean of the neighbours in the same block.
  double neighbours(Index x, Index y, Index z) const {
    double sum = 0;
    double count = 0;
    const auto add = [&](bool inside, Index i, Index j, Index k) {
      if (!inside) return;
      sum += at(i, j, k);
      ++count;
    };
    const Axis block{nodes_, 0};
    add(!block.first(x), x - 1, y, z);
    add(!block.last(x), x + 1, y, z);
    add(!block.first(y), x, y - 1, z);
    add(!block.last(y), x, y + 1, z);
    add(!block.first(z), x, y, z - 1);
    add(!block.last(z), x, y, z + 1);
    return sum / count;
  }

  apps::Mesh mesh_;
  Index nodes_;
  std::vector<double> values_;
};

}  // namespace

std::vector<double> solve_serially(const Problem& problem, Index steps) {
  Field field(problem);
  for (Index i = 0; i < steps; ++i) field.step();
  return std::move(field).values();
}

}  // namespace faces
