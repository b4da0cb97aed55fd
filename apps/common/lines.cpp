// SPDX-License-Identifier: Apache-2.0
#include "apps/common/lines.hpp"

#include <fftw3.h>

#include <mutex>
#include <stdexcept>

namespace apps {
namespace {

std::mutex g_planner;  // FFTW makes and destroys plans in one thread at a time; ranks may be threads

}  // namespace

void Lines::End::operator()(void* plan) const {
  const std::lock_guard lock(g_planner);
  fftw_destroy_plan(static_cast<fftw_plan>(plan));
}

Lines::Lines(const Pencil& pencil, const Block& part, Complex* data, Direction direction) {
  if (cells(part) == 0) return;
  const auto [along, beside, across] = pencil.order;
  const int length = static_cast<int>(part[static_cast<std::size_t>(along)].length);
  const int count = static_cast<int>(part[static_cast<std::size_t>(beside)].length);
  first_ = data + pencil.offset({part[0].begin, part[1].begin, part[2].begin});
  planes_ = part[static_cast<std::size_t>(across)].length;
  stride_ = pencil.stride(across);
  auto* const cells = reinterpret_cast<fftw_complex*>(first_);
  const int sign = direction == Direction::forward ? FFTW_FORWARD : FFTW_BACKWARD;
  const std::lock_guard lock(g_planner);
  // Estimated plans do not depend on measured times: the same run gives the same bits.
  plan_.reset(fftw_plan_many_dft(1, &length, count, cells, nullptr, 1, length, cells, nullptr, 1, length, sign,
                                 FFTW_ESTIMATE | FFTW_UNALIGNED));
  if (plan_ == nullptr) throw std::runtime_error("FFTW makes no plan");
}

void Lines::run() const {
  for (Index plane = 0; plane < planes_; ++plane) {
    auto* const cells = reinterpret_cast<fftw_complex*>(first_ + plane * stride_);
    fftw_execute_dft(static_cast<fftw_plan>(plan_.get()), cells, cells);
  }
}

}  // namespace apps
