// SPDX-License-Identifier: Apache-2.0
// Atomics on windows that some peer cannot map: threads of the owner carry all of them out, one at a time, so that
// there is one agent for each word. They also raise counters, for peers that cannot map them. A target sends its
// requests over one channel, and gets the replies over another. Both are opened by the first atomic of the target, and
// the agent's thread begins with the first target that has them. A request over a network arrives in a turn of the
// engine, and the thread that took the turn answers it; the agent's own thread takes turns only while no other thread
// waits. Requests that peers store into memory which both map are for the agent's thread.
#pragma once

#include <sluice/channel.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/access.hpp"
#include "base/limit.hpp"
#include "runtime/end_info.hpp"
#include "runtime/engine.hpp"
#include "runtime/services.hpp"

namespace sluice::detail {
class ReceiverCore;
}

namespace sluice::runtime {

class ChannelEnd;
using detail::ReceiverCore;

/// The channels of one target, at one of their ends.
struct AgentLine {
  /// A request, as it travels. The bytes of a put, or the numbers of an accumulate, follow it in its slot.
  struct Message {
    backends::Request::Kind kind{};
    Op op{};
    Number number{};
    std::uint64_t offset = 0;
    std::uint64_t operand = 0;
    std::uint64_t compare = 0;
    std::uint64_t bytes = 0;
    std::uint32_t counter = backends::Request::kNone;
    bool last = true;  ///< of its request: it is replied to
  };
  static constexpr int kDepth = 16;
  static constexpr std::size_t kMost = 4096;  ///< bytes of a put, a get or an accumulate in one message
  static constexpr std::size_t kSlot = sizeof(Message) + kMost;

  enum class Side : std::uint8_t { target, owner };
  /// `of`: the target, or the end that the owner has for it. `key`: the peer, and scope and tag of the messages.
  /// @throws Error
  AgentLine(Side side, const std::shared_ptr<const Services>& services, const Opening& of, const ChannelKey& key);

  Sender out;
  Receiver in;
};

/// The target's side. It is used on the lane of the target, which also waits in its place: so a wait for a reply ends
/// as those of the target do.
class AgentClient {
 public:
  /// `scope`: of the window, for those that have a handle. `target`: also its watch. @throws Error
  AgentClient(ChannelEnd& target, const Opening& of, std::string scope);

  // On the lane. They return early if the target has failed. @throws Error of a channel
  /// Requests what is access `epoch` of the target: an atomic, whose old value is here after `collect`; a put; or a get
  /// of no more than `kMost` bytes, which are here after `collect`.
  void send(device::Lane lane, std::uint64_t epoch, const backends::Request& request);
  /// Waits for all replies.
  void collect(device::Lane lane, std::uint64_t epoch);
  /// Stores the old values. Call it once `all_replied`.
  void take_replies();

  /// The agent has replied to all requests, so their atomics are done; or the channel has failed. Any thread.
  bool all_replied() const noexcept;
  /// No reply that is awaited has a value. On the lane.
  bool nothing_returns() const noexcept;
  /// The order of the requests, as in backends::Put; null also if the line is not connected.
  const void* in_order() const noexcept;
  /// The replies to all accesses up to this one, as far as they were sent, are taken. Any thread.
  std::uint64_t replied() const noexcept { return oldest_.load(std::memory_order_acquire) - 1; }
  /// The receiver of the replies.
  ReceiverCore& in() const noexcept;

 private:
  struct Reply {
    std::uint64_t epoch;
    std::span<std::byte> to;  // empty: it goes nowhere
  };
  void send(device::Lane lane, std::uint64_t epoch, const AgentLine::Message& message, std::span<const std::byte> bytes,
            std::span<std::byte> reply);
  void take_one();
  bool await(device::Lane lane, const device::Wait& wait);
  void await_oldest() noexcept {
    oldest_.store(replies_.empty() ? kNone : replies_.front().epoch, std::memory_order_release);
  }

  ChannelEnd& target_;
  AgentLine line_;
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::deque<Reply> replies_;                 // that are awaited
  std::atomic<std::uint64_t> oldest_{kNone};  // epoch of the first of them
  std::atomic<std::uint64_t> sent_{0};
  std::uint64_t taken_ = 0;
};

/// The owner's side: the agent of one window.
class Agent final : private Engine::Responder {
 public:
  Agent(std::shared_ptr<const Services> services, backends::Counters counters);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// A target of `memory` has opened the channel of its requests; `key` as seen here. Any thread, with any lock of the
  /// runtime.
  void join(const ChannelKey& key, const Opening& of, std::span<std::byte> memory);
  /// Serves the requests that have arrived, and ends the thread. Idempotent. Without locks of the runtime.
  void stop();

 private:
  struct Joined {
    ChannelKey key;
    Opening of;
    std::span<std::byte> memory;
  };
  struct Served {
    Served(AgentLine&& opened, std::span<std::byte> window) : line(std::move(opened)), memory(window) {}

    AgentLine line;
    std::span<std::byte> memory;
    std::atomic<bool> over{false};  ///< the target has closed, or failed
    bool gives_way = false;         ///< its replies leave behind the program's puts
    bool by_turns = false;          ///< requests arrive in turns of the engine; known once the line is connected
  };
  using Lines = std::list<Served>;

  bool has_requests() noexcept override;
  void respond(bool alone) noexcept override;
  void call() noexcept;
  void serve();
  bool admit_joined();
  void drop_over();
  bool is_called() noexcept;
  void await_work();
  bool help_while_alone(device::Helper& helper);
  void sleep();
  static bool may_answer(const Served& one) noexcept;
  /// Serves requests that have arrived. False: the target has closed, or failed.
  bool serve(Served& one);
  void carry_out(Served& one, const Slice& slot);

  const std::shared_ptr<const Services> services_;
  const backends::Counters counters_;
  std::mutex mutex_;
  std::vector<Joined> joined_;  // not admitted yet
  bool stopping_ = false;
  std::atomic<bool> called_{false};
  std::atomic<bool> alone_{false};          // no other thread takes turns
  std::atomic<std::uint64_t> answered_{0};  // rounds of answers
  backends::Signal call_;                   // where the thread sleeps
  Lines lines_;                             // changed by the thread, between answers
  std::thread thread_;
};

}  // namespace sluice::runtime
