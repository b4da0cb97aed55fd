// SPDX-License-Identifier: Apache-2.0
// Work that a thread does while it waits.
#pragma once

namespace sluice::base {

/// While this lives, the waits of its thread call `work` between yields, and at least every 0.3 ms while they sleep.
/// The wait may hold locks of the library, so `work` takes none of them.
class [[gnu::visibility("default")]] Meanwhile {
 public:
  using Work = void() noexcept;

  explicit Meanwhile(Work * work) noexcept;
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;
  ~Meanwhile();

  /// Calls the work of this thread. False: it has none.
  static bool run() noexcept;

 private:
  Work* before_;
};

}  // namespace sluice::base
