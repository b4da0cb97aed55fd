// SPDX-License-Identifier: Apache-2.0
// The stream without a GPU: one order, whichever threads enqueue and whichever queue is full.
#include <sluice/error.hpp>
#include <sluice/stream.hpp>

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/words.hpp"
#include "device/host_stream.hpp"
#include "tests/unit/at_allocation.hpp"
#include "tests/unit/program.hpp"

namespace {
std::atomic<std::uint64_t> allocations{0};

void count_allocation() {
  ++allocations;
  const auto* const work = std::exchange(sluice::tests::at_allocation, nullptr);
  if (work == nullptr) return;
  const struct Again {
    const std::function<void()>* work;
    ~Again() { sluice::tests::at_allocation = work; }
  } again{work};
  (*work)();
}
}  // namespace

// Not inline: the compiler would see free() meet what it takes for another operator new.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  count_allocation();
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace sluice {
namespace {

HostStream::Impl& inner(HostStream& stream) { return *static_cast<HostStream::Impl*>(Stream::host(stream).handle()); }

/// A gate that work waits at, so that a test decides what is still queued.
class Gate {
 public:
  void open() {
    open_.store(true);
    open_.notify_all();
  }
  void pass() const { open_.wait(false); }

 private:
  std::atomic<bool> open_{false};
};

void wait_for(const std::atomic<int>& count, int at_least) {
  while (count.load() < at_least) std::this_thread::yield();
}

Code code_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return Code::transport;
}

std::vector<int> up_to(int count) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

TEST(HostStream, runs_in_the_order_of_enqueueing) {
  constexpr int kItems = 20000;
  HostStream stream(HostStream::Options{.capacity = 64});
  std::vector<int> order;
  for (int i = 0; i < kItems; ++i) {
    if (i % 3 == 0) {
      inner(stream).enqueue([&order, i] { order.push_back(i); });
    } else {
      stream.run([&order, i] { order.push_back(i); });
    }
    if (i % 1000 == 999) stream.synchronize();
  }
  stream.synchronize();
  EXPECT_EQ(order, up_to(kItems));
}

TEST(HostStream, keeps_the_order_of_each_of_many_producers) {
  constexpr int kProducers = 4;
  constexpr int kItems = 5000;
  HostStream stream(HostStream::Options{.capacity = 16});
  std::array<std::vector<int>, kProducers> orders;
  std::vector<std::thread> producers;
  for (auto& order : orders) {
    producers.emplace_back([&stream, &order] {
      for (int i = 0; i < kItems; ++i) {
        stream.run([&order, i] { order.push_back(i); });
        inner(stream).enqueue([&order] { order.back() += 0; });
        if (i % 500 == 499) stream.synchronize();
      }
      stream.synchronize();
      EXPECT_EQ(order.size(), std::size_t{kItems});  // what this thread enqueued has run, whatever the others do
    });
  }
  for (auto& producer : producers) producer.join();
  for (const auto& order : orders) EXPECT_EQ(order, up_to(kItems));
}

TEST(HostStream, runs_users_work_in_one_thread) {
  HostStream stream;
  std::thread::id thread;
  stream.run([&] { thread = std::this_thread::get_id(); });
  for (int i = 0; i < 1000; ++i) {
    inner(stream).enqueue([] {});
    stream.synchronize();
    stream.run([&] { EXPECT_EQ(std::this_thread::get_id(), thread); });
    inner(stream).enqueue([] {});
    stream.synchronize();
  }
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(HostStream, runs_work_that_nobody_synchronizes_for_after_many_steps_that_the_host_ran) {
  HostStream stream;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 2000; ++i) {
      inner(stream).enqueue([] {});
      stream.synchronize();
    }
    std::atomic<int> ran{0};
    inner(stream).enqueue([&] { ran = 1; });
    wait_for(ran, 1);
    inner(stream).enqueue([] {});
    stream.run([&] { ran = 2; });
    wait_for(ran, 2);
  }
}

TEST(HostStream, blocks_who_enqueues_while_it_is_full) {
  HostStream stream(HostStream::Options{.capacity = 3});  // rounded up to 4
  Gate gate;
  std::atomic<int> enqueued{0};
  std::atomic<int> ran{0};
  stream.run([&] { gate.pass(); });
  std::thread producer([&] {
    for (int i = 0; i < 8; ++i) {
      stream.run([&] { ++ran; });
      ++enqueued;
    }
  });
  wait_for(enqueued, 3);
  // Time enough to do the wrong thing; the right thing takes none, so no machine is too slow for this.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(enqueued, 3);
  gate.open();
  producer.join();
  stream.synchronize();
  EXPECT_EQ(ran, 8);
}

TEST(HostStream, never_blocks_from_inside_and_keeps_the_order) {
  constexpr int kInside = 50;
  HostStream stream(HostStream::Options{.capacity = 4});
  Gate gate;
  std::vector<int> order;
  std::atomic<int> outside{0};
  stream.run([&] {
    gate.pass();
    for (int i = 0; i < kInside; ++i) {
      stream.run([&order, i] { order.push_back(1000 + i); });
      EXPECT_TRUE(inner(stream).inside());
    }
  });
  for (int i = 0; i < 3; ++i) stream.run([&order, i] { order.push_back(i); });
  gate.open();
  stream.synchronize();  // its place is after what was enqueued from inside only if that came first
  stream.run([&order, &outside] {
    order.push_back(9999);
    outside = 1;
  });
  stream.synchronize();
  std::vector<int> expected = up_to(3);
  for (int i = 0; i < kInside; ++i) expected.push_back(1000 + i);
  expected.push_back(9999);
  EXPECT_EQ(order, expected);
  EXPECT_FALSE(inner(stream).inside());
}

TEST(HostStream, work_enqueued_from_inside_and_outside_has_one_order) {
  HostStream stream(HostStream::Options{.capacity = 8});
  std::vector<int> inside;
  std::vector<int> outside;
  for (int i = 0; i < 2000; ++i) {
    stream.run([&, i] {
      outside.push_back(i);
      for (int j = 0; j < 3; ++j) stream.run([&inside, i, j] { inside.push_back(3 * i + j); });
    });
  }
  stream.synchronize();  // all of the first, so all of the others are enqueued
  stream.synchronize();
  EXPECT_EQ(outside, up_to(2000));
  EXPECT_EQ(inside, up_to(6000));
}

TEST(HostStream, stops_at_an_exception_and_runs_the_librarys_own_work_on) {
  HostStream stream;
  int ran = 0;
  stream.run([] { throw std::runtime_error("first"); });
  stream.run([] { throw std::runtime_error("second"); });
  inner(stream).enqueue([&ran] { ++ran; });
  try {
    stream.synchronize();
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_EQ(ran, 1);
  EXPECT_NO_THROW(stream.synchronize());
}

device::SharedFailure lost(const std::string& what) {
  return std::make_shared<device::Failure>(Error(Code::peer_lost, 0, 1, 2, 3, what));
}

/// As a wait does whose channel has failed.
void fail_a_wait(HostStream& stream, const std::string& what) {
  inner(stream).enqueue([&impl = inner(stream), what] { impl.met(lost(what), true); });
}

TEST(HostStream, stops_after_a_failed_wait_until_somebody_synchronizes) {
  HostStream stream({.stop_after_failure = true});
  std::vector<int> ran;
  int own = 0;
  const auto run = [&](int number) { stream.run([&ran, number] { ran.push_back(number); }); };
  for (int round = 0; round < 3; ++round) {
    run(round);
    fail_a_wait(stream, "first");
    run(10);
    fail_a_wait(stream, "second");
    inner(stream).enqueue([&own] { ++own; });
    try {
      stream.synchronize();
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::peer_lost);
      EXPECT_NE(std::string(error.what()).find("first"), std::string::npos);
    }
    EXPECT_FALSE(stream.failed());
    EXPECT_EQ(code_of([&] { stream.synchronize(); }), Code::peer_lost);  // the second
    EXPECT_NO_THROW(stream.synchronize());
  }
  EXPECT_EQ(ran, up_to(3));
  EXPECT_EQ(own, 3);
}

TEST(HostStream, stops_for_what_a_callable_has_enqueued_too) {
  HostStream stream({.capacity = 4, .stop_after_failure = true});
  std::atomic<int> ran{0};
  Gate gate;
  stream.run([&] {
    for (int i = 0; i < 10; ++i) stream.run([&] { ++ran; });  // more than there is room for
    inner(stream).met(lost("lost"), true);
    gate.open();
  });
  gate.pass();
  EXPECT_EQ(code_of([&] { stream.synchronize(); }), Code::peer_lost);
  stream.run([&] { ran += 100; });
  EXPECT_NO_THROW(stream.synchronize());
  EXPECT_EQ(ran, 100);
}

TEST(HostStream, goes_on_after_a_failed_wait_unless_it_is_to_stop) {
  HostStream stream;
  bool failed = false;
  EXPECT_FALSE(stream.failed());
  fail_a_wait(stream, "lost");
  stream.run([&] { failed = stream.failed(); });
  EXPECT_EQ(code_of([&] { stream.synchronize(); }), Code::peer_lost);
  EXPECT_NO_THROW(stream.synchronize());
  EXPECT_TRUE(failed);
  EXPECT_FALSE(stream.failed());
}

TEST(HostStream, that_stops_throws_what_a_callable_threw_before) {
  HostStream stream({.stop_after_failure = true});
  bool ran = false;
  stream.run([] { throw std::runtime_error("thrown"); });
  fail_a_wait(stream, "lost");
  EXPECT_THROW(stream.synchronize(), std::runtime_error);
  EXPECT_EQ(code_of([&] { stream.synchronize(); }), Code::peer_lost);
  stream.run([&] { ran = true; });
  EXPECT_NO_THROW(stream.synchronize());
  EXPECT_TRUE(ran);
}

TEST(HostStream, throws_what_a_callable_threw_when_no_memory_was_left) {
  HostStream stream;
  for (int round = 0; round < 2; ++round) {
    stream.run([] {
      tests::at_allocation = &tests::no_memory;
      throw std::bad_alloc();
    });
    EXPECT_THROW(stream.synchronize(), std::bad_alloc);
    stream.run([] { tests::at_allocation = nullptr; });
    EXPECT_NO_THROW(stream.synchronize());
  }
}

TEST(HostStream, stops_after_a_failed_wait_when_no_memory_is_left) {
  HostStream stream({.stop_after_failure = true});
  const device::SharedFailure failure = lost("lost");
  bool ran = false;
  stream.run([&] {
    const tests::AtAllocation none(tests::no_memory);
    inner(stream).met(failure, true);
  });
  stream.run([&] { ran = true; });
  EXPECT_EQ(code_of([&] { stream.synchronize(); }), Code::peer_lost);
  EXPECT_FALSE(ran);
  stream.run([&] { ran = true; });
  EXPECT_NO_THROW(stream.synchronize());
  EXPECT_TRUE(ran);
}

TEST(HostStream, does_not_block_longer_than_it_may_where_its_last_place_is_taken_meanwhile) {
  bool taken = true;
  for (int before = 0; taken; ++before) {  // taken between any two steps of the call
    HostStream stream(HostStream::Options{.capacity = 4});
    Gate gate;
    std::atomic<int> ran{0};
    stream.run([&] { gate.pass(); });
    for (int i = 0; i < 2; ++i) stream.run([&] { ++ran; });
    int left = before;
    std::atomic<int> returned{0};
    std::thread host([&] {
      const tests::AtAllocation take_it([&] {
        if (left-- == 0) stream.run([&] { ++ran; });
      });
      EXPECT_EQ(code_of([&] { stream.synchronize(std::chrono::milliseconds(1)); }), Code::timeout);
      returned = 1;
    });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);  // far too long
    while (returned == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(returned, 1);
    gate.open();
    host.join();
    taken = left < 0 && returned == 1;
    stream.synchronize();
    EXPECT_EQ(ran, left < 0 ? 3 : 2);
  }
}

TEST(HostStream, refuses_to_synchronize_from_inside) {
  HostStream stream;
  stream.run([&] { stream.synchronize(); });
  EXPECT_EQ(code_of([&] { stream.synchronize(); }), Code::misuse);
}

TEST(HostStream, runs_everything_before_its_destructor_returns) {
  std::atomic<int> ran{0};
  {
    HostStream stream(HostStream::Options{.capacity = 4});
    for (int i = 0; i < 100; ++i) {
      stream.run([&, i] {
        ++ran;
        if (i == 99) stream.run([&ran] { ++ran; });
      });
    }
  }
  EXPECT_EQ(ran, 101);
}

TEST(HostStream, destruction_ends_a_parked_wait_and_runs_what_comes_after_it) {
  base::Word never;
  base::Parking parking;
  std::atomic<int> ended{0};
  {
    HostStream stream;
    HostStream::Impl& impl = inner(stream);
    for (int i = 0; i < 3; ++i) {
      impl.enqueue([&] {
        impl.parked_at(&parking);
        base::wait_until(parking, [&] { return base::reached(never, 1) || impl.ending(); });
        impl.parked_at(nullptr);
        ++ended;
      });
    }
    while (parking.sleepers.load() == 0) std::this_thread::yield();
  }
  EXPECT_EQ(ended, 3);
}

TEST(HostStream, moves_with_its_work_and_leaves_an_empty_one_that_refuses) {
  HostStream first;
  const Stream handle = Stream::host(first);
  Gate gate;
  std::atomic<int> ran{0};
  first.run([&] {
    gate.pass();
    ++ran;
  });
  HostStream second(std::move(first));
  EXPECT_EQ(Stream::host(second), handle);
  gate.open();
  second.run([&] { ++ran; });
  second.synchronize();
  EXPECT_EQ(ran, 2);
  // NOLINTBEGIN(bugprone-use-after-move): what such a stream does is the point.
  EXPECT_EQ(code_of([&] { first.run([] {}); }), Code::misuse);
  EXPECT_EQ(code_of([&] { first.synchronize(); }), Code::misuse);
  // NOLINTEND(bugprone-use-after-move)
  first = std::move(second);
  first.run([&] { ++ran; });
  first.synchronize();
  EXPECT_EQ(ran, 3);
}

TEST(HostStream, refuses_options_that_cannot_be_had) {
  const auto make = [](HostStream::Options options) { return code_of([&] { HostStream stream(options); }); };
  EXPECT_EQ(make({.capacity = 0}), Code::bad_argument);
  EXPECT_EQ(make({.cpu = -2}), Code::bad_argument);
  EXPECT_EQ(make({.cpu = 1 << 20}), Code::bad_argument);
  EXPECT_EQ(make({.cpu = CPU_SETSIZE - 1}), Code::bad_argument);
  EXPECT_EQ(make({.capacity = SIZE_MAX}), Code::out_of_resources);
  EXPECT_EQ(make({.capacity = std::size_t{1} << 50}), Code::out_of_resources);
}

TEST(HostStream, runs_on_the_core_it_was_given_with_signals_blocked_under_its_name) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int cpu = CPU_SETSIZE - 1;
  while (!CPU_ISSET(static_cast<unsigned>(cpu), &allowed)) --cpu;
  HostStream stream(HostStream::Options{.cpu = cpu});
  stream.run([&] {
    EXPECT_EQ(sched_getcpu(), cpu);
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    EXPECT_EQ(sigismember(&blocked, SIGINT), 1);
    std::array<char, 16> name{};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    EXPECT_STREQ(name.data(), "sluice-stream");
  });
  stream.synchronize();
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGINT), 0);
}

std::chrono::microseconds cpu_time_of_this_thread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// The second is not a wait for an event: it is what is measured.
TEST(HostStream, uses_no_cpu_while_idle) {
  HostStream stream;
  std::chrono::microseconds before{};
  std::chrono::microseconds after{};
  for (int i = 0; i < 1000; ++i) {  // the host runs these, so that the stream's thread has reason to doze
    inner(stream).enqueue([] {});
    stream.synchronize();
  }
  stream.run([&] { before = cpu_time_of_this_thread(); });
  stream.synchronize();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  stream.run([&] { after = cpu_time_of_this_thread(); });
  stream.synchronize();
  EXPECT_LT(after - before, std::chrono::milliseconds(50));
}

constexpr int kTwoFences = 42;

/// Ends the process with kTwoFences at the second of the fences by which those of `enqueue` are full ones (see
/// Words.a_light_fence*).
void end_at_two_heavy_fences() {
  struct sigaction action {};
  action.sa_handler = [](int) {
    static std::atomic<int> fences{0};
    if (++fences == 2) _exit(kTwoFences);
  };
  ASSERT_EQ(sigaction(SIGSYS, &action, nullptr), 0);
  std::array<sock_filter, 6> filter{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{filter.size(), filter.data()};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

TEST(HostStream, passes_two_heavy_fences_when_its_thread_falls_asleep) {
  base::prepare_fences();
  if (!base::kernel_has_fences) GTEST_SKIP() << "the kernel has no membarrier: all fences are full ones";
  tests::Program sleeper([] {
    end_at_two_heavy_fences();
    const HostStream stream;
    std::this_thread::sleep_for(std::chrono::seconds(20));  // it takes milliseconds
    return 0;
  });
  EXPECT_EQ(sleeper.result().code, kTwoFences);
}

TEST(HostStream, allocates_nothing_to_enqueue_64_bytes_and_to_synchronize) {
  struct Payload {
    std::array<std::uint64_t, 7> numbers{};
    std::uint64_t* sum = nullptr;
  };
  static_assert(sizeof(Payload) == 64);
  HostStream stream;
  std::uint64_t sum = 0;
  Payload payload;
  payload.numbers.fill(3);
  payload.sum = &sum;
  const auto work = [payload] { *payload.sum += payload.numbers[6]; };
  const std::uint64_t before = allocations;
  for (int i = 0; i < 10000; ++i) {
    stream.run(work);
    inner(stream).enqueue(work);
    if (i % 100 == 0) stream.synchronize();
  }
  stream.synchronize();
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(sum, 60000u);
}

TEST(HostStream, takes_work_of_any_size_and_destroys_each_once) {
  struct Large {
    std::array<char, 200> bytes{};
    std::shared_ptr<int> shared;
  };
  auto shared = std::make_shared<int>(0);
  {
    HostStream stream;
    for (int i = 0; i < 100; ++i) {
      stream.run([large = Large{{}, shared}] { ++*large.shared; });
      stream.run([small = std::make_unique<std::shared_ptr<int>>(shared)] { ++**small; });
    }
    stream.synchronize();
    EXPECT_EQ(*shared, 200);
  }
  EXPECT_EQ(shared.use_count(), 1);
}

}  // namespace
}  // namespace sluice
