// SPDX-License-Identifier: Apache-2.0
// What the functions that make collectives have in common: checks of their arguments, and the choice of algorithms.
#pragma once

#include <sluice/collectives.hpp>
#include <sluice/context.hpp>
#include <sluice/error.hpp>

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms.hpp"
#include "collectives/choice.hpp"
#include "collectives/operation.hpp"
#include "collectives/schedule.hpp"

namespace sluice::collectives {

inline bool overlap(const Slice& one, const Slice& other) noexcept {
  const bool any = one.bytes() > 0 && other.bytes() > 0;
  return any && one.data() < other.data() + other.bytes() && other.data() < one.data() + one.bytes();
}

/// Makes one collective.
class Maker {
 public:
  /// @throws Error{Code::bad_argument} for a name that is too long or empty, and as Chooser
  Maker(Context& context, const char* kind, std::string_view name, const CollectiveOptions& options);

  Schedule schedule;

  void check(bool holds, const std::string& what) const;
  void check_rank(Rank rank, const char* what) const;
  /// The index, in `names`, of the algorithm: `best`, unless the program has named one. `why`: of the best.
  std::size_t choose(std::initializer_list<std::string_view> names, std::size_t best, const std::string& why);
  /// The one that there is.
  void choose(std::string_view name) { (void)choose({name}, 0, "the only one"); }
  /// Adds the levels of the chosen tree to the name of the algorithm, and to what ranks compare.
  void use(const Levels& levels);
  Collective make();
  const Chooser& chooser() const noexcept { return chooser_; }
  bool fixed_order() const noexcept { return fixed_order_; }

 private:
  Context& context_;
  const char* const kind_;
  const std::string name_;
  const std::string wanted_;
  const Progress progress_;
  const bool fixed_order_;
  const Chooser chooser_;
};

}  // namespace sluice::collectives
