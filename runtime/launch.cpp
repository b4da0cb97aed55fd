// SPDX-License-Identifier: Apache-2.0
// sluice-run: starts the ranks of a job on this machine, and watches over them.
#include "base/fd.hpp"
#include "base/log.hpp"
#include "runtime/bootstrap.hpp"
#include "runtime/child.hpp"
#include "runtime/start.hpp"

#include <sluice/run.hpp>

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace sluice {

namespace runtime {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kUsage =
    "usage: sluice-run -n N [--threads] [--keep-going] PROGRAM [ARGUMENTS]\n"
    "Starts N ranks of PROGRAM on this machine.\n"
    "  -n N          how many ranks\n"
    "  --threads     as threads of one process\n"
    "  --keep-going  when a rank fails, let the others go on (else they are killed after 5 s)\n"
    "The exit code is that of the first rank that failed; 128+S if signal S ended it.\n";

// How long the other ranks may take to notice that one has failed, and to end.
constexpr milliseconds kGrace{5000};

struct Request {
  int ranks = 0;
  bool threads = false;
  bool keep_going = false;
  bool help = false;
  std::vector<char*> command;
};

int rank_count(std::string_view text) {
  int ranks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  if (error != std::errc() || end != text.data() + text.size() || ranks < 1) {
    throw std::invalid_argument("-n takes the number of ranks, 1 or more, not \"" + std::string(text) + "\"");
  }
  return ranks;
}

Request parse(std::span<char*> arguments) {
  Request request;
  std::size_t next = 0;
  for (; next < arguments.size() && arguments[next][0] == '-'; ++next) {
    const std::string_view flag = arguments[next];
    if (flag == "-h" || flag == "--help") {
      request.help = true;
      return request;
    }
    if (flag == "-n" && next + 1 < arguments.size()) {
      request.ranks = rank_count(arguments[++next]);
    } else if (flag == "--threads") {
      request.threads = true;
    } else if (flag == "--keep-going") {
      request.keep_going = true;
    } else if (flag == "-n") {
      throw std::invalid_argument("-n takes the number of ranks");
    } else {
      throw std::invalid_argument("unknown flag " + std::string(flag) + " (sluice-run --help)");
    }
  }
  request.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next), arguments.end());
  if (request.ranks == 0) throw std::invalid_argument("how many ranks? -n N is missing (sluice-run --help)");
  if (request.command.empty()) throw std::invalid_argument("which program? (sluice-run --help)");
  return request;
}

/// While it lives, signals that are to be passed on arrive at a descriptor.
class Signals {
 public:
  Signals() {
    sigset_t taken;
    ::sigemptyset(&taken);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) ::sigaddset(&taken, signal);
    ::pthread_sigmask(SIG_BLOCK, &taken, &before_);
    // Who started us may ignore it, which we would inherit: then no ended child could be waited for.
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &standard, &child_before_);
    arriving_ = base::Fd(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!arriving_) throw std::system_error(errno, std::generic_category(), "signalfd");
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() {
    ::sigaction(SIGCHLD, &child_before_, nullptr);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  const base::Fd& arriving() const noexcept { return arriving_; }
  const sigset_t& before() const noexcept { return before_; }

  /// The next signal to pass on; 0: none now.
  int next() const {
    signalfd_siginfo info{};
    while (::read(arriving_.get(), &info, sizeof(info)) == sizeof(info)) {
      // What the kernel sent, such as a Ctrl-C, went to the whole group of processes already.
      if (info.ssi_code != SI_KERNEL) return static_cast<int>(info.ssi_signo);
    }
    return 0;
  }

 private:
  sigset_t before_{};
  struct sigaction child_before_ {};
  base::Fd arriving_;
};

/// The processes of one sluice-run.
class Job {
 public:
  explicit Job(Request request) : request_(std::move(request)) {
    events_ = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
    if (!events_) throw std::system_error(errno, std::generic_category(), "epoll_create1");
    watch(signals_.arriving(), kSignal);
    start();
  }

  /// Returns when all have ended, with the exit code.
  int supervise() {
    while (running_ > 0) {
      std::array<epoll_event, 64> ready{};
      const int count = ::epoll_wait(events_.get(), ready.data(), ready.size(), patience());
      for (const epoll_event& event : std::span(ready).first(static_cast<std::size_t>(std::max(count, 0)))) {
        event.data.u64 == kSignal ? pass_signals_on() : ended(event.data.u64);
      }
      if (deadline_ && Clock::now() >= *deadline_) kill_the_rest();
    }
    return failed_ ? failed_->code : 0;
  }

 private:
  static constexpr std::uint64_t kSignal = ~std::uint64_t{0};

  struct Failure {
    std::size_t rank = 0;
    int code = 0;
    bool consequence = false;
  };

  void start() {
    const std::string path = find_program(request_.command.front());
    if (request_.threads) {
      add({path, request_.command, {"SLUICE_THREADS=" + std::to_string(request_.ranks)}, signals_.before()}, {});
      return;
    }
    // All are bound before the first rank runs, and each is given away with its rank: nobody else keeps it open, so
    // that a rank that has ended cannot be connected to.
    std::vector<Place> places = threads(request_.ranks);
    for (Place& place : places) {
      const base::Fd listener = std::move(place.listener);
      add({path,
           request_.command,
           {"SLUICE_RANK=" + std::to_string(place.rank), "SLUICE_SIZE=" + std::to_string(place.size),
            "SLUICE_JOB=" + place.job},
           signals_.before()},
          listener);
    }
  }

  void add(const Child::Program& program, const base::Fd& listener) {
    const Child& child = children_.emplace_back(program, listener, "SLUICE_LISTEN_FD");
    watch(child.ended(), children_.size() - 1);
    ++running_;
  }

  void watch(const base::Fd& fd, std::uint64_t what) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = what;
    if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) {
      throw std::system_error(errno, std::generic_category(), "epoll_ctl");
    }
  }

  // How long to wait for the next event, in milliseconds; -1: for ever.
  int patience() const {
    if (!deadline_) return -1;
    const auto left = std::chrono::ceil<milliseconds>(*deadline_ - Clock::now());
    return static_cast<int>(std::max<milliseconds::rep>(left.count(), 0));
  }

  void pass_signals_on() {
    while (const int signal = signals_.next()) {
      for (const Child& child : children_) child.kill(signal);
    }
  }

  void ended(std::size_t rank) {
    Ending ending = children_[rank].reap();
    --running_;
    if (ending.code == 0 && !ending.run_called && (request_.threads || request_.ranks > 1)) {
      ending.code = 1;
      if (!failed_) say(request_.command.front() + std::string(" ended without having called sluice::run"));
    }
    // Whom we killed is named already.
    if (ending.signal != 0 && !killed_) say(who(rank) + " was ended by signal " + signal_text(ending.signal));
    if (ending.code != 0 && !killed_) fail({rank, ending.code, ending.lost_peer});
  }

  // The exit code is that of the rank that failed first. Others may end, and be seen, before it: by the loss of it.
  void fail(Failure failure) {
    if (!failed_ && !request_.keep_going) deadline_ = Clock::now() + kGrace;
    if (!failed_ || (failed_->consequence && !failure.consequence)) failed_ = failure;
  }

  void kill_the_rest() {
    deadline_.reset();
    killed_ = true;
    std::string ranks;
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      if (!children_[rank].running()) continue;
      children_[rank].kill(SIGKILL);
      ranks += (ranks.empty() ? "" : ", ") + who(rank);
    }
    if (!ranks.empty()) say("killed " + ranks + ": still running 5 s after the failure of " + who(failed_->rank));
  }

  std::string who(std::size_t rank) const { return request_.threads ? "the process" : "rank " + std::to_string(rank); }
  static std::string signal_text(int signal) {
    const char* const name = ::sigabbrev_np(signal);
    return std::to_string(signal) + (name == nullptr ? "" : std::string(" (SIG") + name + ")");
  }
  static void say(const std::string& what) { base::write_line("sluice-run: " + what); }

  Request request_;
  Signals signals_;
  base::Fd events_;
  std::vector<Child> children_;
  std::size_t running_ = 0;
  std::optional<Failure> failed_;
  std::optional<Clock::time_point> deadline_;
  bool killed_ = false;
};

int launch_request(Request request) {
  if (request.help) {
    [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, kUsage, std::strlen(kUsage));
    return 0;
  }
  checked_env();  // a bad variable is one error here, not one from each rank
  return Job(std::move(request)).supervise();
}

}  // namespace

}  // namespace runtime

int launch(int argc, char** argv) {
  try {
    return runtime::launch_request(runtime::parse({argv + 1, argv + argc}));
  } catch (const std::invalid_argument& error) {
    base::write_line(std::string("sluice-run: ") + error.what());
    return 2;
  } catch (const std::exception& error) {
    base::write_line(std::string("sluice-run: ") + error.what());
    return 1;
  }
}

}  // namespace sluice
