// SPDX-License-Identifier: Apache-2.0
// Nothing grows: many thousand channels opened and closed leave memory and descriptors as they were.
#include <dirent.h>
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "runtime/handles.hpp"
#include "runtime/sender.hpp"
#include "tests/conformance/cases.hpp"

namespace {
/// Work of the calling thread before its next attempt to lock a mutex without waiting (try_lock); null: none.
thread_local const std::function<void()>* before_try_lock = nullptr;
}  // namespace

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the name is glibc's own
extern "C" int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  using TryLock = int (*)(pthread_mutex_t*);
  static std::atomic<TryLock> of_libc{nullptr};
  if (of_libc.load() == nullptr) of_libc = reinterpret_cast<TryLock>(dlsym(RTLD_NEXT, "pthread_mutex_trylock"));
  if (const auto* const work = std::exchange(before_try_lock, nullptr)) (*work)();
  return of_libc.load()(mutex);
}
#endif

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kLeftEnqueued =
    1;  // on the board: in which round the leftovers are enqueued; kGo: in which the stream may come to them
constexpr std::size_t kGrown = 2;  // the last call of some work that has left something behind in a rank

struct Usage {
  long resident_kib = 0;
  int descriptors = 0;
  int mappings = 0;
};

Usage usage() {
  if (!kSanitized) ::malloc_trim(0);  // a sanitizer's allocator is another, and glibc's has not begun
  Usage now;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") status >> now.resident_kib;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++now.mappings;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (folder != nullptr && ::readdir(folder) != nullptr) ++now.descriptors;
  if (folder != nullptr) ::closedir(folder);
  return now;
}

class Lifetime : public testing::TestWithParam<Case> {};

/// Two ranks open a channel each way, pass an epoch and close, `rounds` times. Every hundredth time their memory is new
/// too.
void open_and_close(Context& context, const Case& one, int rounds) {
  Order order(one);
  const Rank other = 1 - context.rank();
  std::optional<Buffer> source;
  std::optional<Buffer> target;
  for (int round = 0; round < rounds; ++round) {
    if (round % 100 == 0) {
      source.emplace(context, one);
      target.emplace(context, one);
    }
    Sender sender = context.sender(other, kTag, source->all());
    Receiver receiver = context.receiver(other, kTag, target->all());
    const auto epoch = static_cast<std::uint64_t>(round);
    order.run([slot = sender.acquire(order.stream()), stamp = Stamp{context.rank(), kTag, epoch}] {
      fill(bytes_of(slot), stamp);
    });
    sender.put(order.stream());
    order.run(
        [slot = receiver.wait(order.stream()), stamp = Stamp{other, kTag, epoch}] { expect_and_poison(slot, stamp); });
    if (round % 2 == 0) receiver.release(order.stream());
    context.synchronize(order.stream());
  }
}

/// Names what has grown by more than chance, with its growth.
std::string growth(const Usage& before, const Usage& after) {
  const auto more = [](const std::string& what, long grown, long most) {
    return grown > most ? what + ": " + std::to_string(grown) + " more; " : "";
  };
  std::string all = more("descriptors", after.descriptors - before.descriptors, 4);     // of a rank that counts its own
  all += more("mappings", after.mappings - before.mappings, kSanitized ? 40 : 8);       // a leak would be 120 and more
  if (!kSanitized) all += more("KiB", after.resident_kib - before.resident_kib, 1024);  // it keeps what is freed
  return all;
}

constexpr int kCalls = 4;

/// Calls `work()` up to kCalls times, and asserts that one call leaves nothing behind. Threads take memory once more
/// when more of them than before happen to run at a time; a leak grows in each call.
template <class Work>
void expect_flat(Context& context, Work work) {
  for (std::uint64_t call = 1; call <= kCalls; ++call) {
    board().meet(context);
    const Usage before = usage();
    work();
    board().meet(context);
    const std::string grown = growth(before, usage());
    if (call == kCalls) {
      EXPECT_EQ(grown, "");
    }
    if (!grown.empty()) board().set(kGrown, call);
    board().meet(context);
    if (board().word(kGrown).load() < call) return;
  }
}

/// libfabric's pools hand out their buffers one after the other, each a new page, before any comes again. Few rounds do
/// not show that.
void use_all_buffers(Context& context, const Case& one, std::uint64_t rounds) {
  if (!one.ground.network || one.ground.slow || rounds <= 1000) return;
  const Buffer buffer(context, one, 2 * one.bytes);
  const Rank other = 1 - context.rank();
  Sender sender = context.sender(other, kTag, buffer.all().slice(0, one.bytes));
  Receiver receiver = context.receiver(other, kTag, buffer.all().slice(one.bytes, one.bytes));
  for (int i = 0; i < 400'000; ++i) {
    sender.put({});
    receiver.wait({});
    receiver.release({});
  }
}

void expect_flat(const Case& one, int rounds) {
  Peers peers = one.peers();
  peers.limit = std::chrono::milliseconds(20'000 + kCalls * rounds * (one.ground.network ? 60 : 10));
  run_peers(peers, [&](Context& context) {
    open_and_close(context, one, rounds / 10);  // warm
    use_all_buffers(context, one, static_cast<std::uint64_t>(rounds));
    expect_flat(context, [&] { open_and_close(context, one, rounds); });
  });
}

TEST_P(Lifetime, opening_and_closing_leaves_nothing_behind) {
  const Ground& ground = GetParam().ground;
  const int rounds = !ground.network ? 5000 : ground.polled ? 300 : 1000;
  expect_flat(GetParam(), kSanitized ? 300 : rounds);
}

class LongLifetime : public testing::TestWithParam<Case> {};

TEST_P(LongLifetime, opening_and_closing_leaves_nothing_behind) {
  expect_flat(GetParam(), kSanitized || GetParam().ground.network ? 10'000 : 50'000);
}

/// Puts that are armed when their receiver closes, and for which no ring follows.
class Leftovers : public testing::TestWithParam<Case> {};

constexpr int kLeft = 2;  // of each round

/// One epoch that arrives, then kLeft that the stream comes to when it is too late. In odd rounds the sender begins to
/// close before that.
void leave_some(Context& context, const Case& one, HostStream& host, const Buffer& source, std::uint64_t round) {
  const Stream stream = Stream::host(host);
  Sender sender = context.sender(1, kTag, source.all(), {.depth = one.depth});
  fill(bytes_of(sender.acquire(stream)), {0, kTag, 1});
  sender.put(stream);
  sender.drain();
  if (one.ground.arms) {
    EXPECT_TRUE(sender.describe().ends_with("fired by the NIC")) << sender.describe();
  }
  host.run([round] { board().await(kGo, round); });
  for (int i = 0; i < kLeft; ++i) sender.put(stream);
  board().set(kLeftEnqueued, round);
  expect_within(10s, [&] { return is_refused(sender, stream); });
  if (round % 2 == 1) expect_code(Code::timeout, [&] { sender.close(Timeout::zero()); });
  board().set(kGo, round);
  sender.close();
  board().meet(context);
}

void close_before_they_come(Context& context, const Case& one, const Buffer& target, std::uint64_t round) {
  Receiver receiver = context.receiver(0, kTag, target.all(), {.depth = one.depth});
  expect_and_poison(receiver.wait({}), {0, kTag, 1});
  board().await(kLeftEnqueued, round);
  receiver.close();
  board().meet(context);
  EXPECT_EQ(unlike_poison(target.bytes()), "");
}

void leave_and_close(Context& context, const Case& one, std::uint64_t first, std::uint64_t rounds) {
  Case deep = one;
  deep.depth = 1 + kLeft + static_cast<int>(context.rank() == 0);  // nor does the source hold the sender
  HostStream host({.capacity = 64});  // its queue takes memory until each place was used once
  const Buffer buffer(context, deep);
  for (std::uint64_t round = first; round < first + rounds; ++round) {
    if (context.rank() == 0) {
      leave_some(context, deep, host, buffer, round);
    } else {
      close_before_they_come(context, deep, buffer, round);
    }
  }
}

/// The NIC has entries for one round only.
void expect_no_leftovers(const Case& one, std::uint64_t rounds) {
  Peers peers = one.peers();
  peers.limit = std::chrono::milliseconds(20'000 + kCalls * rounds * 100);
  peers.environment = {"SLUICE_TRIGGER_ENTRIES=4", "EMUCXI_TLES=16"};
  run_peers(peers, [&](Context& context) {
    std::uint64_t first = 1;
    const auto pass = [&](std::uint64_t count) {
      leave_and_close(context, one, first, count);
      first += count;
    };
    pass(30 + rounds / 10);
    use_all_buffers(context, one, rounds);
    if (kSanitized) return pass(rounds);  // a sanitizer maps memory for the many errors that are thrown here
    expect_flat(context, [&] { pass(rounds); });
  });
}

TEST_P(Leftovers, are_disposed_of_and_leave_nothing_behind) {
  expect_no_leftovers(GetParam(), kSanitized || GetParam().ground.slow ? 40 : 200);
}

class LongLeftovers : public testing::TestWithParam<Case> {};

TEST_P(LongLeftovers, are_disposed_of_and_leave_nothing_behind) { expect_no_leftovers(GetParam(), 10'000); }

/// Contexts, too: their threads, sockets and pages end with them.
TEST(Contexts, leave_nothing_behind) {
  run_peers({.ranks = 1, .limit = kCalls * 60s}, [](Context& all) {
    const auto rounds = [](int count) {
      for (int i = 0; i < count; ++i) {
        const int code = run_threads(3, [](Context& context) {
          const Memory memory = context.allocate(128);
          Sender sender = context.sender((context.rank() + 1) % 3, 1, memory.slice(0, 64));
          Receiver receiver = context.receiver((context.rank() + 2) % 3, 1, memory.slice(64, 64));
          sender.put({});
          receiver.wait({});
        });
        ASSERT_EQ(code, 0);
      }
    };
    rounds(10);
    expect_flat(all, [&] { rounds(kSanitized ? 40 : 200); });
  });
}

/// Runs a rank whose only put a host stream fires, by `put`. The thread of the stream stands still in its turn of the
/// engine, before it has it, until the context has ended.
void expect_that_a_put_keeps_the_engine(const std::function<void(Sender&, Stream)>& put) {
  std::atomic<bool> turns{false}, goes_on{false};
  std::weak_ptr<const runtime::Services> services;
  HostStream host;
  const std::function<void()> stand_still = [&] {
    turns = true;
    while (!goes_on) std::this_thread::yield();
  };
  Options options;
  options.backends = "ofi:tcp";
  const auto close_behind_the_put = [&](Context& context) {
    const Memory memory = context.allocate(256);
    Receiver receiver = context.receiver(0, 1, memory.slice(0, 128), {.depth = 2});
    Sender sender = context.sender(0, 1, memory.slice(128, 128), {.depth = 2});
    sender.wait_connected();
    receiver.wait_connected();
    services = detail::ChannelAccess::end(sender)->own_services();
    host.run([&] { before_try_lock = &stand_still; });
    put(sender, Stream::host(host));
    while (!turns) std::this_thread::yield();
    receiver.wait({});
    receiver.close();
    sender.close();
  };
  EXPECT_EQ(run_threads(1, close_behind_the_put, options), 0);
  EXPECT_FALSE(services.expired());
  goes_on = true;
  host.synchronize();
  EXPECT_TRUE(services.expired());
}

TEST(Contexts, leave_the_engine_to_streams_that_use_it) {
  if (kSanitized) return skipped_here("a sanitizer has replaced pthread_mutex_trylock");
  if (const std::string why = why_unusable("ofi:tcp"); !why.empty()) return skipped_here(why);
  run_peers({.ranks = 1}, [](Context&) {
    expect_that_a_put_keeps_the_engine([](Sender& sender, Stream stream) { sender.put(stream); });
    expect_that_a_put_keeps_the_engine([](Sender& sender, Stream stream) { sender.put(stream, 1); });
  });
}

std::vector<Case> some(bool host) {
  std::vector<Case> cases = memory_cases();
  std::erase_if(cases, [&](const Case& one) { return one.host != host; });
  return cases;
}
INSTANTIATE_IN_ITS_RANKS(Quick, Lifetime, testing::ValuesIn(some(false)), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Lifetime, full_cases([] { return with_sizes(some(true), {0, 100'000}); }), CaseName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LongLifetime);  // in runs without Full
// Their streams are host streams all the same.
INSTANTIATE_IN_ITS_RANKS(Quick, Leftovers, testing::ValuesIn(inline_only(stream_cases())), CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Leftovers, testing::ValuesIn(on(wrapped_grounds(), {Case{}})), CaseName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LongLeftovers);
INSTANTIATE_IN_ITS_RANKS(Full, LongLeftovers, full_cases([] { return inline_only(stream_cases()); }), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, LongLifetime, full_cases([] { return some(false); }), CaseName());

}  // namespace
