// SPDX-License-Identifier: Apache-2.0
// Sums of arrays by slices of memory that several ranks map.
#include "apps/bench/harness/slices.hpp"
#include "apps/bench/ours/ours.hpp"
#include "apps/common/usage_error.hpp"

#include <optional>
#include <string>
#include <vector>

namespace bench {
namespace {

/// The array of a rank: what is added, and behind it the sum. Ranks that share it map the owner's.
class MappedArray {
 public:
  /// All ranks of the context call it. `owner`: of the array that this rank is to reach.
  MappedArray(sluice::Context& context, const std::string& name, sluice::Rank owner, std::size_t bytes)
      : target_(context.target(owner, name)) {
    const sluice::Region memory = target_.mapped();
    if (memory.bytes() == 0)
      throw apps::UsageError("slices needs memory that all ranks map, on one machine: without --backend, or by shm");
    from_ = memory.slice(0, bytes);
    to_ = memory.slice(bytes, bytes);
  }

  const sluice::Slice& from() const { return from_; }
  const sluice::Slice& to() const { return to_; }
  SummedArray numbers() const { return {from_.as<double>(), to_.as<double>()}; }

 private:
  sluice::Target target_;
  sluice::Slice from_;  // they keep the memory mapped
  sluice::Slice to_;
};

/// Between two barriers: what is added is there before, and all sums are there behind.
class SlicedSum : public Contender {
 public:
  double run(long count) override {
    return timed_steps(count, [this] { step(); });
  }
  std::string describe() const { return together_.describe(); }

 protected:
  explicit SlicedSum(const Workload& workload, const std::string& name)
      : context_(workload.context), name_(name + " " + std::to_string(workload.tag)), bytes_(workload.bytes),
        together_(sluice::barrier(context_, name_)) {}

  /// Makes the array of this rank, and numbers to sum.
  void own_array(std::size_t place) {
    memory_ = context_.allocate(2 * bytes_);
    const sluice::Slice from = memory_.slice(0, bytes_);
    const auto numbers = from.as<double>();
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = number_to_sum(place, i);
    window_ = context_.window(name_, memory_.all());
  }
  MappedArray array_of(sluice::Rank owner) { return {context_, name_, owner, bytes_}; }

  /// The first step, whose sums are checked.
  void check(const MappedArray& mine, std::size_t arrays) {
    step();
    expect_sums(mine.to().as<double>(), arrays);
    meet();
  }

  sluice::Context& context_;

 private:
  virtual void sum() = 0;
  void step() {
    meet();
    sum();
    meet();
  }
  void meet() {
    together_.start({});
    together_.wait({});
  }

  const std::string name_;
  const std::size_t bytes_;
  sluice::Memory memory_;
  sluice::Window window_;
  sluice::Collective together_;
};

/// Each rank has an array, and sums its slice of all of them.
class SumOfAll final : public SlicedSum {
 public:
  explicit SumOfAll(const Workload& workload) : SlicedSum(workload, "slices") {
    const auto own = static_cast<std::size_t>(context_.rank());
    const auto size = static_cast<std::size_t>(context_.size());
    own_array(own);
    for (sluice::Rank rank = 0; rank < context_.size(); ++rank) mapped_.push_back(array_of(rank));
    for (const MappedArray& array : mapped_) arrays_.push_back(array.numbers());
    slice_ = slice_of(own, size, arrays_.front().from.size());
    check(mapped_.at(own), size);
  }

 private:
  void sum() override {
    if (slice_.count > 0) sum_slice(arrays_, slice_);
  }

  std::vector<MappedArray> mapped_;
  std::vector<SummedArray> arrays_;
  NumberSlice slice_;
};

/// Two arrays, each shared by half of the ranks: those at one place of both sum a slice by an allreduce. Or the owners
/// sum all of it.
class SumOfShared final : public SlicedSum {
 public:
  SumOfShared(const Workload& workload, bool by_slices) : SlicedSum(workload, by_slices ? "lanes" : "owners") {
    const int half = context_.size() / 2;
    const int second = context_.rank() / half;
    const int place = context_.rank() % half;
    if (place == 0) own_array(static_cast<std::size_t>(second));
    mapped_.emplace(array_of(second * half));
    if (by_slices || place == 0) open_lane(workload, place, by_slices ? half : 1);
    check(*mapped_, 2);
  }

 private:
  void open_lane(const Workload& workload, int place, int places) {
    lane_.emplace(context_.sub({place, context_.size() / 2 + place}));
    const NumberSlice slice =
        slice_of(static_cast<std::size_t>(place), static_cast<std::size_t>(places), workload.bytes / sizeof(double));
    const auto part = [&](const sluice::Slice& all) {
      return all.slice(slice.begin * sizeof(double), slice.count * sizeof(double));
    };
    sum_.emplace(sluice::allreduce(*lane_, "lane " + std::to_string(workload.tag), sluice::Op::sum,
                                   sluice::Number::float64, part(mapped_->from()), part(mapped_->to())));
  }
  void sum() override {
    if (!sum_) return;
    sum_->start({});
    sum_->wait({});
  }

  std::optional<MappedArray> mapped_;
  std::optional<sluice::Context> lane_;
  std::optional<sluice::Collective> sum_;
};

}  // namespace

Ours make_sum_of_slices(const Workload& workload) { return described(std::make_unique<SumOfAll>(workload)); }
Ours make_sum_of_shared_slices(const Workload& workload) {
  return described(std::make_unique<SumOfShared>(workload, true));
}
Ours make_sum_by_owners(const Workload& workload) { return described(std::make_unique<SumOfShared>(workload, false)); }

}  // namespace bench
