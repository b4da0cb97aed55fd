// SPDX-License-Identifier: Apache-2.0
// The failure of one end of a channel. The first one stays. It poisons the words that the end waits for.
#pragma once

#include <sluice/error.hpp>

#include <mutex>
#include <optional>
#include <vector>

#include "backends/transport.hpp"

namespace sluice::runtime {

/// Any thread may call all of it.
class Failure {
 public:
  /// Waits for `word` end when the end fails: it is poisoned then, or now if the end has failed already.
  void poisons(const backends::Signal& word);
  /// False: the end has failed before.
  bool record(const Error& error) noexcept;
  /// Poisons every word that is not poisoned: repeated, since a late signal may overwrite the poison.
  void poison() const noexcept;
  std::optional<Error> get() const;
  /// @throws the recorded failure, of which there is one
  [[noreturn, gnu::cold]] void raise() const;

 private:
  static void poison(const backends::Signal& word) noexcept;

  mutable std::mutex mutex_;
  std::optional<Error> first_;
  std::vector<backends::Signal> words_;
};

}  // namespace sluice::runtime
