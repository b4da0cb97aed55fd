// SPDX-License-Identifier: Apache-2.0
// A NIC's counter that kernels ring, on the seam: where the public interface leads to a bell, no test can hold up the
// kernel that rings it.
#include "backends/ofi/triggered.hpp"
#include "tests/conformance/seam.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

/// A put from this rank to itself, of one slot, that the NIC has armed and kernels ring for.
class RungByKernels {
 public:
  RungByKernels(const Context& context, const Case& one)
      : source_(one, one.bytes), target_(one, one.bytes), seam_(context, one),
        landing_(seam_.link().land({target_.extent(), one.bytes, 1}, {&signal_, 1})),
        put_(seam_.link().prepare({source_.extent(), one.bytes, 1}, watch_, std::move(landing_.key))) {
    fill(source_.bytes(), {0, 0, 1});
    if (put_->fired_by != backends::Fired::by_nic) throw std::runtime_error("not armed: " + put_->describe());
    seam_.engine().watch(rung());
    seam_.engine().let_kernels_ring(rung(), epochs_);
    seam_.engine().look();
    seam_.engine().forget(rung());  // that one epoch is enough
    seam_.engine().wake();          // it may sleep since before there was a landing to look at
  }
  ~RungByKernels() { base::give_back(landed_); }

  /// Does the first store of a kernel. The engine, which rings for kernels where a page is emulated, adds one more once
  /// it sees the second: nothing is armed for that.
  void store_to_counter() { static_cast<backends::ofi::TickBell&>(rung().bell()).add(1); }
  void store_word() { kernel::store_release(*word_, 1); }

  backends::Put& put() { return *put_; }
  bool landed() const { return base::reached(landed_.word, 1); }
  std::string difference() const { return test::difference(target_.bytes(), {0, 0, 1}); }
  /// Once all of the engine's turn has been done.
  std::uint64_t over() {
    seam_.engine().look();
    return watch_.done.value.load();
  }
  /// The end is closed, and its peer's.
  bool closed() { return put_->settled() && (landing_.landing->close(), put_->disarmed(true)); }

 private:
  backends::RungPut& rung() { return dynamic_cast<backends::RungPut&>(*put_); }

  SeamMemory source_;
  SeamMemory target_;
  base::Progress& landed_ = base::take_progress();
  backends::Signal signal_{&landed_.word, &landed_.parking, {}};
  SeamWatch watch_;
  kernel::Count epochs_{};
  Seam seam_;
  backends::Landed landing_;
  std::unique_ptr<backends::Put> put_;
  std::uint64_t* word_ = reinterpret_cast<std::uint64_t*>(&rung().bell().word.value);
};

class Bells : public testing::TestWithParam<Case> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Bells);  // where the filter names no such network

/// The word of a destroyed bell may belong to another object.
TEST_P(Bells, that_are_rung_in_two_stores_outlive_the_second) {
  Peers peers = GetParam().peers();
  peers.ranks = 1;
  run_peers(peers, [](Context& context) {
    RungByKernels one(context, GetParam());
    one.store_to_counter();
    expect_within(10s, [&] { return one.landed() && one.put().disarmed(false); });  // the NIC has nothing left to do
    EXPECT_EQ(one.difference(), "");
    EXPECT_EQ(one.over(), 0U);
    one.store_word();
    expect_within(10s, [&] { return one.over() == 1; });
    expect_within(10s, [&] { return one.closed(); });
  });
}

/// Cases in which a NIC, or its emulation, counts.
std::vector<Case> counted_cases() {
  std::vector<Case> cases = with_sizes(stream_cases(), {4096});
  std::erase_if(cases, [](const Case& one) { return !one.ground.network || !one.ground.arms || one.host; });
  return cases;
}

INSTANTIATE_IN_ITS_RANKS(Quick, Bells, testing::ValuesIn(counted_cases()), CaseName());

}  // namespace
