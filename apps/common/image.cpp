// SPDX-License-Identifier: Apache-2.0
#include "apps/common/image.hpp"

#include <array>
#include <cmath>

namespace apps {
namespace {

constexpr Index kLargestSide = 1024;  // pixels
constexpr Index kUsefulSide = 512;    // smaller pictures are enlarged to about this size

constexpr std::array<Colour, 5> kDivergingColours = {
    {{20, 40, 120}, {90, 150, 220}, {245, 245, 245}, {235, 140, 90}, {140, 20, 30}}};
constexpr std::array<Colour, 3> kCellColours = {{{12, 14, 24}, {40, 140, 110}, {220, 250, 200}}};
constexpr std::array<Colour, 4> kHotColours = {{{10, 8, 20}, {170, 30, 40}, {245, 170, 40}, {255, 250, 220}}};

std::uint8_t blend(std::uint8_t from, std::uint8_t to, double part) {
  return static_cast<std::uint8_t>(std::lround(from + part * (to - from)));
}

}  // namespace

constinit const Palette kDiverging = kDivergingColours;
constinit const Palette kCells = kCellColours;
constinit const Palette kHot = kHotColours;

Colour colour_at(Palette palette, double value) {
  // A NaN is drawn as the lowest value: a comparison with it is false.
  const double cut = value > 0 ? std::min(value, 1.0) : 0.0;
  const double position = cut * static_cast<double>(palette.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(position), palette.size() - 2);
  const double part = position - static_cast<double>(below);
  const Colour a = palette[below];
  const Colour b = palette[below + 1];
  return {blend(a.red, b.red, part), blend(a.green, b.green, part), blend(a.blue, b.blue, part)};
}

Scale picture_scale(Index nx, Index ny) {
  const Index side = std::max(nx, ny);
  return {(side + kLargestSide - 1) / kLargestSide, std::max<Index>(1, kUsefulSide / side)};
}

PictureSize picture_size(Index nx, Index ny) {
  const auto [shrink, enlarge] = picture_scale(nx, ny);
  return {(nx + shrink - 1) / shrink * enlarge, (ny + shrink - 1) / shrink * enlarge};
}

}  // namespace apps
