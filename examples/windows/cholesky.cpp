// SPDX-License-Identifier: Apache-2.0
// Cholesky's factorisation of a matrix in tiles, as a graph of tasks. Each rank has some tiles and runs the tasks that
// change them. A tile that is done goes by put_tagged to the ranks whose tasks read it; its tag is its number. A rank
// takes notices from any source with any tag, in the order in which they come, until the tile that it needs is here.
// Source: Belli, Hoefler, "Notified Access", IPDPS 2015; the tasks are those of Buttari, Langou, Kurzak, Dongarra, "A
// Class of Parallel Tiled Linear Algebra Algorithms for Multicore Architectures", Parallel Computing 35, 2009.
#include <sluice/sluice.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kTiles = 8, kSide = 16, kTile = kSide * kSide, kTileBytes = kTile * sizeof(double);
constexpr std::size_t kAll = kTiles * kTiles, kRows = kTiles * kSide;
constexpr std::chrono::seconds kLimit(30);
// A window keeps 64 notices of each target that are not matched. There are fewer tiles, so that no put_tagged waits.
static_assert(kTiles * (kTiles + 1) / 2 <= 64);

double entry(std::size_t row, std::size_t column) {
  const double apart = std::abs(static_cast<double>(row) - static_cast<double>(column));
  return 1 / (1 + apart) + (row == column ? 4 : 0);
}

std::size_t number(std::size_t i, std::size_t j) { return i * kTiles + j; }
double& at(double* tile, std::size_t row, std::size_t column) { return tile[row * kSide + column]; }

// The diagonal tile becomes its own factor.
void factor(double* a) {
  for (std::size_t j = 0; j < kSide; ++j) {
    for (std::size_t k = 0; k < j; ++k) at(a, j, j) -= at(a, j, k) * at(a, j, k);
    at(a, j, j) = std::sqrt(at(a, j, j));
    for (std::size_t i = j + 1; i < kSide; ++i) {
      for (std::size_t k = 0; k < j; ++k) at(a, i, j) -= at(a, i, k) * at(a, j, k);
      at(a, i, j) /= at(a, j, j);
    }
  }
}

// a becomes x with x l^T = a.
void solve(double* l, double* a) {
  for (std::size_t i = 0; i < kSide; ++i)
    for (std::size_t j = 0; j < kSide; ++j) {
      for (std::size_t k = 0; k < j; ++k) at(a, i, j) -= at(a, i, k) * at(l, j, k);
      at(a, i, j) /= at(l, j, j);
    }
}

// c -= a b^T.
void update(double* a, double* b, double* c) {
  for (std::size_t i = 0; i < kSide; ++i)
    for (std::size_t j = 0; j < kSide; ++j)
      for (std::size_t k = 0; k < kSide; ++k) at(c, i, j) -= at(a, i, k) * at(b, j, k);
}

// The tiles of this rank, and copies of others, at the same offsets in the windows of all ranks.
class Matrix {
 public:
  explicit Matrix(sluice::Context& ctx)
      : rank_(ctx.rank()), ranks_(ctx.size()), memory_(ctx.allocate(kAll * kTileBytes)) {
    window_ = ctx.window("tiles", all_);
    for (int rank = 0; rank < ranks_; ++rank) targets_.push_back(ctx.target(rank, "tiles"));
    for (std::size_t i = 0; i < kRows; ++i)
      for (std::size_t j = 0; j < kRows; ++j)
        if (mine(i / kSide, j / kSide)) at(tile(i / kSide, j / kSide), i % kSide, j % kSide) = entry(i, j);
  }

  bool mine(std::size_t i, std::size_t j) const { return owner(i, j) == rank_; }
  double* tile(std::size_t i, std::size_t j) const { return all_.as<double>().data() + number(i, j) * kTile; }

  // The tile, once it is here.
  double* done_tile(std::size_t i, std::size_t j) {
    while (!mine(i, j) && !here_[number(i, j)]) {
      const std::optional<sluice::Notice> notice = window_.match(sluice::kAnySource, sluice::kAnyTag, kLimit);
      if (!notice) throw std::runtime_error("tile " + std::to_string(number(i, j)) + " does not come");
      here_[notice->tag] = true;
    }
    return tile(i, j);
  }

  // Puts tile (i, k), which is done, into the windows of the ranks that read it.
  void send(std::size_t i, std::size_t k) {
    std::set<int> readers;
    for (std::size_t j = k + 1; j < kTiles; ++j)
      readers.insert(i == k ? owner(j, k) : owner(std::max(i, j), std::min(i, j)));
    readers.erase(rank_);
    const std::size_t offset = number(i, k) * kTileBytes;
    for (const int reader : readers)
      targets_[static_cast<std::size_t>(reader)].put_tagged({}, memory_.slice(offset, kTileBytes), offset,
                                                            static_cast<sluice::Tag>(number(i, k)));
  }

 private:
  int owner(std::size_t i, std::size_t j) const {
    return static_cast<int>((i + 2 * j) % static_cast<std::size_t>(ranks_));
  }

  int rank_, ranks_;
  sluice::Memory memory_;
  sluice::Slice all_ = memory_.all();
  std::array<bool, kAll> here_{};  // tiles of other ranks
  sluice::Window window_;
  std::vector<sluice::Target> targets_;
};

// All ranks go through the tasks in the same order, and each runs those that change its tiles.
void factor(Matrix& matrix) {
  for (std::size_t k = 0; k < kTiles; ++k) {
    for (std::size_t i = k; i < kTiles; ++i) {
      if (!matrix.mine(i, k)) continue;
      if (i == k) {
        factor(matrix.tile(k, k));
      } else {
        solve(matrix.done_tile(k, k), matrix.tile(i, k));
      }
      matrix.send(i, k);
    }
    for (std::size_t i = k + 1; i < kTiles; ++i)
      for (std::size_t j = k + 1; j <= i; ++j)
        if (matrix.mine(i, j)) update(matrix.done_tile(i, k), matrix.done_tile(j, k), matrix.tile(i, j));
  }
}

std::vector<double> serial_factor() {
  std::vector<double> l(kRows * kRows);
  for (std::size_t i = 0; i < kRows; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double rest = entry(i, j);
      for (std::size_t k = 0; k < j; ++k) rest -= l[i * kRows + k] * l[j * kRows + k];
      l[i * kRows + j] = i == j ? std::sqrt(rest) : rest / l[j * kRows + j];
    }
  return l;
}

}  // namespace

int main(int argc, char** argv) {
  return sluice::run(argc, argv, [](sluice::Context& ctx) {
    Matrix matrix(ctx);
    factor(matrix);
    const std::vector<double> expected = serial_factor();
    for (std::size_t i = 0; i < kRows; ++i)
      for (std::size_t j = 0; j <= i; ++j) {
        if (!matrix.mine(i / kSide, j / kSide)) continue;
        const double got = at(matrix.tile(i / kSide, j / kSide), i % kSide, j % kSide);
        if (!(std::abs(got - expected[i * kRows + j]) < 1e-12))
          throw std::runtime_error("row " + std::to_string(i) + ", column " + std::to_string(j) + " is wrong");
      }
    if (ctx.rank() == 0) std::printf("Cholesky: %zu x %zu numbers in %zu x %zu tiles\n", kRows, kRows, kTiles, kTiles);
  });
}
