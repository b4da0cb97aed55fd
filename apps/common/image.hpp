// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace apps {

struct Colour {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;

  bool operator==(const Colour&) const = default;
};

/// Colours for values from 0 to 1, at equal distances; colours between them are blended.
using Palette = std::span<const Colour>;

/// Cold blue, white, warm red: for fields around zero.
extern const Palette kDiverging;
/// Near black to pale green: for cells dead and alive.
extern const Palette kCells;
/// Black, red, yellow, white: for heat.
extern const Palette kHot;

/// The colour of a value, clamped to [0, 1].
Colour colour_at(Palette palette, double value);

// A row of pixels is what libpng reads: three bytes each.
static_assert(sizeof(Colour) == 3);

struct Image {
  Index width = 0;
  Index height = 0;
  std::vector<Colour> pixels;
};

/// True if this program was built with libpng.
bool can_write_png();
/// @throws std::runtime_error that names the file.
void write_png(const std::string& file, const Image& image);

/// The part of a field that pictures show: in two dimensions all of it; in three the plane at a quarter of z, where a
/// sine of one period has its maximum (in the middle it is zero).
template <class T>
std::span<const T> drawn_plane(std::span<const T> cells, const Mesh& mesh) {
  const auto plane = static_cast<std::size_t>(mesh.nx * mesh.ny);
  return cells.subspan(static_cast<std::size_t>(mesh.nz / 4) * plane, plane);
}

/// How cells become pixels: in large fields a pixel is the mean of shrink x shrink cells, in small ones a cell is
/// enlarge x enlarge pixels.
struct Scale {
  Index shrink = 1;
  Index enlarge = 1;
};
Scale picture_scale(Index nx, Index ny);

/// The size, in pixels, of a picture of nx x ny cells.
struct PictureSize {
  Index width = 0;
  Index height = 0;
};
PictureSize picture_size(Index nx, Index ny);

/// The mean values of the pixels of a field of nx x ny cells, row by row.
template <class T>
std::vector<double> pixel_values(std::span<const T> cells, Index nx, Index ny) {
  const auto [shrink, enlarge] = picture_scale(nx, ny);
  const auto [width, height] = picture_size(nx, ny);
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(width * height));
  for (Index py = 0; py < height; ++py) {
    const Index y = py / enlarge * shrink;
    const Index y_end = std::min(y + shrink, ny);
    for (Index px = 0; px < width; ++px) {
      const Index x = px / enlarge * shrink;
      const Index x_end = std::min(x + shrink, nx);
      double sum = 0;
      for (Index j = y; j < y_end; ++j)
        for (Index i = x; i < x_end; ++i) sum += static_cast<double>(cells[j * nx + i]);
      values.push_back(sum / static_cast<double>((x_end - x) * (y_end - y)));
    }
  }
  return values;
}

/// A picture of a field of nx x ny cells whose values from `low` to `high` span the palette.
template <class T>
Image draw(std::span<const T> cells, Index nx, Index ny, double low, double high, Palette palette) {
  const auto [width, height] = picture_size(nx, ny);
  Image image{width, height, {}};
  image.pixels.reserve(static_cast<std::size_t>(width * height));
  for (const double value : pixel_values(cells, nx, ny))
    image.pixels.push_back(colour_at(palette, (value - low) / (high - low)));
  return image;
}

/// Draws a whole field, or a plane of it, into a PNG file, unless its name is empty. Values from `low` to `high` span
/// the palette. @throws std::runtime_error that names the file.
template <class T>
void write_picture(const std::string& file, std::span<const T> cells, const Mesh& mesh, double low, double high,
                   Palette palette) {
  if (!file.empty()) write_png(file, draw(drawn_plane(cells, mesh), mesh.nx, mesh.ny, low, high, palette));
}

}  // namespace apps
