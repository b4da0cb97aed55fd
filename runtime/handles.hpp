// SPDX-License-Identifier: Apache-2.0
// How the runtime makes and opens the public handles.
#pragma once

#include <sluice/context.hpp>
#include <sluice/error.hpp>

#include <memory>

#include "base/fork.hpp"

namespace sluice::detail {

/// Thrown by an empty or moved-from handle.
[[noreturn]] inline void throw_empty() { throw Error(Code::misuse, -1, -1, 0, 0, "the handle is empty"); }

/// For the verbs of channels, which detect a fork themselves (ChannelEnd::bind_slowly).
template <class Pointer>
auto& not_empty(const Pointer& core) {
  if (core == nullptr) throw_empty();
  return *core;
}

/// For all other calls: also in a child of fork, which may not use what its parent made.
template <class Pointer>
auto& usable_here(const Pointer& core) {
  if (!not_empty(core).origin.here()) throw Error(Code::misuse, -1, -1, 0, 0, base::kForked);
  return *core;
}

struct ChannelAccess {
  template <class Handle>
  static Handle make(std::shared_ptr<runtime::ChannelEnd> end) {
    return Handle(std::move(end));
  }
  static Window make_window(std::shared_ptr<runtime::WindowCore> core) { return Window(std::move(core)); }
  static const std::shared_ptr<runtime::WindowCore>& core(const Window& window) { return window.core_; }
  static const std::shared_ptr<runtime::ChannelEnd>& end(const ChannelHandle& channel) { return channel.end_; }
};

struct PlanAccess {
  static Plan make(std::shared_ptr<PlanCore> core) { return Plan(std::move(core)); }
  static const std::shared_ptr<PlanCore>& core(const Plan& plan) { return plan.core_; }
};

}  // namespace sluice::detail
