// SPDX-License-Identifier: Apache-2.0
// Messages of Views between all ranks, of sizes that grow and shrink, posted in orders that MPI allows.
#include <sluice/kokkos.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <future>
#include <optional>
#include <ostream>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/kokkos/views.hpp"
#include "tests/peers.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;
using Exec = Kokkos::DefaultHostExecutionSpace;
using sluice::kokkos::Messages;
using sluice::kokkos::Queue;
using Requests = std::vector<Messages<Exec>::Request>;
using View = Kokkos::View<std::int32_t*, Kokkos::HostSpace>;

struct MessageCase {
  int ranks;
  bool processes;
  bool host_stream;
};

void PrintTo(const MessageCase& one, std::ostream* out) {
  *out << one.ranks << (one.processes ? "_processes" : "_threads") << (one.host_stream ? "_host" : "_inline");
}

/// How many elements rank `from` sends to rank `to`, drawn for each turn: none, few, or up to some thousands.
Index elements_of(Rank from, Rank to, int turn) {
  std::mt19937 dice(static_cast<unsigned>(from * 1009 + to * 97 + turn * 7 + 1));
  const auto most = Index{1} << dice() % 14;
  return static_cast<Index>(dice()) % most;
}
std::int32_t value_of(Rank from, Rank to, int turn, Index i) {
  return static_cast<std::int32_t>(from * 1'000'003 + to * 10'007 + turn * 101 + i);
}

class Exchange {
 public:
  Exchange(Context& context, const Queue<Exec>& queue)
      : context_(context), queue_(queue), all_(context, queue, "all") {}

  /// Every rank sends to every rank, and to itself. `order` draws which message each waits for first.
  void turn(int turn, std::mt19937& order) {
    std::vector<View> sent;
    std::vector<View> received;
    Requests requests;
    const auto send = [&](Rank peer) {
      const View view("sent", elements_of(context_.rank(), peer, turn));
      queue_.run([=, this] {
        for (Index i = 0; i < view.extent_int(0); ++i) view(i) = value_of(context_.rank(), peer, turn, i);
      });
      requests.push_back(all_.send(view, peer));
      sent.push_back(view);
    };
    const auto receive = [&](Rank peer) {
      received.emplace_back("received", elements_of(peer, context_.rank(), turn));
      requests.push_back(all_.receive(received.back(), peer));
    };
    for (Rank peer = 0; peer < context_.size(); ++peer) turn % 2 == 0 ? send(peer) : receive(peer);
    for (Rank peer = 0; peer < context_.size(); ++peer) turn % 2 == 0 ? receive(peer) : send(peer);
    std::shuffle(requests.begin(), requests.end(), order);
    for (const auto& request : requests) all_.wait(request);
    queue_.run([=, this] {
      for (Rank peer = 0; peer < context_.size(); ++peer) {
        const View& view = received[static_cast<std::size_t>(peer)];
        int wrong = 0;
        for (Index i = 0; i < view.extent_int(0); ++i) wrong += view(i) != value_of(peer, context_.rank(), turn, i);
        EXPECT_EQ(wrong, 0) << "elements from rank " << peer << " in turn " << turn;
      }
      for (const View& view : sent) Kokkos::deep_copy(view, -1);
    });
  }

 private:
  Context& context_;
  Queue<Exec> queue_;
  Messages<Exec> all_;
};

class MessagesOf : public testing::TestWithParam<MessageCase> {};

TEST_P(MessagesOf, any_size_reach_their_views_in_order) {
  const MessageCase& one = GetParam();
  run_peers({.ranks = one.ranks, .processes = one.processes}, [&one](Context& context) {
    HostStream stream;
    const Exec exec;
    const Queue<Exec> queue = queue_of<Exec>(stream, one.host_stream, exec);
    Exchange exchange(context, queue);
    std::mt19937 order(static_cast<unsigned>(context.rank()));
    for (int turn = 0; turn < 40; ++turn) exchange.turn(turn, order);
    queue.fence("test");
  });
}

std::vector<MessageCase> message_cases() {
  std::vector<MessageCase> all;
  for (const int ranks : {1, 2, 3}) {
    for (const bool processes : {false, true}) {
      for (const bool host_stream : {false, true}) all.push_back({ranks, processes, host_stream});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, MessagesOf, testing::ValuesIn(message_cases()), testing::PrintToStringParamName());

/// A rank that has not posted the receive of one message still takes others: rank 0 sends to 1, which first needs a
/// message of 2 that depends on a later one of 0.
TEST(Messages, that_nobody_asked_for_hold_up_no_others) {
  run_peers({.ranks = 4}, [](Context& context) {
    Messages<Exec> all(context, Exec(), "chain");
    const View a("a", 10);
    const View b("b", 10);
    const auto take = [&](Rank peer) { all.wait(all.receive(b, peer)); };
    const auto give = [&](Rank peer) { all.wait(all.send(a, peer)); };
    switch (context.rank()) {
      case 0: {
        const auto first = all.send(a, 1);
        take(3);
        give(2);
        all.wait(first);
        break;
      }
      case 1:
        take(2);
        take(0);
        break;
      case 2:
        take(0);
        give(1);
        break;
      default: give(0);
    }
  });
}

template <class Work>
Code code_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.code();
  }
  return Code::unsupported;
}

/// Rank 1 dies before it has posted a receive.
void peer_of_messages_dies(bool host_stream) {
  const Ended ended = end_of_peers({.ranks = 3, .processes = true, .keep_going = true}, [=](Context& context) {
    if (context.rank() == 1) ::raise(SIGKILL);
    HostStream stream;
    const Queue<Exec> queue = queue_of<Exec>(stream, host_stream);
    Messages<Exec> all(context, queue, "all");
    const View sent("sent", 10);
    const View received("received", 10);
    const Rank other = 2 - context.rank();
    const auto lost = all.receive(received, 1);
    EXPECT_EQ(code_of([&] {
                all.wait(all.send(sent, 1));
                all.wait(lost);
                context.synchronize(queue.stream());
              }),
              Code::peer_lost);
    EXPECT_EQ(code_of([&] { all.wait(lost), all.wait(all.send(sent, 1)); }), Code::peer_lost) << "again";
    const auto out = all.send(sent, other);
    all.wait(all.receive(received, other));
    all.wait(out);
    queue.fence("test");
  });
  EXPECT_FALSE(ended.hung) << ended.text;
  EXPECT_EQ(ended.code, 128 + SIGKILL) << ended.text;
  EXPECT_EQ(ended.text.find("_test.cpp"), std::string::npos) << "a failed assertion:\n" << ended.text;
}
TEST(Messages, of_a_peer_that_dies_fail_and_no_others) { peer_of_messages_dies(false); }
TEST(Messages, on_a_stream_of_a_peer_that_dies_fail_and_no_others) { peer_of_messages_dies(true); }

/// Waits for a late peer: repeats the wait whenever its limit expires.
void wait_patiently(Messages<Exec>& all, const Messages<Exec>::Request& request) {
  while (true) {
    try {
      return all.wait(request);
    } catch (const Error& error) {
      if (error.code() != Code::timeout) throw;
    }
  }
}

TEST(Messages, that_nobody_asks_for_are_waited_for_until_the_limit) {
  run_peers({.ranks = 2, .connect_timeout = 1s}, [](Context& context) {
    Messages<Exec> all(context, Exec(), "late");
    const View view("view", 10);
    if (context.rank() == 1) {
      board().await(0, 1);
      wait_patiently(all, all.receive(view, 0));
      return;
    }
    const auto out = all.send(view, 1);
    EXPECT_EQ(code_of([&] { all.wait(out); }), Code::timeout);
    board().set(0, 1);
    wait_patiently(all, out);
  });
}

TEST(Messages, that_nobody_sends_are_waited_for_until_the_limit) {
  run_peers({.ranks = 2, .connect_timeout = 1s}, [](Context& context) {
    Messages<Exec> all(context, Exec(), "late");
    const View view("view", 10);
    if (context.rank() == 1) {
      board().await(0, 1);
      Kokkos::deep_copy(view, 7);
      wait_patiently(all, all.send(view, 0));
      return;
    }
    const auto in = all.receive(view, 1);
    for (int again = 0; again < 2; ++again) EXPECT_EQ(code_of([&] { all.wait(in); }), Code::timeout);
    board().set(0, 1);
    wait_patiently(all, in);
    EXPECT_EQ(view(9), 7);
  });
}

/// A message to the same rank, which is never received, does not make that longer.
TEST(Messages, that_nobody_sends_are_waited_for_until_the_limit_beside_others) {
  run_peers({.ranks = 2, .connect_timeout = 1s}, [](Context& context) {
    Messages<Exec> all(context, Exec(), "late");
    const View view("view", 10);
    if (context.rank() == 1) return board().await(0, 1);
    const auto out = all.send(view, 1);
    const auto in = all.receive(view, 1);
    EXPECT_FALSE(Messages<Exec>::over(in));
    EXPECT_EQ(code_of([&] { all.wait(in); }), Code::timeout);
    board().set(0, 1);
  });
}

TEST(Messages, that_cannot_be_packed_fail_no_others) {
  run_peers({.ranks = 2}, [](Context& context) {
    Messages<Exec> all(context, Exec(), "all");
    const Rank peer = 1 - context.rank();
    const View sent("sent", 10);
    const View received("received", 10);
    Kokkos::deep_copy(sent, 5);
    const auto odd = all.send(context.rank(), 40, [](std::byte*) { throw std::runtime_error("cannot pack"); });
    const auto out = all.send(sent, peer);
    const auto in = all.receive(received, peer);
    const auto own = all.receive(context.rank(), 40, [](std::byte*) {});  // now the channel is connected
    all.wait(in);
    all.wait(out);
    EXPECT_EQ(received(9), 5);
    EXPECT_THROW(all.wait(odd), std::runtime_error);
    EXPECT_TRUE(Messages<Exec>::over(odd));
    EXPECT_FALSE(Messages<Exec>::over(own));
  });
}

/// Work that such a message has enqueued on a stream before it failed still runs, in slots that exist.
TEST(Messages, that_cannot_be_packed_on_a_stream_leave_slots_to_what_they_enqueued) {
  run_peers({.ranks = 1}, [](Context& context) {
    HostStream stream;
    const Queue<Exec> queue = queue_of<Exec>(stream, true);
    std::promise<void> open;
    std::byte* written = nullptr;
    {
      Messages<Exec> all(context, queue, "all");
      queue.run([gate = open.get_future().share()] { gate.wait(); });
      const std::size_t bytes = 1 << 20;  // of its own mapping
      const auto odd = all.send(0, bytes, [&](std::byte* slot) {
        queue.run([=, &written] { std::fill_n(written = slot, bytes, std::byte{1}); });
        throw std::runtime_error("cannot pack");
      });
      EXPECT_THROW(all.wait(odd), std::runtime_error);
      EXPECT_EQ(written, nullptr);
    }
    open.set_value();
    queue.fence("test");
    EXPECT_NE(written, nullptr);
  });
}

/// Ten times the channels' depth, from each rank to each, before any rank waits; then each waits for its sends first.
TEST(Messages, that_are_unpacked_early_may_be_as_many_as_ranks_like) {
  for (const int ranks : {1, 2, 3}) {
    run_peers({.ranks = ranks, .processes = ranks == 2}, [](Context& context) {
      using All = Messages<Exec>;
      using Values = Kokkos::View<Index*, Kokkos::HostSpace>;
      constexpr int kMessages = 20;
      All messages(context, Exec(), "many", 2, All::Unpacks::early);
      std::vector<All::Request> sent, received;
      std::vector<Values> come;
      for (int number = 0; number < kMessages; ++number) {
        for (Rank peer = 0; peer < context.size(); ++peer) {
          const Values values("values", static_cast<std::size_t>(number));
          Kokkos::deep_copy(values, context.rank() * 1000 + peer * 100 + number);
          sent.push_back(messages.send(values, peer));
        }
      }
      for (int number = 0; number < kMessages; ++number) {
        for (Rank peer = 0; peer < context.size(); ++peer)
          received.push_back(messages.receive(come.emplace_back("come", static_cast<std::size_t>(number)), peer));
      }
      for (const auto& one : sent) messages.wait(one);
      for (auto one = received.rbegin(); one != received.rend(); ++one) messages.wait(*one);
      auto next = come.begin();
      for (int number = 0; number < kMessages; ++number) {
        for (Rank peer = 0; peer < context.size(); ++peer, ++next) {
          for (std::size_t i = 0; i < next->extent(0); ++i)
            EXPECT_EQ((*next)(i), peer * 1000 + context.rank() * 100 + number);
        }
      }
    });
  }
}

/// Rank 1 receives the second message before it sends the one that rank 0 waits for.
TEST(Messages, of_other_objects_are_put_by_a_wait_that_blocks) {
  run_peers({.ranks = 2, .connect_timeout = 5s}, [](Context& context) {
    using All = Messages<Exec>;
    std::optional<All> second;
    // Its first thread has ended.
    std::thread([&] { second.emplace(context, Exec(), "second", 4, All::Unpacks::early); }).join();
    All first(context, Exec(), "first", 4, All::Unpacks::early);
    const View one("one", 10);
    const View other("other", 10);
    const Rank peer = 1 - context.rank();
    if (context.rank() == 0) {
      const auto sent = first.send(one, peer);
      const auto sent_too = second->send(one, peer);
      board().set(0, 1);
      first.wait(first.receive(other, peer));
      first.wait(sent);
      second->wait(sent_too);
    } else {
      board().await(0, 1);
      second->wait(second->receive(other, peer));
      first.wait(first.receive(other, peer));
      first.wait(first.send(one, peer));
    }
  });
}

/// Both ranks wait for their sends through one object, and receive through another one.
TEST(Messages, of_other_objects_are_unpacked_early_by_a_wait_that_blocks) {
  run_peers({.ranks = 2, .timeout = 20s}, [](Context& context) {
    using All = Messages<Exec>;
    constexpr int kMessages = 20;
    All first(context, Exec(), "first", 2, All::Unpacks::early);
    All second(context, Exec(), "second", 2, All::Unpacks::early);
    const Rank peer = 1 - context.rank();
    All& out = context.rank() == 0 ? first : second;
    All& in = context.rank() == 0 ? second : first;
    const View sent("sent", 10);
    Kokkos::deep_copy(sent, context.rank());
    std::vector<View> come;
    std::vector<All::Request> sends, receives;
    for (int i = 0; i < kMessages; ++i) sends.push_back(out.send(sent, peer));
    for (int i = 0; i < kMessages; ++i) receives.push_back(in.receive(come.emplace_back("come", 10), peer));
    for (const auto& request : sends) out.wait(request);
    for (const auto& request : receives) in.wait(request);
    for (const View& view : come) EXPECT_EQ(view(9), peer);
  });
}

/// The wait for rank 1 puts what goes to it through the other object, which first waits for rank 2.
TEST(Messages, of_other_objects_may_wait_within_a_wait) {
  run_peers({.ranks = 3, .timeout = 10s}, [](Context& context) {
    using All = Messages<Exec>;
    All first(context, Exec(), "first", 4, All::Unpacks::early);
    All second(context, Exec(), "second", 4, All::Unpacks::early);
    for (int round = 0; round < 50; ++round) {
      const std::size_t size = 10 + 300 * static_cast<std::size_t>(round);  // often a new channel
      const View one("one", size), two("two", size), sent("sent", size);
      Kokkos::deep_copy(sent, context.rank() * 100 + round);
      if (context.rank() == 0) {
        const auto from_one = first.receive(one, 1);
        const auto from_two = first.receive(two, 2);
        const auto out = second.send(1, size * sizeof(std::int32_t), [&](std::byte*) { first.wait(from_two); });
        first.wait(from_one);
        second.wait(out);
        EXPECT_EQ(one(size - 1), 100 + round);
        EXPECT_EQ(two(size - 1), 200 + round);
      } else {
        const auto out = first.send(sent, 0);
        if (context.rank() == 1) second.wait(second.receive(0, size * sizeof(std::int32_t), [](std::byte*) {}));
        first.wait(out);
      }
    }
  });
}

/// The next one to a peer that waits for none is not put, and the sender's call does not block.
TEST(Messages, that_are_too_many_wait_for_a_later_call) {
  run_peers({.ranks = 2, .timeout = 2s}, [](Context& context) {
    Messages messages(context, Exec(), "too many", 1);
    const Kokkos::View<int*, Kokkos::HostSpace> view("view", 5);
    std::vector<Messages<Exec>::Request> requests;
    if (context.rank() == 0) {
      for (int i = 0; i < 3; ++i) requests.push_back(messages.send(view, 1));
      EXPECT_FALSE(messages.test(requests.back()));
      try {
        messages.wait(requests.back());
        ADD_FAILURE() << "put";
      } catch (const Error& reason) {
        EXPECT_EQ(reason.code(), Code::timeout) << reason.what();
      }
      board().set(0, 1);
      for (const auto& one : requests) messages.wait(one);
    } else {
      requests.push_back(messages.receive(view, 0));
      board().await(0, 1);
      messages.wait(requests.back());
      for (int i = 0; i < 2; ++i) messages.wait(messages.receive(view, 0));
    }
  });
}

/// Sizes that would fit into each other's slots.
TEST(Messages, of_unlike_sizes_are_a_mismatch) {
  run_peers({.ranks = 2, .keep_going = true, .untold = true}, [](Context& context) {
    Messages<Exec> all(context, Exec(), "all");
    const View view("view", context.rank() == 0 ? 100 : 101);
    const Rank peer = 1 - context.rank();
    const auto exchange = [&] {
      const auto in = all.receive(view, peer);
      const auto out = all.send(view, peer);
      all.wait(in);
      all.wait(out);
    };
    EXPECT_EQ(code_of(exchange), Code::mismatch);
  });
}

/// Views of 5x5 elements, which would arrive transposed.
TEST(Messages, of_unlike_layouts_are_a_mismatch) {
  run_peers({.ranks = 2, .keep_going = true, .untold = true}, [](Context& context) {
    const auto exchange = [&](const auto& view) {
      Messages<Exec> all(context, Exec(), "all");
      const Rank peer = 1 - context.rank();
      const auto in = all.receive(view, peer);
      const auto out = all.send(view, peer);
      all.wait(in);
      all.wait(out);
    };
    const bool first = context.rank() == 0;
    const std::array<Index, 2> square{5, 5};
    try {
      first ? exchange(make_view<int, Kokkos::LayoutLeft>("left", square))
            : exchange(make_view<int, Kokkos::LayoutRight>("right", square));
      ADD_FAILURE() << "connected";
    } catch (const Error& reason) {
      const std::string text = reason.what();
      EXPECT_EQ(reason.code(), Code::mismatch) << text;
      const std::string here = first ? "\"i4[dim0:5,dim1:5]\" a slot here" : "\"i4[dim1:5,dim0:5]\" a slot here";
      EXPECT_NE(text.find(here), std::string::npos) << text;
    }
    board().meet(context);
  });
}

/// Messages that are no Views say it by themselves, where a channel is opened and never elsewhere.
TEST(Messages, that_say_unlike_contents_are_a_mismatch) {
  run_peers({.ranks = 2, .keep_going = true, .untold = true}, [](Context& context) {
    const Rank peer = 1 - context.rank();
    int asked = 0;
    const auto exchange = [&](const std::string& name, const std::string& contents) {
      Messages<Exec> all(context, Exec(), name);
      for (int again = 0; again < 2; ++again) {
        const auto say = [&] { return ++asked, contents; };
        const auto in = all.receive(
            peer, 40, [](std::byte*) {}, say);
        const auto out = all.send(
            peer, 40, [](std::byte*) {}, say);
        all.wait(in);
        all.wait(out);
      }
    };
    exchange("alike", "5 particles");
    EXPECT_EQ(asked, 2) << "one channel each way";
    EXPECT_EQ(code_of([&] { exchange("unlike", context.rank() == 0 ? "5 particles" : "5 cells"); }), Code::mismatch);
    board().meet(context);
  });
}

/// A failure in the midst of a message leaves no data that the next one could take for its own.
TEST(Messages, that_cannot_be_unpacked_fail_what_follows_them) {
  run_peers({.ranks = 1}, [](Context& context) {
    Messages<Exec> all(context, Exec(), "all");
    const View view("view", 10);
    const auto first = all.send(0, 40, [](std::byte*) {});
    const auto second = all.send(view, 0);
    const auto odd = all.receive(0, 40, [](std::byte*) { throw std::runtime_error("cannot unpack"); });
    const auto sound = all.receive(view, 0);
    EXPECT_THROW(all.wait(odd), std::runtime_error);
    EXPECT_THROW(all.wait(sound), std::runtime_error);
    EXPECT_THROW(all.receive(view, 0), std::runtime_error);
    all.wait(first);
    all.wait(second);
  });
}

/// The channel of the first cannot be opened.
TEST(Messages, to_nobody_are_refused_each_time) {
  run_peers({.ranks = 1}, [](Context& context) {
    Messages<Exec> all(context, Exec(), "all");
    const View view("view", 10);
    for (int again = 0; again < 2; ++again) EXPECT_EQ(code_of([&] { all.send(view, 99); }), Code::bad_argument);
  });
}

TEST(Messages, of_one_name_are_refused_by_it) {
  run_peers({.ranks = 1}, [](Context& context) {
    const View view("view", 10);
    Messages<Exec> all(context, Exec(), "all");
    Messages<Exec> twice(context, Exec(), "all");
    const auto sent = all.send(view, 0);
    try {
      twice.send(view, 0);
      ADD_FAILURE() << "not refused";
    } catch (const Error& reason) {
      EXPECT_EQ(reason.code(), Code::misuse);
      EXPECT_NE(std::string(reason.what()).find("the set of messages 'all' cannot open its channels; those that"),
                std::string::npos)
          << reason.what();
    }
    all.wait(all.receive(view, 0));
    all.wait(sent);
  });
}

TEST(Messages, let_go_of_their_views_when_they_are_over) {
  run_peers({.ranks = 1}, [](Context& context) {
    Messages<Exec> all(context, Exec(), "all");
    const View sent("sent", 10);
    const View received("received", 10);
    const auto out = all.send(sent, 0);
    const auto in = all.receive(received, 0);
    all.wait(in);
    all.wait(out);
    EXPECT_EQ(sent.use_count(), 1);
    EXPECT_EQ(received.use_count(), 1);
  });
}

TEST(Messages, of_views_with_gaps_are_packed) {
  run_peers({.ranks = 2, .processes = true}, [](Context& context) {
    Messages<Exec> all(context, Exec(), "gaps");
    const std::array<Index, 3> extents{3, 4, 5};
    const auto sent = make_strided<double>("sent", extents);
    const auto received = make_view<double, Kokkos::LayoutRight>("received", extents);
    const Rank peer = 1 - context.rank();
    const auto value = [](const auto& at, Rank rank) {
      return static_cast<double>(at[0] * 100 + at[1] * 10 + at[2] + rank);
    };
    for_each_index(extents, [&](const auto& at) { element(sent, at) = value(at, context.rank()); });
    const auto out = all.send(sent, peer);
    all.wait(all.receive(received, peer));
    all.wait(out);
    for_each_index(extents, [&](const auto& at) { EXPECT_EQ(element(received, at), value(at, peer)); });
  });
}

}  // namespace
