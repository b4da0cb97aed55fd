// SPDX-License-Identifier: Apache-2.0
// Closing a channel, explored: a sender and a receiver are modelled with what they enqueue, what is under way between
// them and what they say to each other, and every order of these events is tried. The decisions are those of the
// library (runtime/closing.hpp); what it observes and does is the model's.
#include "runtime/closing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using namespace sluice::runtime;

constexpr int kDepth = 1;  // slots of the receiver

/// A message of one end that the other has not processed.
enum class Word : std::uint8_t { opening, closing, let_go, gone, failure, death };
struct Message {
  Word word{};
  std::uint8_t wanted = 0;
  std::uint8_t credited = 0;
};

/// A FIFO of messages, of fixed size so that states are compared as bytes.
struct Wire {
  std::array<Message, 8> messages{};
  std::uint8_t count = 0;

  void send(Message message) { messages.at(count++) = message; }
  Message take() {
    const Message first = messages[0];
    std::copy(messages.begin() + 1, messages.end(), messages.begin());
    messages.back() = {};
    --count;
    return first;
  }
};

/// Numbers of epochs, of either end; "done" are the puts of a sender and the releases of a receiver.
struct End {
  bool sends = false;
  bool opened = false;
  bool knows_peer = false;  // has got its opening
  bool over = false;        // memory freed
  bool failed = false;
  bool shut = false;
  bool dead = false;
  bool let_go_of_peer = false;  // what was mapped of it is given up
  std::uint8_t unseen = 0;      // writes of the peer that have landed and were not looked at
  bool moving = false;          // a stream writes: it has found the end open, and has not completed the epoch
  bool armed = false;           // a put of the NIC's that has not fired
  bool final_before_match = false;
  std::uint8_t wanted_before_match = 0;
  std::uint8_t credited_before_match = 0;
  std::uint8_t enqueued = 0;  // puts; waits
  std::uint8_t waited = 0;    // of a receiver: waits that have passed
  std::uint8_t released = 0;  // of a receiver: releases enqueued
  std::uint8_t done = 0;
  std::uint8_t under_way = 0;  // writes into the peer's memory
  std::uint8_t arrived = 0;    // of the peer's writes
  // A Closing, as bytes without holes.
  bool closing = false, peer_closed = false, key_closed_there = false, peer_lost = false;
  std::uint8_t wanted = 0, credited = 0, peer_wanted = 0, peer_credited = 0;
  Writing writing = Writing::active;
  Exposed exposed = Exposed::open;

  Final final() const { return sends ? Final{enqueued, enqueued} : Final{enqueued, released}; }
  std::uint64_t last_possible() const { return sends ? peer_credited + std::uint64_t{kDepth} : peer_wanted; }
  bool beyond_final() const { return peer_closed && !failed && enqueued > last_possible(); }
};

struct State {
  std::array<End, 2> ends{};
  std::array<Wire, 2> from{};  // by sender
  std::uint8_t failures_left = 0;
  std::uint8_t deaths_left = 0;
};
static_assert(std::has_unique_object_representations_v<State>);

/// The limits of the exploration.
struct Bounds {
  int epochs = 1;
  int failures = 0;
  int deaths = 0;
  bool armed = false;     // the sender's puts are armed ahead
  bool late = false;      // the receiver may open after the sender has closed
  int closes_alone = -1;  // this end alone is closed by its user
};

/// One state, the events that lead on from it, and what must hold in it.
class Model {
 public:
  Model(const Bounds& bounds, const State& state) : bounds_(bounds), state_(state) {}

  const State& state() const { return state_; }
  const std::string& fault() const { return fault_; }

  static State first(const Bounds& bounds) {
    State state;
    state.ends[0].sends = true;
    state.failures_left = static_cast<std::uint8_t>(bounds.failures);
    state.deaths_left = static_cast<std::uint8_t>(bounds.deaths);
    Model model(bounds, state);
    model.open(0);
    if (!bounds.late) model.open(1);
    return model.state();
  }

  /// Does event number `which` of end `here`; false: it is not possible now.
  bool happens(int here, int which) {
    End& end = state_.ends[here];
    if (end.dead) return which == 0 && end.under_way != 0 && land(here);
    switch (which) {
      case 0: return land(here);
      case 1: return hear(here);
      case 2: return enqueue(end);
      case 3: return run(here);
      case 4: return release(end);
      case 5: return close(here);
      case 6: return look(here);
      case 7: return fail_by_itself(here);
      case 8: return die(here);
      case 9: return arm(end);
      case 10: return !end.opened && open(here);
      case 11: return see(end);
      default: return false;
    }
  }
  static constexpr int kEvents = 12;

  /// Nothing can happen any more: then both ends are closed.
  void expect_ended() {
    for (const End& end : state_.ends) {
      if (end.dead || !may_close(end)) continue;
      expect(end.over, "an end is never closed");
      if (!bounds_.failures && !bounds_.deaths && !state_.ends[0].failed && !state_.ends[1].failed && !end.sends)
        expect(end.arrived >= end.waited, "a wait has passed that nothing has come for");
    }
  }

 private:
  /// The inputs and actions of the library's `advance`.
  class Closer {
   public:
    Closer(Model& model, int here) : model_(model), here_(here), end_(model.state_.ends[here]) {}
    bool passed() const { return end_.done >= writes() && (end_.sends || end_.waited >= end_.enqueued); }
    bool written() const { return end_.done >= writes(); }
    bool has_written(const Final& final) const {
      return end_.failed || end_.done + (end_.sends ? 0U : unsigned{kDepth}) >= final.wanted;
    }
    bool settled() const { return end_.under_way == 0; }
    bool disarmed(bool key_closed) const {
      model_.expect(end_.closing && passed(), "armed puts are disposed of, and puts may follow");
      if (end_.armed && key_closed) {
        model_.expect(model_.peer(here_).exposed == Exposed::closed, "an armed put is fired into open memory");
        end_.armed = false;
      }
      return !end_.armed;
    }
    void shut() { end_.shut = true; }
    void let_go() {
      model_.expect(end_.under_way == 0, "what is mapped is given up with a write under way");
      model_.expect(end_.shut || end_.failed, "what is mapped is given up, and writes may follow");
      end_.let_go_of_peer = true;
      if (end_.knows_peer) model_.send(here_, {Word::let_go});
    }
    bool has_arrived(const Final& final) const { return end_.sends || end_.failed || end_.arrived >= final.wanted; }
    void close_key() {
      if (end_.sends) see(end_);
      const auto needed = end_.closing ? end_.enqueued : end_.peer_wanted;
      model_.expect(end_.sends || end_.failed || end_.arrived >= needed,
                    "a key is closed before all that has arrived was seen");
      model_.expect(model_.peer(here_).dead || model_.peer(here_).under_way == 0, "a key is closed before a write");
      model_.send(here_, {Word::gone});
    }

   private:
    unsigned writes() const { return end_.sends ? end_.enqueued : end_.released; }
    Model& model_;
    int here_;
    End& end_;
  };

  bool may_close(const End& end) const {
    return bounds_.closes_alone < 0 || &end == &state_.ends[bounds_.closes_alone];
  }
  End& peer(int here) { return state_.ends[1 - here]; }
  void send(int here, Message message) {
    if (!peer(here).dead) state_.from[here].send(message);
  }
  void expect(bool holds, const char* what) {
    if (!holds && fault_.empty()) fault_ = what;
  }

  bool open(int here) {
    End& end = state_.ends[here];
    end.opened = true;
    send(here, {Word::opening});
    if (end.knows_peer) match(end, here);
    return true;
  }

  void match(End& end, int here) {
    if (end.writing >= Writing::settled) send(here, {Word::let_go});
    if (!end.final_before_match) return;
    if (end.wanted_before_match == 0) end.shut = end.let_go_of_peer = true;  // nothing of the peer is ever mapped
    hear_closing(end, end.wanted_before_match, end.credited_before_match);
  }

  /// A write of this end becomes visible at the peer.
  bool land(int here) {
    End& end = state_.ends[here];
    if (end.under_way == 0) return false;
    expect(!peer(here).over, "a write into freed memory");
    expect(peer(here).exposed != Exposed::closed, "a write through a closed key");
    expect(!end.over, "a write from freed memory");
    --end.under_way;
    ++peer(here).unseen;
    return true;
  }

  /// Its engine looks at what has arrived.
  static bool see(End& end) {
    end.arrived += end.unseen;
    return std::exchange(end.unseen, std::uint8_t{0}) != 0;
  }

  bool hear(int here) {
    if (state_.from[1 - here].count == 0) return false;
    End& end = state_.ends[here];
    const Message message = state_.from[1 - here].take();
    if (end.over && message.word != Word::closing) return true;
    const bool registered = end.opened && !end.over;
    switch (message.word) {
      case Word::opening:
        end.knows_peer = true;
        if (registered) match(end, here);
        break;
      case Word::closing:
        if (registered) {
          hear_closing(end, message.wanted, message.credited);
        } else if (end.over) {
          send(here, {Word::let_go});
        } else {
          end.final_before_match = true;
          end.wanted_before_match = message.wanted;
          end.credited_before_match = message.credited;
          if (message.wanted == 0) send(here, {Word::let_go});
        }
        break;
      case Word::let_go: step_on(end, [](Closing& closing) { closing.let_go(); }); break;
      case Word::gone: end.key_closed_there = true; break;
      case Word::failure: end.failed = true; break;
      case Word::death:
        step_on(end, [](Closing& closing) { closing.lose_peer(); });
        end.failed = true;
        end.under_way = 0;  // the backend ends it
        break;
    }
    return true;
  }

  static void hear_closing(End& end, std::uint8_t wanted, std::uint8_t credited) {
    end.peer_closed = true;
    end.peer_wanted = wanted;
    end.peer_credited = credited;
  }

  /// The user enqueues a put or a wait.
  bool enqueue(End& end) {
    if (!end.opened || end.closing || end.failed || end.enqueued == bounds_.epochs) return false;
    if (end.peer_closed && end.enqueued + 1U > end.last_possible()) return false;  // refused
    ++end.enqueued;
    return true;
  }

  bool release(End& end) {
    if (end.sends || end.closing || end.failed || end.released == end.enqueued) return false;
    ++end.released;
    return true;
  }

  bool arm(End& end) {
    if (!bounds_.armed || !end.sends || end.armed || end.shut || end.failed || !end.knows_peer || end.let_go_of_peer)
      return false;
    end.armed = true;
    return true;
  }

  /// The stream comes to the next thing that is enqueued.
  bool run(int here) {
    End& end = state_.ends[here];
    const bool ends_waits = end.failed;
    if (end.moving) return complete(end);
    if (!end.knows_peer && !ends_waits) return false;
    if (end.sends) {
      if (end.done == end.enqueued || (end.done + 1 > end.arrived + kDepth && !ends_waits)) return false;
      return write(end);
    }
    const bool next_is_release = end.waited > end.done && end.done < end.released;
    if (next_is_release) return write(end);
    if (end.waited == end.enqueued || (end.waited + 1 > end.arrived && !ends_waits)) return false;
    ++end.waited;
    return true;
  }

  bool write(End& end) {
    if (end.shut || end.failed) {
      ++end.done;
    } else {
      end.moving = true;
    }
    return true;
  }

  bool complete(End& end) {
    expect(!end.let_go_of_peer, "a write after the peer was told that none follows");
    end.moving = false;
    ++end.done;
    if (!end.peer_lost) ++end.under_way;
    end.armed = false;
    return true;
  }

  bool close(int here) {
    End& end = state_.ends[here];
    if (!end.opened || end.closing || !may_close(end)) return false;
    end.closing = true;
    end.wanted = static_cast<std::uint8_t>(end.final().wanted);
    end.credited = static_cast<std::uint8_t>(end.final().credited);
    send(here, {Word::closing, end.wanted, end.credited});
    return true;
  }

  /// The registry looks at an end that closes.
  bool look(int here) {
    End& end = state_.ends[here];
    if (!end.opened || end.over) return false;
    const State before = state_;
    if (end.beyond_final() && (end.sends ? end.done : end.waited) >= end.last_possible()) fail(here);
    Closer closer(*this, here);
    step_on(end, [&](Closing& closing) {
      advance(closing, closer);
      end.over = is_closed(closing, closer);
    });
    if (end.over) {
      expect(end.closing, "an open end is freed");
      expect(Closer(*this, here).passed(), "memory is freed that a stream of this end uses");
      expect(end.under_way == 0 && !end.moving, "memory is freed that a write reads");
      // Puts that are armed towards a dead peer never fire, and the backend keeps the memory that they would read.
      expect(!end.armed || end.peer_lost, "a put stays armed that reads freed memory");
      expect(peer(here).dead || peer(here).under_way == 0, "memory is freed with a write under way");
      expect(peer(here).dead || peer(here).let_go_of_peer || !peer(here).opened, "memory is freed that the peer maps");
    }
    return std::memcmp(&before, &state_, sizeof before) != 0;
  }

  template <class F>
  static void step_on(End& end, F change) {
    Closing closing;
    if (end.closing) closing.ours = Final{end.wanted, end.credited};
    if (end.peer_closed) closing.theirs = Final{end.peer_wanted, end.peer_credited};
    closing.writing = end.writing;
    closing.exposed = end.exposed;
    closing.key_closed_there = end.key_closed_there;
    closing.peer_lost = end.peer_lost;
    change(closing);
    end.writing = closing.writing;
    end.exposed = closing.exposed;
    end.peer_lost = closing.peer_lost;
  }

  void fail(int here) {
    state_.ends[here].failed = true;
    send(here, {Word::failure});
  }

  bool fail_by_itself(int here) {
    const End& end = state_.ends[here];
    if (state_.failures_left == 0 || !end.opened || end.over || end.failed) return false;
    --state_.failures_left;
    fail(here);
    return true;
  }

  bool die(int here) {
    if (state_.deaths_left == 0) return false;
    --state_.deaths_left;
    state_.ends[here].dead = true;
    state_.ends[here].under_way = 0;
    state_.ends[here].moving = false;
    state_.from[1 - here] = {};
    send(here, {Word::death});
    return true;
  }

  const Bounds& bounds_;
  State state_;
  std::string fault_;
};

struct Found {
  std::size_t states = 0;
  std::string fault;
};

/// All states that can be reached, each once.
Found explore(const Bounds& bounds) {
  const auto bytes = [](const State& state) {
    return std::string(reinterpret_cast<const char*>(&state), sizeof state);
  };
  std::unordered_map<std::string, std::string> how;  // by which events a state was reached
  std::deque<State> left{Model::first(bounds)};
  how[bytes(left.front())] = "";
  while (!left.empty()) {
    const State state = left.front();
    left.pop_front();
    const std::string so_far = how[bytes(state)];
    bool ended = true;
    for (int here = 0; here < 2; ++here) {
      for (int which = 0; which < Model::kEvents; ++which) {
        Model model(bounds, state);
        if (!model.happens(here, which)) continue;
        ended = ended && (which == 7 || which == 8 || which == 9);  // what need not happen
        const std::string events = so_far + ' ' + (here == 0 ? 's' : 'r') + std::to_string(which);
        if (!model.fault().empty()) return {how.size(), model.fault() + ", after" + events};
        if (how.emplace(bytes(model.state()), events).second) left.push_back(model.state());
      }
    }
    if (!ended) continue;
    Model model(bounds, state);
    model.expect_ended();
    if (!model.fault().empty()) return {how.size(), model.fault() + ", after" + so_far};
  }
  return {how.size(), {}};
}

void expect_sound(const Bounds& bounds) {
  const Found found = explore(bounds);
  EXPECT_EQ(found.fault, "");
  std::printf("%zu states\n", found.states);
}

TEST(HalfCloses, end_whatever_the_order) { expect_sound({.epochs = 3}); }
TEST(HalfCloses, end_though_the_peer_stays_open) {
  expect_sound({.epochs = 2, .armed = true, .closes_alone = 0});
  expect_sound({.epochs = 1, .armed = true, .closes_alone = 1});  // with more it may wait for what it does not credit
}
TEST(HalfCloses, end_with_puts_armed) { expect_sound({.epochs = 2, .armed = true}); }
TEST(HalfCloses, end_after_a_failure) { expect_sound({.epochs = 2, .failures = 1, .armed = true}); }
TEST(HalfCloses, end_after_a_death) { expect_sound({.epochs = 2, .deaths = 1, .armed = true}); }
TEST(HalfCloses, end_before_the_peer_has_opened) { expect_sound({.epochs = 2, .late = true}); }
TEST(HalfCloses, end_whatever_happens_to_one_epoch) {
  expect_sound({.epochs = 1, .failures = 2, .deaths = 1, .armed = true, .late = true});
}

}  // namespace
