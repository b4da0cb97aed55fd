// SPDX-License-Identifier: Apache-2.0
#include "tests/peers.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include "backends/transport.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "tests/chosen.hpp"
#include "tests/gpu_stream.hpp"

namespace sluice::test {
namespace {

constexpr const char* kBoardVariable = "SLUICE_USER_TEST_BOARD";
constexpr std::string_view kCallFlag = "--peers-call=";
constexpr std::string_view kTableFlag = "--cases=";        // FILE, see tests/chosen.hpp
constexpr std::string_view kPartsFlag = "--one-case-of=";  // N
// Time limit of every call, in milliseconds. tests/mutants.py lowers it, because a mutant often makes ranks hang.
constexpr const char* kLimitVariable = "SLUICE_USER_TEST_LIMIT_MS";
// How many times longer ranks may take, for rows of tests that run for hours beside others.
constexpr const char* kPatienceVariable = "SLUICE_USER_TEST_PATIENCE";
constexpr int kNeverReached = 97;

int g_calls = 0;        // of run_peers in this test so far
int g_call_to_run = 0;  // in a rank: the call whose body it runs; 0: this is the test itself
Board* g_board = nullptr;

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::abort();
}

/// Prints failures only, each in one piece, so that those of several ranks do not mix.
class RankPrinter final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const char* const file = result.file_name() == nullptr ? "?" : result.file_name();
    const std::string text =
        std::string(file) + ":" + std::to_string(result.line_number()) + ": " + result.message() + "\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  }
};

void report_failures_only() {
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new RankPrinter);
}

Board* map_board(int fd) {
  void* const at = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) die("mmap of the board");
  return static_cast<Board*>(at);
}

/// The call's own: zero pages, which every rank inherits open.
base::Fd make_board() {
  base::Fd fd(::memfd_create("board", 0));
  if (!fd || ::ftruncate(fd.get(), sizeof(Board)) != 0) die("memfd_create of the board");
  return fd;
}

// ---- in a rank

/// Ends the process. `run`: sluice::run or sluice::run_threads.
template <class Run>
[[noreturn]] void end_with_ranks(Run run, const Peers& peers, const Body& body) {
  const Options options{peers.timeout, peers.connect_timeout, peers.backend};
  if (before_ranks != nullptr) before_ranks();
  if (!peers.processes) capture_mode = CaptureMode::of_thread;
  std::atomic<bool> threw{false};
  const Body traced = [&](Context& context) {
    const testing::ScopedTrace trace(nullptr, 0, "in rank " + std::to_string(context.rank()));
    try {
      body(context);
    } catch (...) {
      threw = true;
      g_board->give_up();
      throw;
    }
    if (testing::Test::HasFailure()) g_board->give_up();
  };
  int code = run(traced, options);
  if (peers.untold && !threw && base::untold_reported() > 0) code = 0;
  std::exit(code != 0 ? code : (testing::Test::HasFailure() ? 1 : 0));  // the rest of the test is not a rank's
}

/// In a process of sluice-run.
[[noreturn]] void run_as_rank(const Peers& peers, const Body& body) {
  const char* const fd = std::getenv(kBoardVariable);
  if (fd == nullptr) throw std::runtime_error("a rank of a test is started by its test only");
  g_board = map_board(std::atoi(fd));
  end_with_ranks([](const Body& traced, const Options& options) { return sluice::run(0, nullptr, traced, options); },
                 peers, body);
}

/// In a fork of the test: all ranks are its threads.
[[noreturn]] void run_as_threads(const Peers& peers, const Body& body, const base::Fd& board_fd) {
  g_board = map_board(board_fd.get());
  report_failures_only();
  end_with_ranks(
      [&](const Body& traced, const Options& options) { return sluice::run_threads(peers.ranks, traced, options); },
      peers, body);
}

// ---- in the test

std::vector<std::string> command(const Peers& peers) {
  const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
  std::vector<std::string> words = {"sluice-run", "-n", std::to_string(peers.ranks)};
  if (!peers.processes) words.emplace_back("--threads");
  if (peers.keep_going) words.emplace_back("--keep-going");
  words.emplace_back("/proc/self/exe");
  words.push_back(std::string("--gtest_filter=") + info->test_suite_name() + "." + info->name());
  words.push_back(std::string(kCallFlag) + std::to_string(g_calls));
  return words;
}

/// In the child: its output and its environment are those of the ranks, and it ends with the test.
void prepare_child(std::vector<std::string>& environment, const base::Fd& output) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(output.get(), STDOUT_FILENO);
  ::dup2(output.get(), STDERR_FILENO);
  for (std::string& variable : environment) ::putenv(variable.data());
}

/// A driver that this process has loaded does not work in its forks.
bool has_gpu_driver() {
  const auto loaded = [](const char* library) {
    void* const handle = ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle != nullptr) ::dlclose(handle);
    return handle != nullptr;
  };
  return loaded("libcuda.so.1") || loaded("libamdhip64.so");
}

[[noreturn]] void become_launcher(const Peers& peers, const base::Fd& board_fd) {
  ::setenv(kBoardVariable, std::to_string(board_fd.get()).c_str(), 1);
  // A rank runs the one test that its filter names, which is not in every share.
  for (const char* const share : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"}) ::unsetenv(share);
  std::vector<std::string> words = command(peers);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  const int code = sluice::launch(static_cast<int>(pointers.size()), pointers.data());
  std::fflush(nullptr);
  ::_exit(code);
}

std::chrono::milliseconds limit_of(const Peers& peers) {
  const char* const lowered = std::getenv(kLimitVariable);
  if (lowered != nullptr) return std::min(peers.limit, std::chrono::milliseconds(std::atoi(lowered)));
  const char* const patience = std::getenv(kPatienceVariable);
  return peers.limit * (kSanitized ? 5 : 1) * (patience == nullptr ? 1 : std::atoi(patience));
}

/// Called with all that was read so far.
using Heard = std::function<void(const std::string& text)>;

/// Everything until the last writer has ended. False: the deadline came first.
bool read_to_end(const base::Fd& pipe, std::string& text, Clock::time_point deadline, const Heard& heard) {
  std::array<char, 4096> part{};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{pipe.get(), POLLIN, 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) == 0) return false;
    const auto bytes = ::read(pipe.get(), part.data(), part.size());
    if (bytes <= 0) return true;
    text.append(part.data(), static_cast<std::size_t>(bytes));
    heard(text);
  }
}

Ended watch_over(pid_t launcher, const base::Fd& output, std::chrono::milliseconds limit, const Heard& heard) {
  Ended ended;
  ended.hung = !read_to_end(output, ended.text, Clock::now() + limit, heard);
  if (ended.hung) ::kill(launcher, SIGKILL);  // and its ranks with it
  int status = 0;
  ::waitpid(launcher, &status, 0);
  if (ended.hung) read_to_end(output, ended.text, Clock::now() + 5s, heard);
  ended.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return ended;
}

/// Prints the lines of `text` that start as `skipped_here` writes them, and takes them out of it.
void pass_on_skipped(std::string& text) {
  for (std::size_t at = 0; (at = text.find("SKIPPED-HERE: ", at)) != std::string::npos;) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::printf("%s\n", text.substr(at, end - at).c_str());
    text.erase(at, end + 1 - at);
  }
}

}  // namespace

Ended end_of_peers(const Peers& peers, const Body& body) {
  ++g_calls;
  if (g_call_to_run == g_calls) run_as_rank(peers, body);
  if (g_call_to_run != 0) return {};  // a rank on its way to a later call
  const base::Fd board_fd = make_board();
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) die("pipe2");
  const base::Fd output(ends[0]);
  base::Fd input(ends[1]);
  std::fflush(nullptr);
  const pid_t launcher = ::fork();
  if (launcher < 0) die("fork");
  if (launcher == 0) {
    std::vector<std::string> environment = peers.environment;
    prepare_child(environment, input);
    if (!peers.processes && !has_gpu_driver()) run_as_threads(peers, body, board_fd);
    become_launcher(peers, board_fd);
  }
  input = base::Fd();
  const auto limit = limit_of(peers);
  Board* const here = peers.said ? map_board(board_fd.get()) : nullptr;
  Ended ended = watch_over(launcher, output, limit, [&](const std::string& text) {
    if (here != nullptr && peers.said(text)) here->set(kSaid, 1);
  });
  if (here != nullptr) ::munmap(here, sizeof *here);
  if (ended.hung) ended.text += "\nhung: killed after " + std::to_string(limit.count()) + " ms\n";
  pass_on_skipped(ended.text);
  return ended;
}

void run_peers(const Peers& peers, const Body& body) {
  const Ended ended = end_of_peers(peers, body);
  if (ended.hung || ended.code != 0) ADD_FAILURE() << "the ranks ended with code " << ended.code << ":\n" << ended.text;
}

void Board::until(const std::atomic<std::uint64_t>& word, std::uint64_t value) const {
  for (int turn = 0; word.load() < value; ++turn) {
    if (given_up_.load() != 0) throw std::runtime_error("another rank of this test failed");
    if (turn < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(200us);
    }
  }
}

void Board::await(std::size_t index, std::uint64_t value) { until(words_.at(index), value); }

void Board::meet(const Context& context) {
  const auto size = static_cast<std::uint64_t>(context.size());
  const std::uint64_t before = arrived_.fetch_add(1);
  until(arrived_, (before / size + 1) * size);
}

Board& board() { return *g_board; }

void skipped_here(const std::string& reason) {
  const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
  std::printf("SKIPPED-HERE: %s.%s: %s\n", info->test_suite_name(), info->name(), reason.c_str());
  std::fflush(stdout);
}

std::string why_unusable(const std::string& backend) {
  const auto found = backends::find_backend(backend);
  return found ? found->why_not : "there is no backend " + backend;
}

bool is_rank_of_other_suite(const std::string& suite) {
  return g_call_to_run != 0 && !GTEST_FLAG_GET(filter).starts_with(suite + ".");
}

namespace {

/// Takes a flag of ours out of the arguments, and returns its value; empty: it is not there.
std::string take_flag(std::string_view name, int& argc, char** argv) {
  char** const end = argv + argc;
  char** const flag =
      std::find_if(argv, end, [&](const char* word) { return std::string_view(word).starts_with(name); });
  if (flag == end) return {};
  std::string value = *flag + name.size();
  std::copy(flag + 1, end, flag);
  --argc;
  return value;
}

/// Counts the calls of each test on its own.
class CallCounter final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { g_calls = 0; }
};

int run_tests(int argc, char** argv) {
  g_call_to_run = std::atoi(take_flag(kCallFlag, argc, argv).c_str());
  const std::string table = take_flag(kTableFlag, argc, argv);
  const std::string parts = take_flag(kPartsFlag, argc, argv);
  testing::InitGoogleTest(&argc, argv);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (!table.empty()) listeners.Append(new ChosenCases(table, std::strtoull(parts.c_str(), nullptr, 10)));
  listeners.Append(new CallCounter);
  if (g_call_to_run == 0) return RUN_ALL_TESTS();
  report_failures_only();
  [[maybe_unused]] const int ignored = RUN_ALL_TESTS();
  return kNeverReached;  // a rank ends inside its call
}

}  // namespace
}  // namespace sluice::test

int main(int argc, char** argv) { return sluice::test::run_tests(argc, argv); }
