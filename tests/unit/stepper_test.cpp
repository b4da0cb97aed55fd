// SPDX-License-Identifier: Apache-2.0
// Which phase of a step has the time that an exchange takes.
#include "apps/common/stepper.hpp"

#include "apps/heat/model.hpp"
#include "tests/unit/serial.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace apps {
namespace {

constexpr int kSteps = 4;
constexpr auto kPause = std::chrono::milliseconds(5);
constexpr double kPauses = 1e-3 * kSteps * static_cast<double>(kPause.count());  // of all steps, in seconds

enum class Verb { acquire, put, wait, release };

// Moves nothing, and takes its time in one of its parts.
class SlowExchange : public Exchange {
 public:
  SlowExchange(Verb slow, const sluice::kokkos::Queue<Kokkos::Serial>& queue) : slow_(slow), queue_(queue) {}

  int acquire() override {
    pause(Verb::acquire);
    return 0;
  }
  void put() override { pause(Verb::put); }
  void wait() override { pause(Verb::wait); }
  void release() override { pause(Verb::release); }
  std::string describe() const override { return "slow"; }

 private:
  void pause(Verb verb) {
    if (verb == slow_) queue_.run([] { std::this_thread::sleep_for(kPause); });
  }

  Verb slow_;
  sluice::kokkos::Queue<Kokkos::Serial> queue_;
};

struct Times {
  PhaseSeconds phases{};
  double sum = 0;
  double all = 0;  // from before the first step until the last one has run
};

Times times_of(Verb slow, StreamKind stream) {
  Times times;
  const int code = sluice::run_threads(1, [&](sluice::Context& context) {
    const Kokkos::Serial space = serial();
    const Decomposition decomposition({.nx = 8, .ny = 8, .periodic_x = true, .periodic_y = true}, 1);
    PhaseTimer timer;
    Stepper<heat::Model<2>, Kokkos::Serial> stepper(context, space, {0.2}, decomposition, 1.0);
    const AppQueue<Kokkos::Serial> queue(stream, space);
    SlowExchange exchange(slow, queue.get());
    stepper.time_phases(&timer);
    const auto begin = Clock::now();
    for (int step = 0; step < kSteps; ++step) stepper.step(exchange, queue.get());
    context.synchronize(queue.get().stream());
    times.all = seconds_since(begin);
    times.phases = timer.seconds();
  });
  EXPECT_EQ(code, 0);
  for (const double seconds : times.phases) times.sum += seconds;
  return times;
}

TEST(Stepper, phases_have_the_time_that_an_exchange_takes) {
  for (const auto stream : {StreamKind::inline_, StreamKind::host})
    for (const auto& [verb, phase] : {std::pair{Verb::acquire, Phase::pack}, std::pair{Verb::put, Phase::put},
                                      std::pair{Verb::wait, Phase::wait}, std::pair{Verb::release, Phase::unpack}}) {
      const Times times = times_of(verb, stream);
      EXPECT_GE(times.phases[static_cast<std::size_t>(phase)], kPauses)
          << kPhaseNames[static_cast<std::size_t>(phase)] << " " << name(stream);
      EXPECT_LE(times.sum, times.all);
    }
}

}  // namespace
}  // namespace apps
