// SPDX-License-Identifier: Apache-2.0
// The parameters of LogGP from measured times. Hoefler, Lichei, Rehm: "Low-Overhead LogGP Parameter Assessment for
// Modern Interconnection Networks", 2007: the time of n messages and one answer, for several n and sizes.
#pragma once

#include "collectives/loggp.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace bench {

/// So many messages go before an answer.
inline constexpr int kTrain = 8;

/// A time for each size, in nanoseconds.
struct Point {
  std::size_t bytes = 0;
  double ns = 0;
};

/// Measured times, in nanoseconds. Sizes grow; the first is the smallest message.
struct Times {
  std::vector<Point> one;       ///< a message of this size and the smallest answer
  std::vector<Point> train;     ///< kTrain messages, one behind the other, and the answer
  std::vector<Point> copied;    ///< as `one`, but the receiver copies the message out first
  std::vector<Point> combined;  ///< the same, but it adds it to numbers in memory
  double put = 0;               ///< the work of a put of the smallest message, when nothing else is under way
  double receive = 0;           ///< the work of wait and release of one that has landed
};

/// A new line begins where the error of the line so far is a larger part of a point.
inline constexpr double kLineError = 0.1;

/// The fewest lines whose least squares, of relative errors, are within kLineError of each point: where another begins,
/// the transport has another protocol, or the next cache. `base` is added to each point, as that of which an error is a
/// part.
sluice::collectives::ByteCost fit_lines(std::span<const Point> points, double base);
/// Fits lines that begin where those of `like` do.
sluice::collectives::ByteCost fit_lines(std::span<const Point> points, double base,
                                        const sluice::collectives::ByteCost& like);

/// `like`: has the begins of lines; nullptr: they are found.
sluice::collectives::LogGP fit(const Times& times, const sluice::collectives::LogGP* like = nullptr);

}  // namespace bench
