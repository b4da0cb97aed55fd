// SPDX-License-Identifier: Apache-2.0
// The Views that are packed, and the common part of the contenders, which check once that the Views arrive.
#pragma once

#include "apps/bench/ours/ours.hpp"
#include "apps/bench/ours/packing.hpp"
#include "apps/common/space.hpp"

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace bench {

/// Two columns of ints, each every second int of a larger View: the one that is sent, and the one that is received.
template <class Exec>
class Columns {
 public:
  static constexpr int kStride = 2;
  using All = Kokkos::View<int**, Kokkos::LayoutRight, typename Exec::memory_space>;
  using Column = Kokkos::View<int*, Kokkos::LayoutStride, typename Exec::memory_space>;

  explicit Columns(std::size_t bytes)
      : all_out_("sluice-bench: out", bytes / sizeof(int), kStride),
        all_in_("sluice-bench: in", bytes / sizeof(int), kStride), out(Kokkos::subview(all_out_, Kokkos::ALL(), 0)),
        in(Kokkos::subview(all_in_, Kokkos::ALL(), 0)) {}

  int items() const { return static_cast<int>(out.extent(0)); }

  void stamp(const Exec& exec, sluice::Rank rank) const {
    Kokkos::deep_copy(exec, all_out_, kGap);
    Kokkos::deep_copy(exec, all_in_, kGap);
    Kokkos::parallel_for("sluice-bench: stamp", Kokkos::RangePolicy<Exec>(exec, 0, items()),
                         Stamp{out, stamp_of(rank)});
    exec.fence("sluice-bench: stamped");
  }

  /// Returns true if the column of `rank` has arrived, and nothing between its ints has changed.
  bool arrived(const Exec& exec, sluice::Rank rank) const {
    int wrong = 0;
    Kokkos::parallel_reduce("sluice-bench: check", Kokkos::RangePolicy<Exec>(exec, 0, items()),
                            Check{all_in_, stamp_of(rank)}, wrong);
    exec.fence("sluice-bench: checked");
    return wrong == 0;
  }

 private:
  static constexpr int kGap = -1;
  struct Stamp {
    Column column;
    int first;
    KOKKOS_FUNCTION void operator()(int i) const { column(i) = first + i; }
  };
  struct Check {
    All all;
    int first;
    KOKKOS_FUNCTION void operator()(int i, int& wrong) const {
      if (all(i, 0) != first + i || all(i, 1) != kGap) ++wrong;
    }
  };
  static int stamp_of(sluice::Rank rank) { return 1 + 5 * rank; }

  All all_out_;
  All all_in_;

 public:
  const Column out;
  const Column in;
};

/// A cube of doubles, its six faces, and Views for six faces of neighbours. The first two faces are contiguous, the
/// next two are contiguous rows, and in the last two no element lies beside another one.
template <class Exec>
class Cube {
 public:
  using All = Kokkos::View<double***, Kokkos::LayoutRight, typename Exec::memory_space>;
  using Face = Kokkos::View<double**, Kokkos::LayoutStride, typename Exec::memory_space>;
  using Ghosts = Kokkos::View<double**, Kokkos::LayoutRight, typename Exec::memory_space>;

  Cube() : all_("sluice-bench: cube", kCubeSide, kCubeSide, kCubeSide) {
    for (Ghosts& one : ghosts) one = Ghosts("sluice-bench: ghosts", kCubeSide, kCubeSide);
    const auto whole = Kokkos::ALL();
    for (const std::size_t end : {0, 1}) {
      const int at = end == 0 ? 0 : kCubeSide - 1;
      faces[end] = Kokkos::subview(all_, at, whole, whole);
      faces[2 + end] = Kokkos::subview(all_, whole, at, whole);
      faces[4 + end] = Kokkos::subview(all_, whole, whole, at);
    }
  }

  void stamp(const Exec& exec, sluice::Rank rank) const {
    for (const Ghosts& one : ghosts) Kokkos::deep_copy(exec, one, -1.0);
    Kokkos::parallel_for("sluice-bench: stamp", Kokkos::RangePolicy<Exec>(exec, 0, static_cast<int>(all_.size())),
                         Stamp{all_.data(), stamp_of(rank)});
    exec.fence("sluice-bench: stamped");
  }

  /// Returns true if face number `k` of the cube of `rank` has arrived in `ghosts[k]`.
  bool arrived(const Exec& exec, std::size_t k, sluice::Rank rank) const {
    int wrong = 0;
    Kokkos::parallel_reduce("sluice-bench: check", Kokkos::RangePolicy<Exec>(exec, 0, kCubeSide),
                            Check{ghosts[k], faces[k], all_.data(), stamp_of(rank)}, wrong);
    exec.fence("sluice-bench: checked");
    return wrong == 0;
  }

 private:
  struct Stamp {
    double* cells;
    double first;
    KOKKOS_FUNCTION void operator()(int i) const { cells[i] = first + i; }
  };
  struct Check {
    Ghosts ghosts;
    Face face;
    const double* cells;
    double first;
    KOKKOS_FUNCTION void operator()(int i, int& wrong) const {
      for (int j = 0; j < kCubeSide; ++j) wrong += ghosts(i, j) != first + static_cast<double>(&face(i, j) - cells);
    }
  };
  static double stamp_of(sluice::Rank rank) { return 1e8 * (rank + 1); }

  All all_;

 public:
  std::array<Face, kCubeFaces> faces;
  std::array<Ghosts, kCubeFaces> ghosts;
};

/// A ping-pong of columns. A derived class moves them.
template <class Exec>
class ColumnPingPong : public Contender {
 public:
  // Fills the Views before a derived class opens channels: then a peer may put at once, into the View itself.
  ColumnPingPong(const Workload& workload, const Exec& exec)
      : workload_(workload), exec_(exec), columns_(workload.bytes) {
    columns_.stamp(exec_, workload_.context.rank());
  }

  double run(long count) override {
    return timed_steps(count, [this] {
      round_trip();
      release();
    });
  }

  /// Runs one round trip. @throws std::runtime_error if the received column is not the peer's
  void check() {
    round_trip();
    if (!columns_.arrived(exec_, workload_.peer))
      throw std::runtime_error("packing: a column did not arrive as it was");
    release();
  }

 protected:
  virtual void send() = 0;
  virtual void receive() = 0;
  virtual void release() {}  ///< the received View may be overwritten

  const Workload workload_;
  const Exec exec_;
  const Columns<Exec> columns_;

 private:
  void round_trip() {
    if (workload_.first) send();
    receive();
    if (!workload_.first) send();
  }
};

/// Steps in which all faces are sent and received. A derived class moves them.
template <class Exec>
class FaceExchange : public Contender {
 public:
  FaceExchange(const Workload& workload, const Exec& exec) : workload_(workload), exec_(exec) {
    cube_.stamp(exec_, workload_.context.rank());
  }

  double run(long count) override {
    return timed_steps(count, [this] {
      move();
      release();
    });
  }

  /// Runs one step. @throws std::runtime_error if the received faces are not the neighbours'
  void check() {
    move();
    for (std::size_t k = 0; k < kCubeFaces; ++k) {
      if (!cube_.arrived(exec_, k, neighbour(workload_.context, static_cast<int>(k)).from))
        throw std::runtime_error("packing: a face did not arrive as it was");
    }
    release();
  }

 protected:
  virtual void move() = 0;
  virtual void release() {}  ///< the received Views may be overwritten

  const Workload workload_;
  const Exec exec_;
  const Cube<Exec> cube_;
};

/// Makes a contender and checks it once. All ranks of the workload call it.
template <template <class Exec> class Made, class Exec, class... More>
std::unique_ptr<Made<Exec>> make_checked(const Workload& workload, const Exec& exec, const More&... more) {
  auto made = std::make_unique<Made<Exec>>(workload, exec, more...);
  made->check();
  return made;
}

}  // namespace bench
