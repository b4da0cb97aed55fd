// SPDX-License-Identifier: Apache-2.0
// Which algorithm: the one that takes the least time by the model. All ranks have the same parameters, and so choose
// alike; the parameters are part of what they agree on when their channels connect.
#pragma once

#include <sluice/context.hpp>

#include <initializer_list>
#include <string>
#include <string_view>

#include "collectives/model.hpp"
#include "collectives/topology.hpp"

namespace sluice::collectives {

struct Candidate {
  std::string_view name;
  Time time;
  bool possible = true;
};

struct Choice {
  std::size_t best = 0;
  std::string why;  ///< with what was predicted for each
};

/// The model for the messages of a context: of a network between nodes, and within one if the backends in use map no
/// memory; else of mapped memory.
class Chooser {
 public:
  /// @throws Error{Code::bad_argument} for a file of parameters that cannot be read
  explicit Chooser(const Context& context);

  const Sets& nodes() const noexcept { return nodes_; }
  Model within() const noexcept { return Model(maps_ ? parameters_.mapped : parameters_.network); }
  Model between() const noexcept { return nodes_.count() > 1 ? Model(parameters_.network) : within(); }
  /// `of` describes the operation, for people. The first candidate that takes at most 10 % longer than the fastest.
  Choice choose(std::string of, std::initializer_list<Candidate> candidates) const;
  /// A text that is equal at ranks that choose alike: empty for the parameters that are built in.
  std::string fingerprint() const;

 private:
  const Parameters& parameters_;
  const Sets nodes_;
  const bool maps_;
};

}  // namespace sluice::collectives
