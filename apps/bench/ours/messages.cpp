// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/ours/ours.hpp"

#include <sluice/unr.hpp>

#include <cstddef>
#include <limits>
#include <memory>
#include <string>

namespace bench {
namespace {

/// Steps of a plan in which both ranks send some messages to the other one, and wait for its. In program order.
class Messages : public Contender {
 public:
  Messages(const Workload& workload, bool packed)
      : workload_(workload), source_(workload, kMessagesOfStep), target_(workload, kMessagesOfStep),
        plan_(workload_.context, packed ? "packed" : "alone",
              {.pack_up_to = packed ? std::numeric_limits<std::size_t>::max() : 0}),
        sent_(plan_.signal("sent")), arrived_(plan_.signal("arrived")) {
    for (std::size_t i = 0; i < kMessagesOfStep; ++i) {
      const std::size_t at = i * workload_.bytes;
      plan_.isend(source_.all().slice(at, workload_.bytes), workload_.peer, 0, sent_);
      plan_.irecv(target_.all().slice(at, workload_.bytes), workload_.peer, 0, arrived_);
    }
    plan_.commit();
  }

  /// The first put, in the words of a channel.
  std::string describe() const {
    const std::string of_plan = plan_.describe();
    const std::size_t channel = of_plan.find('\'', of_plan.find("; "));
    return of_plan.substr(channel, of_plan.find('\n', channel) - channel);
  }

  double run(long count) override {
    return timed_steps(count, [this] { step(); });
  }

 private:
  void step() {
    plan_.start();
    arrived_.wait();
    arrived_.reset();
    sent_.wait();
    sent_.reset();
  }

  const Workload workload_;
  Slots source_;
  Slots target_;
  sluice::unr::Plan plan_;
  sluice::unr::Signal sent_;
  sluice::unr::Signal arrived_;
};

}  // namespace

Ours make_messages(const Workload& workload, bool packed) {
  return described(std::make_unique<Messages>(workload, packed));
}

}  // namespace bench
