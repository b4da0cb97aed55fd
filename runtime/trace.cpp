// SPDX-License-Identifier: Apache-2.0
#include <sluice/trace.hpp>

#include "base/trace.hpp"

namespace sluice {

using base::Clock;

bool tracing() noexcept { return base::trace::recording(); }

Span::Span(std::string_view name) {
  if (!base::trace::on()) return;
  name_ = base::trace::kept(name);
  base::trace::begin_range(name_);
  track_ = base::trace::current();
  began_ = Clock::now().time_since_epoch().count();
}

Span::~Span() {
  if (name_ == nullptr) return;
  const base::trace::Time began{Clock::duration(began_)};
  base::trace::add({name_, "", 0, 0, {}, track_, began, Clock::now()});
  base::trace::end_range();
}

}  // namespace sluice
