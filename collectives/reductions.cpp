// SPDX-License-Identifier: Apache-2.0
// The collectives that combine numbers.
#include <sluice/collectives.hpp>

#include <string>
#include <utility>
#include <vector>

#include "collectives/make.hpp"
#include "collectives/numbers.hpp"

namespace sluice {
namespace collectives {
namespace {

constexpr const char* kInOrder = "in the order of ranks";

/// Numbers that are combined. Those of 16 bits are float32 in between, in memory of the collective.
class Reduction {
 public:
  Reduction(Maker& maker, Op op, Number number, const Slice& from)
      : Reduction(maker, size_of(number), is_narrow(number), maker.fixed_order()) {
    maker.check(combines(op, number), "this operation is not for such numbers");
    schedule_.op = op;
    schedule_.number = number;
    constexpr const char* kOps[] = {"sum", "min", "max", "replace", "and", "or", "xor", "product"};
    constexpr const char* kNumbers[] = {"int32",   "uint32",  "int64",   "uint64",
                                        "float32", "float64", "float16", "bfloat16"};
    take(from, kOps[static_cast<int>(op)], kNumbers[static_cast<int>(number)]);
  }
  Reduction(Maker& maker, Combiner combiner, const Slice& from)
      : Reduction(maker, combiner.bytes, false, maker.fixed_order() || !combiner.commutative) {
    maker.check(combiner.combine != nullptr, "the function is empty");
    maker.check(combiner.bytes > 0, "an element has no bytes");
    take(from, combiner.commutative ? "a commutative function" : "a function",
         "elements of " + std::to_string(combiner.bytes) + " bytes");
    schedule_.function = std::move(combiner);
  }

  Place from() const noexcept { return from_; }
  std::size_t bytes() const noexcept { return bytes_; }
  Time reading_by_shares(const Model& model) const { return model.reading_sums_by_shares(schedule_.size, bytes_); }
  std::size_t wide_size() const noexcept { return wide(size_); }
  /// So many bytes of the program's numbers, as they are combined.
  std::size_t wide(std::size_t bytes) const noexcept { return is_narrow_ ? 2 * bytes : bytes; }

  /// The place of the result before `end` copies it into `to`.
  Place result(const Slice& from, const Slice& to) {
    const bool same = from.data() == to.data() && from.bytes() == to.bytes();
    maker_.check(same || !overlap(from, to), "what it reads and what it writes overlap");
    to_ = schedule_.user(to);
    to_bytes_ = wide(to.bytes());
    return result_ = is_narrow_ ? schedule_.scratch(to_bytes_) : to_;
  }
  Collective end() {
    if (is_narrow_) schedule_.narrow(to_, result_, to_bytes_);
    return maker_.make();
  }

  std::vector<Share> shares() const {
    return even_shares(bytes_, static_cast<std::size_t>(schedule_.size), wide(size_));
  }
  std::vector<Share> shares(std::span<const std::size_t> bytes) const {
    const auto ranks = static_cast<std::size_t>(schedule_.size);
    std::vector<Share> shares(ranks);
    maker_.check(bytes.empty() ? bytes_ % (ranks * wide(size_)) == 0 : bytes.size() == ranks,
                 "the parts of the ranks do not fit to " + std::to_string(ranks) + " ranks");
    std::size_t begin = 0;
    for (std::size_t i = 0; i < ranks; ++i) {
      const std::size_t here = bytes.empty() ? bytes_ / ranks : wide(bytes[i]);
      maker_.check(here % wide(size_) == 0, "a part is not of whole numbers");
      shares[i] = {begin, here};
      begin += here;
    }
    maker_.check(begin == bytes_, "the parts of the ranks are not all numbers");
    return shares;
  }
  /// Only by shares: only they keep the order of the ranks.
  bool in_order() const noexcept { return in_order_; }
  /// The size of the operation, for people.
  std::string size_text() const {
    return std::to_string(bytes_) + " bytes, " + std::to_string(schedule_.size) + " ranks";
  }

 private:
  Reduction(Maker& maker, std::size_t size, bool narrow, bool in_order)
      : maker_(maker), schedule_(maker.schedule), size_(size), is_narrow_(narrow), in_order_(in_order) {}

  void take(const Slice& from, const std::string& operation, const std::string& numbers) {
    maker_.check(from.bytes() % size_ == 0,
                 std::to_string(from.bytes()) + " bytes are no numbers of " + std::to_string(size_));
    schedule_.contents += ", " + operation + " of " + std::to_string(from.bytes() / size_) + " " + numbers;
    bytes_ = wide(from.bytes());
    from_ = schedule_.user(from);
    if (!is_narrow_) return;
    const Place widened = schedule_.scratch(bytes_);
    schedule_.widen(widened, from_, bytes_);
    from_ = widened;
  }

  Maker& maker_;
  Schedule& schedule_;
  std::size_t size_;
  bool is_narrow_;
  bool in_order_;
  std::size_t bytes_ = 0;
  Place from_;
  Place to_;
  Place result_;
  std::size_t to_bytes_ = 0;
};

}  // namespace
}  // namespace collectives

using collectives::Maker;
using collectives::Place;
using collectives::Reduction;
using collectives::Share;

namespace {

// `what`: an operation and the type of numbers, or a function.

template <class... What>
Collective make_reduce(Context& context, std::string_view name, const Slice& from, const Slice& to, Rank root,
                       const CollectiveOptions& options, What&&... what) {
  Maker maker(context, "reduce", name, options);
  maker.check_rank(root, "root");
  const bool at_root = context.rank() == root;
  maker.check(!at_root || from.bytes() == to.bytes(), "the result has another size");
  Reduction numbers(maker, std::forward<What>(what)..., from);
  const collectives::Chooser& chooser = maker.chooser();
  const collectives::Model model = chooser.between();
  const collectives::Levels levels = model.levels_to_reduce(context.size(), numbers.bytes());
  const collectives::Choice choice = chooser.choose(
      numbers.size_text(),
      {{"binomial tree", model.binomial_reduce(context.size(), numbers.bytes())},
       {"shares", model.shared_reduce(context.size(), numbers.bytes()) + numbers.reading_by_shares(model)},
       {"level tree", model.level_reduce(numbers.bytes(), levels)}});
  const std::size_t chosen = numbers.in_order()
                                 ? maker.choose({"shares"}, 0, collectives::kInOrder) + 1
                                 : maker.choose({"binomial tree", "shares", "level tree"}, choice.best, choice.why);
  maker.schedule.contents += " to rank " + std::to_string(root);
  const Place result = numbers.result(from, at_root ? to : Slice());
  if (chosen == 0) {
    collectives::binomial_reduce(maker.schedule, numbers.from(), result, numbers.bytes(), root);
  } else if (chosen == 1) {
    collectives::shared_reduce(maker.schedule, numbers.from(), result, numbers.shares(), root);
  } else {
    maker.use(levels);
    collectives::level_reduce(maker.schedule, numbers.from(), result, numbers.bytes(), root, levels);
  }
  return numbers.end();
}

template <class... What>
Collective make_allreduce(Context& context, std::string_view name, const Slice& from, const Slice& to,
                          const CollectiveOptions& options, What&&... what) {
  Maker maker(context, "allreduce", name, options);
  maker.check(from.bytes() == to.bytes(), "the result has another size");
  Reduction numbers(maker, std::forward<What>(what)..., from);
  const collectives::Chooser& chooser = maker.chooser();
  const collectives::Model model = chooser.between();
  const collectives::Sets& nodes = chooser.nodes();
  const bool has_lanes = nodes.count() > 1 && nodes.count() < context.size();
  const collectives::Choice choice = chooser.choose(
      numbers.size_text(),
      {{"recursive doubling", model.doubling_allreduce(context.size(), numbers.bytes())},
       {"shares", model.shared_allreduce(context.size(), numbers.bytes()) + numbers.reading_by_shares(model)},
       {"lanes", lanes_allreduce(chooser.within(), model, nodes.count(), collectives::lanes_of(nodes), numbers.bytes()),
        has_lanes}});
  const std::size_t way = numbers.in_order()
                              ? maker.choose({"shares"}, 0, collectives::kInOrder) + 1
                              : maker.choose({"recursive doubling", "shares", "lanes"}, choice.best, choice.why);
  const Place result = numbers.result(from, to);
  if (way == 0) {
    collectives::doubling_allreduce(maker.schedule, numbers.from(), result, numbers.bytes());
  } else if (way == 1) {
    collectives::shared_allreduce(maker.schedule, numbers.from(), result, numbers.shares());
  } else {
    maker.schedule.contents += nodes.text();
    collectives::lanes_allreduce(maker.schedule, numbers.from(), result, numbers.bytes(), numbers.wide_size(), nodes);
  }
  return numbers.end();
}

template <class... What>
Collective make_reduce_scatter(Context& context, std::string_view name, const Slice& from, const Slice& to,
                               std::span<const std::size_t> bytes, const CollectiveOptions& options, What&&... what) {
  Maker maker(context, "reduce_scatter", name, options);
  maker.choose("shares");
  Reduction numbers(maker, std::forward<What>(what)..., from);
  const std::vector<Share> shares = numbers.shares(bytes);
  const std::size_t own = shares[static_cast<std::size_t>(context.rank())].bytes;
  maker.check(own == numbers.wide(to.bytes()), "the part of this rank has another size");
  const Place result = numbers.result(from, to);
  collectives::combine_shares(maker.schedule, numbers.from(), result, shares);
  return numbers.end();
}

/// Rounds keep the order of the ranks, but how numbers are grouped depends on the number of ranks.
template <class... What>
Collective make_scan(Context& context, std::string_view name, const Slice& from, const Slice& to,
                     const CollectiveOptions& options, What&&... what) {
  Maker maker(context, "scan", name, options);
  const bool chain = options.fixed_order ? maker.choose({"chain"}, 0, collectives::kInOrder) == 0
                                         : maker.choose({"recursive doubling", "chain"}, 0, "fewest rounds") == 1;
  maker.check(from.bytes() == to.bytes(), "the result has another size");
  Reduction numbers(maker, std::forward<What>(what)..., from);
  const Place result = numbers.result(from, to);
  if (chain)
    collectives::chain_scan(maker.schedule, numbers.from(), result, numbers.bytes());
  else
    collectives::doubling_scan(maker.schedule, numbers.from(), result, numbers.bytes());
  return numbers.end();
}

}  // namespace

Collective reduce(Context& context, std::string_view name, Op op, Number number, const Slice& from, const Slice& to,
                  Rank root, CollectiveOptions options) {
  return make_reduce(context, name, from, to, root, options, op, number);
}

Collective reduce(Context& context, std::string_view name, Combiner combiner, const Slice& from, const Slice& to,
                  Rank root, CollectiveOptions options) {
  return make_reduce(context, name, from, to, root, options, std::move(combiner));
}

Collective allreduce(Context& context, std::string_view name, Op op, Number number, const Slice& from, const Slice& to,
                     CollectiveOptions options) {
  return make_allreduce(context, name, from, to, options, op, number);
}

Collective allreduce(Context& context, std::string_view name, Combiner combiner, const Slice& from, const Slice& to,
                     CollectiveOptions options) {
  return make_allreduce(context, name, from, to, options, std::move(combiner));
}

Collective reduce_scatter(Context& context, std::string_view name, Op op, Number number, const Slice& from,
                          const Slice& to, std::span<const std::size_t> bytes, CollectiveOptions options) {
  return make_reduce_scatter(context, name, from, to, bytes, options, op, number);
}

Collective reduce_scatter(Context& context, std::string_view name, Combiner combiner, const Slice& from,
                          const Slice& to, std::span<const std::size_t> bytes, CollectiveOptions options) {
  return make_reduce_scatter(context, name, from, to, bytes, options, std::move(combiner));
}

Collective scan(Context& context, std::string_view name, Op op, Number number, const Slice& from, const Slice& to,
                CollectiveOptions options) {
  return make_scan(context, name, from, to, options, op, number);
}

Collective scan(Context& context, std::string_view name, Combiner combiner, const Slice& from, const Slice& to,
                CollectiveOptions options) {
  return make_scan(context, name, from, to, options, std::move(combiner));
}

}  // namespace sluice
