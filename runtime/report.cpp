// SPDX-License-Identifier: Apache-2.0
#include "runtime/report.hpp"

#include "base/log.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

namespace sluice::runtime {

namespace {

using Clock = std::chrono::steady_clock;

static_assert(std::atomic<pid_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "two processes use them");

// All ranks of a process that call `exit` with code 0 do so within this time.
constexpr std::chrono::seconds kTogether{5};

// A file with exactly these seals is a report.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

ProcessReport g_own;
ProcessReport* g_report = &g_own;

std::atomic<Rank> g_rank_begun{-1};  // the last that has begun: the only one in a process of one rank

SharedReport* map(const base::Fd& page) {
  void* const at = ::mmap(nullptr, sizeof(SharedReport), PROT_READ | PROT_WRITE, MAP_SHARED, page.get(), 0);
  if (at == MAP_FAILED) base::throw_not_opened("cannot map the report of a rank");
  return static_cast<SharedReport*>(at);
}

// A program between sluice-run and this one may have closed the descriptor and opened another file of this number.
[[noreturn]] void refuse(const char* variable, int fd) {
  throw std::invalid_argument(std::string(variable) + "=" + std::to_string(fd) +
                              " is not what sluice-run gave, which alone sets it: was it closed in between?");
}

bool is_report(int fd, const struct stat& status) {
  return S_ISREG(status.st_mode) && status.st_size == sizeof(SharedReport) && ::fcntl(fd, F_GET_SEALS) == kSeals;
}

std::string counted(int number, const char* what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

void say_who_left(int others) {
  const Rank mine = base::rank_of_thread();
  const Rank rank = mine < 0 && report().ranks == 1 ? g_rank_begun.load() : mine;
  const std::string who = rank < 0 ? "a thread that is no rank" : "rank " + std::to_string(rank);
  const int ends = report().ends;
  base::write_line(
      "sluice: " + who + " called exit inside sluice::run, with " +
      (ends > 0 ? counted(ends, "end") + " of channels open"
                : counted(others, "rank") + " of this process not at " + (others == 1 ? "its" : "their") + " end"));
}

// Handler of `exit`. Other threads that call `exit` meanwhile get here too: it is no error if all ranks of a program
// call `exit`, as for --help.
void at_exit(int code, void* /*unused*/) {
  static std::atomic<int> leaving{0};
  static std::atomic<bool> decided{false};
  if (code != 0 || report().ranks <= 0 || decided) return;
  ::on_exit(&at_exit, nullptr);
  if (leaving.fetch_add(1) > 0) {
    for (;;) ::pause();
  }
  const auto deadline = Clock::now() + kTogether;
  while (leaving < report().ranks && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  decided = true;
  if (report().ends <= 0 && leaving >= report().ranks) {
    report().left_together = true;
    return;
  }
  say_who_left(report().ranks - leaving);
  std::exit(1);  // goes on with the other handlers of the `exit` that has begun
}

// Each thread that calls `exit` takes one handler from the list: so each rank needs one, and one other thread.
void watch_exit(int ranks) {
  static std::atomic<int> handlers{0};
  [[maybe_unused]] static const int forks =
      ::pthread_atfork(nullptr, nullptr, [] { g_report = new (&g_own) ProcessReport; });
  for (int had = handlers; had <= ranks;) {
    if (!handlers.compare_exchange_weak(had, had + 1)) continue;
    ::on_exit(&at_exit, nullptr);
    ++had;
  }
}

}  // namespace

ProcessReport& report() noexcept { return *g_report; }

std::pair<base::Fd, std::shared_ptr<SharedReport>> new_report() {
  base::Fd page(::memfd_create("sluice-report", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!page || ::ftruncate(page.get(), sizeof(SharedReport)) != 0 || ::fcntl(page.get(), F_ADD_SEALS, kSeals) != 0) {
    base::throw_not_opened("no memory for the report of a rank");
  }
  // Leaves the rows of waits as the zeros that they are: they take no memory until they are used.
  std::shared_ptr<SharedReport> words(new (map(page)) SharedReport,
                                      [](SharedReport* report) { ::munmap(report, sizeof(SharedReport)); });
  return {std::move(page), std::move(words)};
}

base::Fd join_launcher(const base::Env& env) {
  if (env.report_fd < 0 && env.launcher_fd < 0) return {};
  struct stat status {};
  if (::fstat(env.report_fd, &status) != 0 || !is_report(env.report_fd, status)) {
    refuse("SLUICE_REPORT_FD", env.report_fd);
  }
  const base::Fd page(env.report_fd);
  SharedReport* const shared = map(page);
  g_report = &shared->process;
  base::share_waits(shared->waits);
  if (::fstat(env.launcher_fd, &status) != 0 || !S_ISFIFO(status.st_mode) || status.st_ino != report().launcher) {
    refuse("SLUICE_LAUNCHER_FD", env.launcher_fd);
  }
  ::fcntl(env.launcher_fd, F_SETFD, FD_CLOEXEC);
  report().run_called = true;
  return base::Fd(env.launcher_fd);
}

void become_rank(Rank rank) {
  pid_t none = 0;
  if (report().process.compare_exchange_strong(none, ::getpid())) return;
  report().refused = true;
  throw std::invalid_argument("rank " + std::to_string(rank) + " runs already, or has run, as process " +
                              std::to_string(none) + ": sluice-run starts one process for each rank");
}

InsideRun::InsideRun() { watch_exit(++report().ranks); }

InsideRun::~InsideRun() {
  if (counts_ && origin_.here()) --report().ranks;
  if (before_) base::set_rank_of_thread(*before_);
}

void InsideRun::begin(Rank rank) {
  before_ = base::set_rank_of_thread(rank);
  g_rank_begun = rank;
}

}  // namespace sluice::runtime
