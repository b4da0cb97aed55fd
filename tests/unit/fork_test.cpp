// SPDX-License-Identifier: Apache-2.0
// Ranks that fork: what they have stays theirs, whatever the child does, and the child may make ranks of its own. This
// program starts itself as such ranks, with "--as WHAT".
#include "base/fork.hpp"

#include <sluice/sluice.hpp>

#include <gtest/gtest.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/process.hpp"
#include "base/words.hpp"
#include "device/memory.hpp"
#include "tests/unit/program.hpp"

namespace {

using namespace sluice;
using sluice::tests::contains;
using sluice::tests::Program;
using sluice::tests::Result;

void require(bool fact, const std::string& what) {
  if (!fact) throw std::runtime_error("not so: " + what);
}

/// Ends a child that hangs. Threads of host streams block signals.
void limit_child() {
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
  ::alarm(20);
}

/// The exit code of `work`, in a child.
template <class Work>
int in_child(Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    limit_child();
    ::_exit(work());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// ---- what the library builds on ----

struct Counted {
  int value = 0;
};
base::OnePerProcess<Counted> g_counted;

int look_around_in_children() {
  const base::Origin ours;
  if (!ours.here()) return 1;
  g_counted->value = 7;
  const std::uint64_t token = base::process_token();
  const base::Progress* const progress = &base::take_progress();
  const int code = in_child([&] {
    if (ours.here()) return 2;
    const base::Origin childs;
    if (!childs.here() || ours.here()) return 3;
    if (g_counted->value != 0 || base::process_token() == token) return 4;
    if (base::page_of(base::take_progress().word) == base::page_of(const_cast<base::Word&>(progress->word))) return 5;
    g_counted->value = 8;
    return in_child([&] { return childs.here() || ours.here() || g_counted->value != 0 ? 6 : 0; });
  });
  return code == 0 && (!ours.here() || g_counted->value != 7) ? 9 : code;
}

TEST(Fork, children_know_that_they_are_others_and_begin_anew) {
  EXPECT_EQ(in_child([] { return look_around_in_children(); }), 0);
}

/// From now on the kernel has no MADV_WIPEONFORK, as before 4.14.
void have_an_old_kernel() {
  ::madvise(&base::wiped_page, sizeof base::wiped_page, MADV_KEEPONFORK);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  std::array<sock_filter, 6> filter = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_WIPEONFORK, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{filter.size(), filter.data()};
  require(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "the filter is there");
  require(::madvise(&base::wiped_page, sizeof base::wiped_page, MADV_WIPEONFORK) != 0, "the kernel cannot wipe");
}

TEST(Fork, children_know_it_where_the_kernel_wipes_no_page) {
  EXPECT_EQ(in_child([] {
              have_an_old_kernel();
              return look_around_in_children();
            }),
            0);
}

TEST(Fork, processes_that_have_ended_are_known_by_their_names) {
  const std::string mine = base::process_name();
  EXPECT_EQ(in_child([&] { return base::has_ended(mine) || base::process_name() == mine; }), 0);
  Program program([] {
    const std::string name = base::process_name();
    return ::write(STDOUT_FILENO, name.data(), name.size()) == std::ssize(name) ? 0 : 1;
  });
  const Result child = program.result();
  EXPECT_EQ(child.code, 0);
  EXPECT_TRUE(base::has_ended(child.out)) << child.out;
  std::string elsewhere = child.out;
  elsewhere[elsewhere.find(' ') + 1] ^= 1;  // a digit of the boot
  EXPECT_FALSE(base::has_ended(elsewhere)) << elsewhere;
  for (std::size_t length = 0; length < child.out.size(); ++length) {
    EXPECT_FALSE(base::has_ended(child.out.substr(0, length))) << "half written: " << child.out.substr(0, length);
  }
}

// ---- what ranks do ----

constexpr std::size_t kWords = 64;
constexpr std::size_t kBytes = kWords * sizeof(std::uint64_t);

/// Words that processes share, for them to wait for each other.
std::atomic<int>& stage() {
  static auto* const words = [] {
    void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return new (page) std::atomic<int>(0);
  }();
  return *words;
}
void await_stage(int at_least) {
  while (stage().load() < at_least) std::this_thread::yield();
}

/// A channel each way between two ranks.
struct Ends {
  Ends(Context& context, Tag tag)
      : memory(context.allocate(2 * kBytes)), out(context.sender(1 - context.rank(), tag, memory.slice(0, kBytes))),
        in(context.receiver(1 - context.rank(), tag, memory.slice(kBytes, kBytes))) {}
  void close() {
    out.close();
    in.close();
  }

  Memory memory;
  Sender out;
  Receiver in;
};

std::uint64_t stamp(Rank rank, std::uint64_t epoch) { return static_cast<std::uint64_t>(rank + 1) * 1'000'000 + epoch; }

void exchange(Context& context, Ends& ends, Stream stream, int epochs) {
  for (int i = 0; i < epochs; ++i) {
    const Slice source = ends.out.acquire(stream);
    context.synchronize(stream);
    const std::uint64_t epoch = ends.out.epoch() + 1;
    std::ranges::fill(source.as<std::uint64_t>(), stamp(context.rank(), epoch));
    ends.out.put(stream);
    const Slice seen = ends.in.wait(stream);
    context.synchronize(stream);
    const auto right = stamp(1 - context.rank(), epoch);
    require(std::ranges::count(seen.as<std::uint64_t>(), right) == kWords, "the words are those of the epoch");
    ends.in.release(stream);
  }
}

/// The channels, plan and stream of a rank that forks.
struct Rig {
  explicit Rig(Context& its, bool with_stream) : context(its), ends(context, 1), planned(context, 2) {
    if (with_stream) host.emplace();
    plan.add(planned.out).add(planned.in);
    plan.commit(stream());
    exchange(context, ends, stream(), 20);
  }
  Stream stream() { return host ? Stream::host(*host) : Stream::program_order(); }
  /// All data arrives, and closing works.
  void go_on() {
    exchange(context, ends, stream(), 20);
    Ends more(context, 3);
    exchange(context, more, stream(), 20);
    more.close();
    ends.close();
    planned.close();
  }

  Context& context;
  std::optional<HostStream> host;
  Ends ends;
  Ends planned;
  Plan plan = context.plan();
};

/// The windows of a rank that forks.
struct WindowRig {
  WindowRig(Context& its, const std::string& name)
      : context(its), memory(context.allocate(2 * kBytes)), window(context.window(name, memory.slice(0, kBytes), 1)),
        target(context.target(1 - context.rank(), name)), all(context, "all", memory.slice(kBytes, kBytes / 2)) {
    reach();
  }
  Stream stream() const { return Stream::program_order(); }
  Slice local() const { return memory.slice(2 * kBytes - kWord, kWord); }
  /// Both ways of a target, and a lock that has been taken lately.
  void reach() {
    target.fetch_add(0, 1);
    target.put_notify(stream(), local(), kWord, 0);
    window.wait(stream(), 0, ++notified);
    for (int i = 0; i < 2; ++i) {
      all.lock(0, CollectiveWindow::Lock::exclusive);
      all.target(0).fetch_add(0, 1);
      all.unlock(0);
    }
    all.fence();
  }
  void go_on() {
    if (locked) all.unlock(0);
    reach();
    const Slice whole = memory.slice(0, 2 * kBytes);
    const auto words = whole.as<std::uint64_t>();
    require(words[0] == 2, "the peer alone has added");
    require(words[kWords] == (context.rank() == 0 ? 8U : 0U), "the ranks alone have locked");
    all.close();
    target.close();
    window.close();
  }

  static constexpr std::size_t kWord = sizeof(std::uint64_t);
  Context& context;
  Memory memory = {};
  Window window;
  Target target;
  CollectiveWindow all;
  std::uint64_t notified = 0;
  bool locked = false;
};

using Child = void (*)(Rig& rig);

/// Rank `forks` forks, and waits for the child to end with `code` before it goes on. Returns true in the child, which
/// then leaves the body.
template <class Its>
bool fork_and_go_on(Its& rig, std::type_identity_t<void (*)(Its&)> child, int code, Rank forks = 0) {
  if (rig.context.rank() != forks) {
    rig.go_on();
    return false;
  }
  const pid_t pid = ::fork();
  if (pid == 0) {
    limit_child();
    child(rig);
    return true;
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  require(WIFEXITED(status) && WEXITSTATUS(status) == code, "the child's exit code: " + std::to_string(status));
  rig.go_on();
  return false;
}

std::array<std::optional<Rig>, 2> g_rigs;  // of thread ranks too

void expect_misuse(const std::function<void()>& call, int line) {
  try {
    call();
  } catch (const Error& error) {
    if (error.code() == Code::misuse && contains(error.what(), "forked")) return;
    throw std::runtime_error("another error: " + std::string(error.what()));
  }
  throw std::runtime_error("no misuse in line " + std::to_string(line));
}

void try_all_calls(Rig& rig) {
  Context& context = rig.context;
  const Stream stream = rig.stream();
  Sender& out = rig.ends.out;
  Receiver& in = rig.ends.in;
  const std::vector<std::function<void()>> calls = {
      [&] { out.acquire(stream); },
      [&] { out.put(stream); },
      [&] { out.put(stream, 0, 8); },
      [&] { out.drain(); },
      [&] { static_cast<void>(out.connected()); },
      [&] { out.wait_connected(); },
      [&] { static_cast<void>(out.describe()); },
      [&] { out.close(); },
      [&] { in.wait(stream); },
      [&] { in.release(stream); },
      [&] { static_cast<void>(in.test()); },
      [&] { static_cast<void>(in.wait_for(std::chrono::milliseconds(1))); },
      [&] { in.close(); },
      [&] { rig.plan.acquire(stream); },
      [&] { rig.plan.start(stream); },
      [&] { rig.plan.wait(stream); },
      [&] { rig.plan.release(stream); },
      [&] { static_cast<void>(rig.plan.describe()); },
      [&] { context.plan().add(out); },
      [&] { context.allocate(kBytes); },
      [&] { context.sender(1, 9, rig.ends.memory.slice(0, kBytes)); },
      [&] { static_cast<void>(context.scope("s")); },
      [&] { context.synchronize(stream); },
      [&] { context.check(); },
      [&] { context.abort("a child"); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) expect_misuse(calls[i], static_cast<int>(i));
  if (!rig.host) return;
  expect_misuse([&] { rig.host->run([] {}); }, __LINE__);
  expect_misuse([&] { rig.host->synchronize(); }, __LINE__);
  HostStream own;
  int ran = 0;
  own.run([&] { ++ran; });
  own.synchronize();
  require(ran == 1, "a stream of the child's own runs");
  *rig.host = std::move(own);
}

void try_all_calls_of_windows(WindowRig& rig) {
  Context& context = rig.context;
  const Stream stream = rig.stream();
  const Slice local = rig.local();
  Target& target = rig.target;
  Window& window = rig.window;
  CollectiveWindow& all = rig.all;
  const std::array<Rank, 1> self{context.rank()};
  const std::vector<std::function<void()>> calls = {
      [&] { target.put(stream, local, 0); },
      [&] { target.get(stream, local, 0); },
      [&] { target.put_notify(stream, local, 0, 0); },
      [&] { target.get_notify(stream, local, 0, 0); },
      [&] { target.put_tagged(stream, local, 0, 1); },
      [&] { target.notify(stream, 0); },
      [&] { target.accumulate(stream, Op::sum, Number::uint64, local, 0); },
      [&] { target.fetch_add(stream, 0, 1, local); },
      [&] { static_cast<void>(target.fetch_add(0, 1)); },
      [&] { static_cast<void>(target.swap(0, 1)); },
      [&] { static_cast<void>(target.compare_swap(0, 1, 2)); },
      [&] { target.flush(stream); },
      [&] { target.flush_local(stream); },
      [&] { target.drain(); },
      [&] { static_cast<void>(target.bytes()); },
      [&] { static_cast<void>(target.mapped()); },
      [&] { static_cast<void>(target.describe()); },
      [&] { target.close(); },
      [&] { window.wait(stream, 0, 1); },
      [&] { static_cast<void>(window.wait_for(0, 1, Timeout::zero())); },
      [&] { static_cast<void>(window.count(0)); },
      [&] { static_cast<void>(window.fetch_and_zero(0)); },
      [&] { static_cast<void>(window.match(kAnySource, kAnyTag, Timeout::zero())); },
      [&] { static_cast<void>(window.handle(0, 8)); },
      [&] { static_cast<void>(window.attach(local)); },
      [&] { window.close(); },
      [&] { static_cast<void>(all.target(0)); },
      [&] { all.fence(); },
      [&] { all.post(self); },
      [&] { all.start(self); },
      [&] { all.lock(0, CollectiveWindow::Lock::exclusive); },
      [&] { all.lock(0, CollectiveWindow::Lock::shared); },
      [&] { all.lock_all(); },
      [&] { all.flush(0); },
      [&] { all.flush_all(); },
      [&] { all.close(); },
      [&] { static_cast<void>(context.window("another", local)); },
      [&] { static_cast<void>(context.target(0, "words")); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) expect_misuse(calls[i], static_cast<int>(i));
}

void make_ranks(Rig& rig) {
  const Stream parents = rig.stream();
  const int code = run_threads(2, [&](Context& context) {
    HostStream stream;
    Ends ends(context, 1);
    const Slice slice = ends.memory.slice(0, kBytes);
    const auto words = slice.as<std::uint64_t>();
    if (context.rank() == 0) {
      std::ranges::fill(words, 5);
      stage() = 1;
      await_stage(2);
      require(std::ranges::count(words, 5U) == kWords, "the parent has other memory");
    }
    exchange(context, ends, Stream::host(stream), 100);
    if (parents.kind() == Stream::Kind::host) expect_misuse([&] { ends.out.put(parents); }, __LINE__);
    expect_misuse([&] { rig.ends.out.put(rig.stream()); }, __LINE__);
    ends.close();
  });
  ::_exit(code);
}

void fork_and_share_no_memory(Rig& rig) {
  if (rig.context.rank() != 0) return rig.go_on();
  stage() = 0;
  const pid_t pid = ::fork();
  if (pid == 0) {
    limit_child();
    make_ranks(rig);
  }
  await_stage(1);
  const Memory memory = rig.context.allocate(2 * kBytes);
  const Slice slice = memory.slice(0, memory.bytes());
  const auto words = slice.as<std::uint64_t>();
  std::ranges::fill(words, 3);
  stage() = 2;
  int status = 0;
  ::waitpid(pid, &status, 0);
  require(status == 0, "the child's ranks did well: " + std::to_string(status));
  require(std::ranges::count(words, 3U) == 2 * kWords, "the child has other memory");
  rig.go_on();
}

/// The child comes back into a stream that still has work.
void fork_inside_the_stream(Rig& rig) {
  if (rig.context.rank() != 0) return rig.go_on();
  std::atomic<bool> queued{false};
  pid_t pid = -1;
  rig.host->run([&] {
    queued.wait(false);
    pid = ::fork();
    if (pid == 0) limit_child();
  });
  rig.host->run([] { ++stage(); });
  queued = true;
  queued.notify_all();
  rig.host->synchronize();
  int status = 0;
  ::waitpid(pid, &status, 0);
  require(status == 0, "the child's end: " + std::to_string(status));
  require(stage() == 1, "what was queued has run once");
  rig.go_on();
}

void return_from_body(Rig&) {}
void throw_something(Rig&) { throw std::runtime_error("the child had enough"); }
void call_run(Rig&) {
  ::_exit(run(0, nullptr, [](Context&) {}) == 2 ? 0 : 1);
}
void destroy_one_end(Rig& rig) {
  rig.ends.out = Sender();
  ::_exit(0);
}
void close_and_destroy_all(Rig& rig) {
  try_all_calls(rig);
  rig.plan = Plan();
}

void with_global_rig(Context& context) {
  auto& rig = g_rigs.at(static_cast<std::size_t>(context.rank()));
  rig.emplace(context, true);
  fork_and_go_on(
      *rig, [](Rig&) { std::exit(7); }, 7);
  rig.reset();
}

template <auto kWork, auto... kMore>
void with_rig(Context& context) {
  for (const bool with_stream : {false, true}) {
    Rig rig(context, with_stream);
    if (fork_and_go_on(rig, kWork, kMore...)) return;
  }
}

void with_windows(Context& context) {
  {
    WindowRig rig(context, "words");
    if (fork_and_go_on(rig, try_all_calls_of_windows, 0)) return;
  }
  WindowRig rig(context, "words of a rank with a lock");
  rig.locked = context.rank() == 0;
  if (rig.locked) rig.all.lock(0, CollectiveWindow::Lock::exclusive);
  fork_and_go_on(
      rig, [](WindowRig& childs) { expect_misuse([&] { childs.all.unlock(0); }, __LINE__); }, 0);
}

void with_ranks_of_its_own(Context& context) {
  for (const bool with_stream : {false, true}) {
    Rig rig(context, with_stream);
    fork_and_share_no_memory(rig);
  }
}

void fork_in_a_stream(Context& context) {
  Rig rig(context, true);
  fork_inside_the_stream(rig);
}

const std::map<std::string, void (*)(Context&), std::less<>> kBodies = {
    {"returns_from_the_body", with_rig<return_from_body, 0>},
    {"returns_from_the_body_of_rank_1", with_rig<return_from_body, 0, 1>},
    {"throws", with_rig<throw_something, 1>},
    {"throws_in_the_body_of_rank_1", with_rig<throw_something, 1, 1>},
    {"calls_run", with_rig<call_run, 0>},
    {"exits_with_global_channels", with_global_rig},
    {"destroys_one_end", with_rig<destroy_one_end, 0>},
    {"tries_all_calls", with_rig<close_and_destroy_all, 0>},
    {"tries_all_calls_of_windows", with_windows},
    {"makes_ranks_of_its_own", with_ranks_of_its_own},
    {"is_forked_inside_a_stream", fork_in_a_stream},
};

int act_as(int argc, char** argv) {
  ::alarm(60);
  stage() = 0;
  return run(argc, argv, kBodies.find(std::string_view(argv[2]))->second);
}

// ---- the tests ----

class ForkedRank : public testing::TestWithParam<std::string> {
 protected:
  static Result ranks(const std::string& what) {
    Program program([&] {
      std::vector<std::string> words = {"sluice-run", "-n", "2", "/proc/self/exe", "--as", what};
      if (GetParam() == "threads") words.insert(words.begin() + 1, "--threads");
      if (GetParam() == "ofi_tcp") ::setenv("SLUICE_BACKENDS", "ofi:tcp", 1);
      std::vector<char*> pointers;
      for (std::string& word : words) pointers.push_back(word.data());
      return launch(static_cast<int>(pointers.size()), pointers.data());
    });
    return program.result();
  }
  static void expect_well(const std::string& what) {
    const Result result = ranks(what);
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.err, "");
  }
};

TEST_P(ForkedRank, goes_on_when_its_child_returns_from_the_body) { expect_well("returns_from_the_body"); }

TEST_P(ForkedRank, goes_on_when_the_child_of_another_returns_from_the_body) {
  expect_well("returns_from_the_body_of_rank_1");
}

TEST_P(ForkedRank, goes_on_when_its_child_throws) {
  const Result result = ranks("throws");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "sluice: rank 0: the child had enough\nsluice: rank 0: the child had enough\n");
}

TEST_P(ForkedRank, goes_on_when_the_child_of_another_throws) {
  const Result result = ranks("throws_in_the_body_of_rank_1");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "sluice: rank 1: the child had enough\nsluice: rank 1: the child had enough\n");
}

TEST_P(ForkedRank, refuses_run_to_its_child) {
  const Result result = ranks("calls_run");
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(contains(result.err, "sluice::run_threads any number of times")) << result.err;
}

TEST_P(ForkedRank, goes_on_when_its_child_exits_with_global_channels) { expect_well("exits_with_global_channels"); }

TEST_P(ForkedRank, goes_on_when_its_child_destroys_one_end) { expect_well("destroys_one_end"); }

TEST_P(ForkedRank, lends_nothing_to_its_child) { expect_well("tries_all_calls"); }

TEST_P(ForkedRank, lends_no_window_to_its_child) { expect_well("tries_all_calls_of_windows"); }

TEST_P(ForkedRank, shares_no_memory_with_ranks_of_its_child) { expect_well("makes_ranks_of_its_own"); }

TEST_P(ForkedRank, runs_its_stream_alone) { expect_well("is_forked_inside_a_stream"); }

INSTANTIATE_TEST_SUITE_P(Ranks, ForkedRank, testing::Values("threads", "processes", "ofi_tcp"),
                         [](const auto& one) { return one.param; });

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--as") return act_as(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
