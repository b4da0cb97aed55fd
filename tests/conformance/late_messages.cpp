// SPDX-License-Identifier: Apache-2.0
// The backend `late_messages`: that of MPI's messages, over a stand-in for MPI whose messages and bodies are late.
// MPI's own messages within a process are there when they are sent, so that they hide what is done too early.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <utility>

#include "backends/mpi/transport.hpp"
#include "base/words.hpp"

namespace {

using namespace sluice;
using backends::mpi::Address;
using backends::mpi::Messages;
using Time = base::Clock::time_point;

/// A body under way: its sender's memory is read when it has a place and is due. Null: abandoned.
struct Body {
  std::span<const std::byte> from;
  std::byte* to = nullptr;
  Time due = Time::max();
  bool moved = false;
};

struct Head {
  std::vector<std::byte> bytes;
  Time due;
};

/// All messages under way between the stations, each of which is a rank of this MPI.
struct LateNetwork {
  std::mutex mutex;
  std::mt19937 random{20261128};
  std::map<std::pair<int, int>, std::deque<Head>> heads;            // by receiver and sender
  std::map<std::pair<int, int>, std::deque<std::uint64_t>> bodies;  // that are not yet received
  std::map<std::uint64_t, Body> under_way;                          // by number
  std::uint64_t last = 0;
  int stations = 0;

  Time soon(int most_us) {
    return base::Clock::now() + std::chrono::microseconds(random() % static_cast<unsigned>(most_us));
  }
};

LateNetwork& late_network() {
  static LateNetwork& one = *new LateNetwork;  // ranks may use it when the process exits
  return one;
}

constexpr std::uint64_t kSends = 1;  // of an operation: with the number of the body times 2

class LateMessages final : public Messages {
 public:
  LateMessages() : Messages({{}, next_station(), 0}) {}

  void send(const Address& to, std::span<const std::byte> head, Operation&, std::span<const std::byte> body,
            Operation& of_body) override {
    constexpr int kHeadUs = 200;
    LateNetwork& net = late_network();
    const std::lock_guard lock(net.mutex);
    const std::pair way(to.rank, address().rank);
    auto& queue = net.heads[way];
    const Time due = net.soon(kHeadUs);
    queue.push_back({{head.begin(), head.end()}, queue.empty() ? due : std::max(due, queue.back().due)});
    if (body.empty()) return;
    net.under_way[++net.last] = {body};
    net.bodies[way].push_back(net.last);
    of_body.push_back(2 * net.last + kSends);
  }

  Arrived next() override {
    LateNetwork& net = late_network();
    const std::lock_guard lock(net.mutex);
    const auto now = base::Clock::now();
    for (auto at = net.heads.lower_bound({address().rank, 0}); at != net.heads.end(); ++at) {
      auto& [way, queue] = *at;
      if (way.first != address().rank) break;
      if (queue.empty() || now < queue.front().due) continue;
      arrived_ = std::move(queue.front().bytes);
      queue.pop_front();
      return {arrived_, way.second};
    }
    return {};
  }

  void receive(int from, std::span<std::byte> body, Operation& operation) override {
    constexpr int kBodyUs = 500;
    LateNetwork& net = late_network();
    const std::lock_guard lock(net.mutex);
    auto& queue = net.bodies.at({address().rank, from});
    const std::uint64_t number = queue.front();
    queue.pop_front();
    Body& one = net.under_way.at(number);
    if (one.from.size() != body.size()) std::abort();
    one.to = body.data();
    one.due = net.soon(kBodyUs);
    operation.push_back(2 * number);
  }

  /// The receiver moves the bytes, in this call.
  bool ended(Operation& operation) override {
    if (operation.empty()) return true;
    LateNetwork& net = late_network();
    const std::lock_guard lock(net.mutex);
    const std::uint64_t number = operation.back() / 2;
    Body& one = net.under_way.at(number);
    const bool sends = operation.back() % 2 == kSends;
    if (!sends && !one.moved && base::Clock::now() >= one.due && !one.from.empty()) {
      std::memcpy(one.to, one.from.data(), one.from.size());
      one.moved = true;
    }
    if (!one.moved) return false;
    operation.clear();
    return true;
  }

  void abandon(Operation& operation, bool) noexcept override {
    LateNetwork& net = late_network();
    const std::lock_guard lock(net.mutex);
    for (const std::uint64_t word : std::exchange(operation, {})) net.under_way.at(word / 2).from = {};
  }

 private:
  static int next_station() {
    const std::lock_guard lock(late_network().mutex);
    return late_network().stations++;
  }

  std::vector<std::byte> arrived_;
};

[[maybe_unused]] const bool g_registered = [] {
  using namespace backends;
  register_backend({"late_messages", Reach::named, 0, {}, [](const Settings& settings) {
                      return mpi::open_over(std::make_unique<LateMessages>(), settings);
                    }});
  return true;
}();

}  // namespace
