// SPDX-License-Identifier: Apache-2.0
#include "apps/common/host_collectives.hpp"

#include <sluice/collectives.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace apps {

double HostCollectives::sum(double value) {
  sum(std::span(&value, 1));
  return value;
}

double HostCollectives::max(double value) {
  max(std::span(&value, 1));
  return value;
}

namespace {

void run(sluice::Collective& collective) {
  collective.start({});
  collective.wait({});
}

// Collectives are made at their first use and kept, except gathers, whose sizes differ.
class SluiceCollectives : public HostCollectives {
 public:
  using HostCollectives::max;
  using HostCollectives::sum;

  explicit SluiceCollectives(sluice::Context& context)
      : context_(context), barrier_(sluice::barrier(context_, "host barrier")) {}

  void sum(std::span<double> values) override { reduce(sluice::Op::sum, "host sum of ", values); }
  void max(std::span<double> values) override { reduce(sluice::Op::max, "host max of ", values); }
  void barrier() override { run(barrier_); }

  void gather(std::span<const std::byte> mine, std::span<const std::size_t> bytes_of, const Sink& sink) override {
    const bool first = context_.rank() == 0;
    const std::size_t bytes = first ? std::accumulate(bytes_of.begin(), bytes_of.end(), std::size_t{0}) : mine.size();
    const sluice::Memory memory = bytes > 0 ? context_.allocate(bytes) : sluice::Memory();
    const sluice::Slice part = bytes > 0 ? memory.slice(0, mine.size()) : sluice::Slice();  // in place at rank 0
    std::ranges::copy(mine, part.data());
    sluice::Collective collective = sluice::gather(context_, "host gather", part, memory.all(), 0, bytes_of);
    run(collective);
    std::size_t offset = 0;
    for (std::size_t rank = 0; first && rank < bytes_of.size(); offset += bytes_of[rank++])
      sink(static_cast<int>(rank), {memory.data() + offset, bytes_of[rank]});
  }

 private:
  struct Reduction {
    sluice::Slice numbers;
    sluice::Collective collective;
  };

  void reduce(sluice::Op op, const char* name, std::span<double> values) {
    if (values.empty()) return;
    Reduction& reduction = reductions_[{op, values.size()}];
    if (reduction.numbers.bytes() == 0) {
      reduction.numbers = context_.allocate(values.size_bytes()).all();
      reduction.collective = sluice::allreduce(context_, name + std::to_string(values.size()), op,
                                               sluice::Number::float64, reduction.numbers, reduction.numbers);
    }
    const auto numbers = reduction.numbers.as<double>();
    std::ranges::copy(values, numbers.begin());
    run(reduction.collective);
    std::ranges::copy(numbers, values.begin());
  }

  sluice::Context context_;
  sluice::Collective barrier_;
  std::map<std::pair<sluice::Op, std::size_t>, Reduction> reductions_;
};

}  // namespace

std::unique_ptr<HostCollectives> make_sluice_collectives(sluice::Context& context) {
  return std::make_unique<SluiceCollectives>(context);
}

}  // namespace apps
