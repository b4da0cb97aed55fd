// SPDX-License-Identifier: Apache-2.0
// The ping-pong and the flood of rivals that write into the peer's memory themselves: the floor and libfabric.
//
// Such a rival is a Link. Each of its two ranks has a source and a target with the same number of slots, and
//
//     std::byte* source(Message)          its slot of the source
//     void put(Message)                   writes the message from its slot of the source into the same slot of the
//                                         peer's target, and then tells the peer
//     const std::byte* await(Message)     waits for a message of the peer, and returns its payload in the target
//     void signal(Signal)                 tells the peer once, after all earlier puts
//     uint64_t await(Signal, least)       waits for `least` signals of one kind since the beginning, and returns how
//                                         many have arrived
//     void finish_run()                   both ranks call it after each run, outside the measured time
#pragma once

#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/harness/contender.hpp"
#include "apps/bench/harness/counter.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace bench {

struct Message {
  std::uint64_t number;  ///< messages of a rank count from 0
  std::size_t slot;      ///< the number modulo the number of slots
};

/// `credit`: a part of the ring was read and may be overwritten. `answer`: a whole window has arrived.
enum class Signal { credit, answer };

/// The counters and slots that a contender needs in each rank's memory.
struct LinkLayout {
  std::size_t slots = 1;
  std::size_t signals = 0;  ///< kinds of signals
};

/// One slot on each side: each message shows that the previous one was read.
template <class Link>
class LinkPingPong : public Contender {
 public:
  template <class... More>
  explicit LinkPingPong(const Workload& workload, const More&... more)
      : workload_(workload), link_(workload, LinkLayout{}, more...) {}

  double run(long count) override {
    const double taken = timed_ping_pong(
        workload_, count,
        [this] {
          compute(workload_, link_.source({sent_, 0}));
          link_.put({sent_++, 0});
        },
        [this] {
          touch(workload_, link_.await(Message{received_++, 0}));
        });
    link_.finish_run();
    return taken;
  }

 private:
  const Workload workload_;
  Link link_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

/// A ring of `depth` slots. The receiver sends a credit for each half of the ring that it has read, and an answer after
/// each window.
template <class Link>
class LinkFlood : public Contender {
 public:
  template <class... More>
  explicit LinkFlood(const Workload& workload, const More&... more)
      : workload_(workload), slots_(static_cast<std::uint64_t>(workload.depth)),
        slots_per_credit_(std::max<std::uint64_t>(slots_ / 2, 1)),
        link_(workload, LinkLayout{.slots = slots_, .signals = 2}, more...) {}

  double run(long count) override {
    const double taken = timed_steps(count, [this] {
      ++windows_;
      if (workload_.first) {
        send_window();
      } else {
        receive_window();
      }
    });
    link_.finish_run();
    return taken;
  }

 private:
  Message message(std::uint64_t number) const { return {number, number % slots_}; }

  void send_window() {
    for (int i = 0; i < workload_.window; ++i) {
      if (sent_ == allowed_) await_credit();
      link_.put(message(sent_++));
    }
    link_.await(Signal::answer, windows_);
  }

  // Waits until a part of the full ring was read.
  void await_credit() {
    credits_ = link_.await(Signal::credit, credits_ + 1);
    allowed_ = slots_ + credits_ * slots_per_credit_;
  }

  void receive_window() {
    for (int i = 0; i < workload_.window; ++i) {
      touch(workload_, link_.await(message(received_++)));
      if (received_ % slots_per_credit_ == 0) link_.signal(Signal::credit);
    }
    link_.signal(Signal::answer);
  }

  const Workload workload_;
  const std::uint64_t slots_;
  const std::uint64_t slots_per_credit_;
  Link link_;
  std::uint64_t sent_ = 0;
  std::uint64_t allowed_ = slots_;  // messages that fit into the ring, by the credits so far
  std::uint64_t credits_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t windows_ = 0;
};

}  // namespace bench
