// SPDX-License-Identifier: Apache-2.0
#include "apps/channel_flow/sweeps.hpp"

#include <algorithm>
#include <cstddef>

namespace channel_flow {

Sweeps::Sweeps(apps::Session& session, const apps::Pencils& pencils, int slabs, Complex* cells, apps::WorkQueue& queue)
    : cells_(cells), queue_(queue) {
  const apps::Pencil pencil = pencils.pencil(1, session.rank);
  const auto [xs, ys, zs] = pencil.block;
  const apps::Mesh& mesh = session.decomposition.mesh();
  waves_ = xs.length * ys.length;
  planes_ = zs.length;
  has_neighbour_ = {zs.begin > 0, zs.begin + zs.length < mesh.nz};
  // The factors do not depend on the right-hand sides: each rank computes them from the lower wall on.
  std::vector<double> last(static_cast<std::size_t>(waves_));
  for (Index z = 0; z < zs.begin + zs.length; ++z) {
    for (Index i = 0; i < waves_; ++i) {
      const double sum = eigenvalue(xs.begin + i / ys.length, mesh.nx) + eigenvalue(i % ys.length, mesh.ny);
      last[static_cast<std::size_t>(i)] = 1 / (diagonal(z, mesh.nz, sum) - last[static_cast<std::size_t>(i)]);
    }
    if (z >= zs.begin) factors_.insert(factors_.end(), last.begin(), last.end());
  }
  const Index parts = std::min<Index>(slabs, mesh.nx / pencils.columns());
  for (Index number = 0; number < parts; ++number) {
    Slab& slab = slabs_.emplace_back();
    slab.first = xs.length * number / parts * ys.length;
    slab.count = xs.length * (number + 1) / parts * ys.length - slab.first;
    for (const std::size_t way : {0, 1}) {
      const std::string name = (way == 0 ? "up, slab " : "down, slab ") + std::to_string(number);
      const int ahead = session.rank + (way == 0 ? pencils.columns() : -pencils.columns());
      const int behind = 2 * session.rank - ahead;
      const auto open_come = [&] {
        slab.come[way] = passage(session, name, has_neighbour_[way] ? behind : -1, false, slab.count);
      };
      // Each exchange of MPI is one of all ranks: the two ends of a passage must be of the same.
      const bool come_first = (session.rank / pencils.columns() + static_cast<int>(way)) % 2 != 0;
      if (come_first) open_come();
      slab.go[way] = passage(session, name, has_neighbour_[1 - way] ? ahead : -1, true, slab.count);
      if (!come_first) open_come();
    }
  }
}

/// An exchange with no message where the neighbour would be in a wall: all ranks open the same exchanges.
Sweeps::Passage Sweeps::passage(apps::Session& session, const std::string& name, int peer, bool out, Index count) {
  Passage passage;
  apps::Links links{.name = name};
  if (peer >= 0) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(Complex);
    passage.slots = session.context.allocate(apps::kSlots * bytes).all();
    (out ? links.out : links.in).push_back({peer, passage.slots, name});
  }
  passage.exchange = apps::open_host_exchange(session, links, queue_.stream());
  return passage;
}

void Sweeps::solve() {
  for (const bool up : {true, false})
    for (Slab& slab : slabs_) sweep(slab, up);
}

void Sweeps::close() noexcept {
  for (Slab& slab : slabs_)
    for (const std::size_t way : {0, 1}) {
      slab.come[way].exchange.reset();
      slab.go[way].exchange.reset();
    }
}

void Sweeps::sweep(Slab& slab, bool up) {
  const std::size_t way = up ? 0 : 1;
  const Passage& come = slab.come[way];
  const Passage& go = slab.go[way];
  const bool comes = has_neighbour_[way];
  const bool goes = has_neighbour_[1 - way];
  if (comes) {
    const int slot = come.exchange->acquire();
    come.exchange->put();
    come.exchange->wait();
    queue_.run([this, &slab, up, plane = come.plane(slot)] { up ? eliminate(slab, plane) : substitute(slab, plane); });
    come.exchange->release();
  } else {
    queue_.run([this, &slab, up] { up ? eliminate(slab, nullptr) : substitute(slab, nullptr); });
  }
  if (!goes) return;
  const int slot = go.exchange->acquire();
  queue_.run([this, &slab, plane = go.plane(slot), last = up ? planes_ - 1 : 0] {
    std::copy_n(cells_ + last * waves_ + slab.first, slab.count, plane);
  });
  go.exchange->put();
  go.exchange->wait();
  go.exchange->release();
}

void Sweeps::eliminate(const Slab& slab, const Complex* below) {
  for (Index plane = 0; plane < planes_; ++plane) {
    Complex* const own = cells_ + plane * waves_ + slab.first;
    const double* const by = factor(plane) + slab.first;
    const Complex* const before = plane > 0 ? own - waves_ : below;
    for (Index i = 0; i < slab.count; ++i) own[i] = (before != nullptr ? own[i] - before[i] : own[i]) * by[i];
  }
}

void Sweeps::substitute(const Slab& slab, const Complex* above) {
  for (Index plane = planes_ - 1; plane >= 0; --plane) {
    Complex* const own = cells_ + plane * waves_ + slab.first;
    const double* const by = factor(plane) + slab.first;
    const Complex* const next = plane < planes_ - 1 ? own + waves_ : above;
    for (Index i = 0; i < slab.count && next != nullptr; ++i) own[i] -= by[i] * next[i];
  }
}

}  // namespace channel_flow
