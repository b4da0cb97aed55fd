// SPDX-License-Identifier: Apache-2.0
// A pipeline of ranks. Each has some columns of a matrix and goes through its rows; a row begins where the left
// neighbour's part of it ends. That one number comes by put_tagged, whose tag is the row. When the last rank has
// completed the last row, the corner of the matrix goes back to rank 0, and the next sweep begins.
// Sources: Belli, Hoefler, "Notified Access", IPDPS 2015; the kernel Synch_p2p of the Parallel Research Kernels (Van
// der Wijngaart, Mattson, HPEC 2014).
#include <sluice/sluice.hpp>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kRows = 100, kColumns = 50, kSweeps = 10;  // kColumns of each rank
constexpr sluice::Tag kCorner = kRows;
constexpr std::chrono::seconds kLimit(30);
constexpr std::size_t kDouble = sizeof(double);

// Rows of a matrix, of which column 0 belongs to the left neighbour.
struct Matrix {
  explicit Matrix(int columns) : width(columns + 1), numbers(std::size_t{kRows} * width) {}
  double& at(int row, int column) { return numbers[static_cast<std::size_t>(row) * width + column]; }
  // Row 0 is given.
  void compute(int row) {
    for (int i = 1; i < width; ++i) at(row, i) = at(row - 1, i) + at(row, i - 1) - at(row - 1, i - 1);
  }
  int width;
  std::vector<double> numbers;
};

// Row 0 holds 0, 1, 2 ... , and column 0 the same, in the matrix of all ranks; `first` is the number of our column 0.
Matrix begin(int columns, int first) {
  Matrix matrix(columns);
  for (int i = 0; i < matrix.width; ++i) matrix.at(0, i) = first + i;
  if (first == 0)
    for (int row = 0; row < kRows; ++row) matrix.at(row, 0) = row;
  return matrix;
}

void take(sluice::Window& window, sluice::Rank from, sluice::Tag tag) {
  if (!window.match(from, tag, kLimit))
    throw std::runtime_error("no number has come from rank " + std::to_string(from));
}

Matrix serial(int columns) {
  Matrix matrix = begin(columns, 0);
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (int row = 1; row < kRows; ++row) matrix.compute(row);
    matrix.at(0, 0) = -matrix.at(kRows - 1, columns);
  }
  return matrix;
}

}  // namespace

int main(int argc, char** argv) {
  return sluice::run(argc, argv, [](sluice::Context& ctx) {
    const int left = ctx.rank() - 1, last = ctx.size() - 1;
    // A number for each row, and the corner: what comes from the left, and what goes to the right. The left neighbour
    // begins a sweep after all ranks have completed the one before it, so that it overwrites no number that is needed.
    const sluice::Memory memory = ctx.allocate((kRows + 1) * kDouble), edge = ctx.allocate((kRows + 1) * kDouble);
    const sluice::Slice in = memory.all(), out = edge.all();
    sluice::Window window = ctx.window("edge", in);
    sluice::Target next = ctx.target(ctx.rank() == last ? 0 : ctx.rank() + 1, "edge");
    const auto send = [&](sluice::Tag row, double number) {
      out.as<double>()[row] = number;
      next.put_tagged({}, out.slice(row * kDouble, kDouble), row * kDouble, row);
    };

    Matrix matrix = begin(kColumns, ctx.rank() * kColumns);
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      for (int row = 1; row < kRows; ++row) {
        const auto tag = static_cast<sluice::Tag>(row);
        if (ctx.rank() > 0) {
          take(window, left, tag);
          matrix.at(row, 0) = in.as<double>()[tag];
        }
        matrix.compute(row);
        if (ctx.rank() < last) send(tag, matrix.at(row, kColumns));
      }
      if (ctx.rank() == last) send(kCorner, -matrix.at(kRows - 1, kColumns));
      if (ctx.rank() == 0) {
        take(window, last, kCorner);
        matrix.at(0, 0) = in.as<double>()[kCorner];
      }
    }
    Matrix expected = serial(ctx.size() * kColumns);
    for (int row = 1; row < kRows; ++row)
      for (int i = 1; i <= kColumns; ++i)
        if (matrix.at(row, i) != expected.at(row, ctx.rank() * kColumns + i))
          throw std::runtime_error("row " + std::to_string(row) + ", column " + std::to_string(i) + " is wrong");
    if (ctx.rank() == 0) std::printf("pipeline: %d sweeps, corner %g\n", kSweeps, -matrix.at(0, 0));
  });
}
