// SPDX-License-Identifier: Apache-2.0
// The collectives that combine numbers.
#include <sluice/collectives.hpp>

#include <string>
#include <vector>

#include "collectives/make.hpp"
#include "collectives/numbers.hpp"

namespace sluice {
namespace collectives {
namespace {

/// Up to so many bytes each rank combines all numbers, since rounds cost more than bytes.
constexpr std::size_t kFew = 16384;

constexpr std::size_t size_of(Number number) noexcept {
  switch (number) {
    case Number::float16:
    case Number::bfloat16: return 2;
    case Number::int32:
    case Number::uint32:
    case Number::float32: return 4;
    default: return 8;
  }
}

/// Numbers that are combined. Those of 16 bits are float32 in between, in memory of the collective.
class Reduction {
 public:
  Reduction(Maker& maker, Op op, Number number, const Slice& from)
      : maker_(maker), schedule_(maker.schedule), size_(size_of(number)), is_narrow_(is_narrow(number)) {
    maker.check(combines(op, number), "this operation is not for such numbers");
    maker.check(from.bytes() % size_ == 0,
                std::to_string(from.bytes()) + " bytes are no numbers of " + std::to_string(size_));
    schedule_.op = op;
    schedule_.number = number;
    constexpr const char* kOps[] = {"sum", "min", "max", "replace", "and", "or", "xor", "product"};
    constexpr const char* kNumbers[] = {"int32",   "uint32",  "int64",   "uint64",
                                        "float32", "float64", "float16", "bfloat16"};
    schedule_.contents += std::string(", ") + kOps[static_cast<int>(op)] + " of " +
                          std::to_string(from.bytes() / size_) + " " + kNumbers[static_cast<int>(number)];
    bytes_ = wide(from.bytes());
    from_ = schedule_.user(from);
    if (!is_narrow_) return;
    const Place widened = schedule_.scratch(bytes_);
    schedule_.widen(widened, from_, bytes_);
    from_ = widened;
  }

  Place from() const noexcept { return from_; }
  std::size_t bytes() const noexcept { return bytes_; }
  /// So many bytes of the program's numbers, as they are combined.
  std::size_t wide(std::size_t bytes) const noexcept { return is_narrow_ ? 2 * bytes : bytes; }

  /// Where the result comes, until `end` puts it into `to`.
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

  /// As equal as whole numbers allow.
  std::vector<Share> shares() const {
    const auto ranks = static_cast<std::size_t>(schedule_.size);
    const std::size_t wide_size = wide(size_);
    const std::size_t count = bytes_ / wide_size;
    std::vector<Share> shares(ranks);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < ranks; ++i) {
      const std::size_t here = count / ranks + (i < count % ranks ? 1 : 0);
      shares[i] = {begin * wide_size, here * wide_size};
      begin += here;
    }
    return shares;
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
  /// False: by shares.
  bool by_rounds(std::string_view rounds) {
    const std::string why = std::to_string(bytes_) + " bytes, " + std::to_string(schedule_.size) + " ranks";
    return maker_.choose({rounds, "shares"}, bytes_ <= kFew ? 0 : 1, why) == 0;
  }

 private:
  Maker& maker_;
  Schedule& schedule_;
  std::size_t size_;
  bool is_narrow_;
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

Collective reduce(Context& context, std::string_view name, Op op, Number number, Slice from, Slice to, Rank root,
                  CollectiveOptions options) {
  Maker maker(context, "reduce", name, options);
  maker.check_rank(root, "root");
  const bool at_root = context.rank() == root;
  maker.check(!at_root || from.bytes() == to.bytes(), "the result has another size");
  Reduction numbers(maker, op, number, from);
  const bool by_rounds = numbers.by_rounds("binomial tree");
  maker.schedule.contents += " to rank " + std::to_string(root);
  const Place result = numbers.result(from, at_root ? to : Slice());
  if (by_rounds)
    collectives::binomial_reduce(maker.schedule, numbers.from(), result, numbers.bytes(), root);
  else
    collectives::shared_reduce(maker.schedule, numbers.from(), result, numbers.shares(), root);
  return numbers.end();
}

Collective allreduce(Context& context, std::string_view name, Op op, Number number, Slice from, Slice to,
                     CollectiveOptions options) {
  Maker maker(context, "allreduce", name, options);
  maker.check(from.bytes() == to.bytes(), "the result has another size");
  Reduction numbers(maker, op, number, from);
  const bool by_rounds = numbers.by_rounds("recursive doubling");
  const Place result = numbers.result(from, to);
  if (by_rounds)
    collectives::doubling_allreduce(maker.schedule, numbers.from(), result, numbers.bytes());
  else
    collectives::shared_allreduce(maker.schedule, numbers.from(), result, numbers.shares());
  return numbers.end();
}

Collective reduce_scatter(Context& context, std::string_view name, Op op, Number number, Slice from, Slice to,
                          std::span<const std::size_t> bytes, CollectiveOptions options) {
  Maker maker(context, "reduce_scatter", name, options);
  maker.choose("shares");
  Reduction numbers(maker, op, number, from);
  const std::vector<Share> shares = numbers.shares(bytes);
  const std::size_t own = shares[static_cast<std::size_t>(context.rank())].bytes;
  maker.check(own == numbers.wide(to.bytes()), "the part of this rank has another size");
  const Place result = numbers.result(from, to);
  collectives::combine_shares(maker.schedule, numbers.from(), result, shares);
  return numbers.end();
}

Collective scan(Context& context, std::string_view name, Op op, Number number, Slice from, Slice to,
                CollectiveOptions options) {
  Maker maker(context, "scan", name, options);
  maker.choose("recursive doubling");
  maker.check(from.bytes() == to.bytes(), "the result has another size");
  Reduction numbers(maker, op, number, from);
  const Place result = numbers.result(from, to);
  collectives::doubling_scan(maker.schedule, numbers.from(), result, numbers.bytes());
  return numbers.end();
}

}  // namespace sluice
