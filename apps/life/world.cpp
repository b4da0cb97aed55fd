// SPDX-License-Identifier: Apache-2.0
#include "apps/life/world.hpp"

namespace life {
namespace {

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

// From 0 to 1, 1 excluded.
double random_number(std::uint64_t seed, Index cell) {
  constexpr double kUnit = 1.0 / 9007199254740992.0;  // 2^-53
  return static_cast<double>(mix(mix(seed) + static_cast<std::uint64_t>(cell)) >> 11U) * kUnit;
}

Index wrapped(Index position, Index n) { return (position % n + n) % n; }

}  // namespace

void populate(const World& world, const apps::Box& box, Cell* origin, Index pitch) {
  for (Index y = 0; y < box.ny; ++y)
    for (Index x = 0; x < box.nx; ++x) {
      const Index cell = (box.y + y) * world.nx + box.x + x;
      origin[y * pitch + x] = world.density > 0 && random_number(world.seed, cell) < world.density ? 1 : 0;
    }
  for (const Point& point : world.cells) {
    const Index x = wrapped(point.x, world.nx) - box.x;
    const Index y = wrapped(point.y, world.ny) - box.y;
    if (x >= 0 && x < box.nx && y >= 0 && y < box.ny) origin[y * pitch + x] = 1;
  }
}

}  // namespace life
