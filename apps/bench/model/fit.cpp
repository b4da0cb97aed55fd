// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/model/fit.hpp"

#include <algorithm>
#include <cmath>

namespace bench {
namespace {

using sluice::collectives::ByteCost;
using sluice::collectives::Line;
using sluice::collectives::LogGP;

/// Least squares of relative errors. A line that would fall is level.
Line line_of(std::span<const Point> points, double base) {
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
  for (const Point& point : points) {
    const double weight = 1 / std::max(1e-9, (base + point.ns) * (base + point.ns));
    const auto x = static_cast<double>(point.bytes);
    w += weight;
    wx += weight * x;
    wy += weight * point.ns;
    wxx += weight * x * x;
    wxy += weight * x * point.ns;
  }
  const double spread = w * wxx - wx * wx;
  const double slope = points.size() > 1 && spread > 0 ? std::max(0.0, (w * wxy - wx * wy) / spread) : 0;
  return {points.front().bytes, (wy - slope * wx) / w, slope};
}

bool fits(const Line& line, std::span<const Point> points, double base) {
  return std::ranges::all_of(points, [&](const Point& point) {
    const double error = line.fixed + line.per_byte * static_cast<double>(point.bytes) - point.ns;
    return std::abs(error) <= kLineError * (base + point.ns);
  });
}

ByteCost from_zero(std::vector<Line> lines) {
  if (!lines.empty()) lines.front().from = 0;
  return ByteCost(std::move(lines));
}

/// More than the smallest message, of the same kind.
std::vector<Point> above(const std::vector<Point>& points, double smallest, double share) {
  std::vector<Point> more;
  for (const Point& point : points) more.push_back({point.bytes, share * (point.ns - smallest)});
  return more;
}

/// Differences between two series, size by size.
std::vector<Point> beyond(const std::vector<Point>& points, const std::vector<Point>& others) {
  std::vector<Point> more;
  for (std::size_t i = 0; i < std::min(points.size(), others.size()); ++i)
    more.push_back({points[i].bytes, std::max(0.0, points[i].ns - others[i].ns)});
  return more;
}

}  // namespace

ByteCost fit_lines(std::span<const Point> points, double base) {
  std::vector<Line> lines;
  while (!points.empty()) {
    std::size_t count = points.size();
    while (count > 1 && !fits(line_of(points.first(count), base), points.first(count), base)) --count;
    lines.push_back(line_of(points.first(count), base));
    points = points.subspan(count);
  }
  return from_zero(std::move(lines));
}

ByteCost fit_lines(std::span<const Point> points, double base, const ByteCost& like) {
  std::vector<Line> lines;
  for (std::size_t i = 0; i < like.lines().size() && !points.empty(); ++i) {
    std::size_t count = 0;
    while (count < points.size() && (i + 1 == like.lines().size() || points[count].bytes < like.lines()[i + 1].from))
      ++count;
    if (count == 0) continue;
    lines.push_back(line_of(points.first(count), base));
    points = points.subspan(count);
  }
  return from_zero(std::move(lines));
}

/// L is what is left of half of a round trip of the smallest message. In mapped memory the receiver's work contains the
/// way of the cache line, so that nothing may be left: then the work is what is left without L.
LogGP fit(const Times& times, const LogGP* like) {
  const double one = times.one.front().ns;
  const double half = one / 2;
  LogGP costs;
  costs.send = std::min(times.put, half);
  costs.receive = std::min(times.receive, half - costs.send);
  costs.latency = half - costs.send - costs.receive;
  costs.gap = std::max(0.0, (times.train.front().ns - one) / (kTrain - 1));
  std::vector<Point> gaps = beyond(times.train, times.one);
  for (Point& point : gaps) point.ns = std::max(0.0, point.ns / (kTrain - 1) - costs.gap);
  const std::vector<Point> ways = above(times.one, one, 1);
  const std::vector<Point> copies = beyond(times.copied, times.one);
  const std::vector<Point> sums = beyond(times.combined, times.one);
  const auto fitted = [&](const std::vector<Point>& points, double base, const ByteCost* lines) {
    return lines == nullptr ? fit_lines(points, base) : fit_lines(points, base, *lines);
  };
  costs.bytes = fitted(gaps, costs.gap, like == nullptr ? nullptr : &like->bytes);
  costs.way = fitted(ways, half, like == nullptr ? nullptr : &like->way);
  costs.copy = fitted(copies, half, like == nullptr ? nullptr : &like->copy);
  costs.combine = fitted(sums, half, like == nullptr ? nullptr : &like->combine);
  return costs;
}

}  // namespace bench
