// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/rivals/protocol_floor.hpp"

#include "apps/bench/harness/buffers.hpp"

namespace bench {
namespace {

/// A message is released before the answer is sent, so that its credit can travel with the answer.
class ProtocolPingPong : public Contender {
 public:
  enum class Lands : std::uint8_t { in_slot, in_user_memory };

  ProtocolPingPong(const Workload& workload, Lands lands) : workload_(workload), protocol_(workload) {
    if (lands == Lands::in_user_memory) target_.emplace(workload.bytes + 1);
  }

  double run(long count) override {
    return timed_ping_pong(
        workload_, count, [this] { send(); }, [this] { receive(); });
  }

 private:
  void send() {
    compute(workload_, protocol_.source());
    protocol_.put(workload_.bytes);
  }
  void receive() {
    const std::byte* payload = protocol_.wait();
    if (target_) payload = static_cast<const std::byte*>(std::memcpy(target_->data(), payload, workload_.bytes));
    touch(workload_, payload);
    protocol_.release();
  }

  const Workload workload_;
  Protocol protocol_;
  std::optional<Pages> target_;
};

/// Windows of messages, each of which the receiver releases, and an empty answer.
class ProtocolFlood : public Contender {
 public:
  explicit ProtocolFlood(const Workload& workload) : workload_(workload), protocol_(workload) {}

  double run(long count) override {
    return timed_steps(count, [this] {
      if (workload_.first) {
        for (int i = 0; i < workload_.window; ++i) protocol_.put(workload_.bytes);
        protocol_.wait();
        protocol_.release();
      } else {
        for (int i = 0; i < workload_.window; ++i) {
          touch(workload_, protocol_.wait());
          protocol_.release();
        }
        protocol_.put(0);
      }
    });
  }

 private:
  const Workload workload_;
  Protocol protocol_;
};

}  // namespace

std::unique_ptr<Contender> make_protocol_ping_pong(const Workload& workload) {
  return std::make_unique<ProtocolPingPong>(workload, ProtocolPingPong::Lands::in_slot);
}
std::unique_ptr<Contender> make_two_copies(const Workload& workload) {
  return std::make_unique<ProtocolPingPong>(workload, ProtocolPingPong::Lands::in_user_memory);
}
std::unique_ptr<Contender> make_protocol_flood(const Workload& workload) {
  return std::make_unique<ProtocolFlood>(workload);
}

}  // namespace bench
