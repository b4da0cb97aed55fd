// SPDX-License-Identifier: Apache-2.0
// sluice-run: starts the ranks of a job on this host, and watches over them; with the launchers of other hosts, over
// all.
#include "backends/transport.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "base/timeline_file.hpp"
#include "launch/child.hpp"
#include "launch/launch_flags.hpp"
#include "launch/meeting.hpp"
#include "launch/start.hpp"
#include "peers/bootstrap.hpp"
#include "runtime/report.hpp"

#include <sluice/run.hpp>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
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

// How long the other ranks may take to notice that one has failed, and to end.
constexpr milliseconds kGrace{5000};

/// While it lives, signals that are to be passed on arrive at a descriptor.
class Signals {
 public:
  Signals() {
    sigset_t taken;
    ::sigemptyset(&taken);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD})
      ::sigaddset(&taken, signal);
    ::pthread_sigmask(SIG_BLOCK, &taken, &before_);
    // Who started us may ignore it, which we would inherit: then no ended child could be waited for.
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &standard, &child_before_);
    arriving_ = base::Fd(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!arriving_) throw std::system_error(errno, std::generic_category(), "signalfd");
    // Processes that a rank leaves behind become our children.
    ::prctl(PR_GET_CHILD_SUBREAPER, &reaper_before_);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() {
    ::prctl(PR_SET_CHILD_SUBREAPER, reaper_before_);
    ::sigaction(SIGCHLD, &child_before_, nullptr);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  const base::Fd& arriving() const noexcept { return arriving_; }
  const sigset_t& before() const noexcept { return before_; }

  struct Arrived {
    int signal = 0;
    bool everywhere = false;  ///< the kernel's, such as a Ctrl-C: it went to the whole group of processes already
  };

  /// The next one; nothing: none now.
  std::optional<Arrived> next() const {
    signalfd_siginfo info{};
    if (::read(arriving_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
    return Arrived{static_cast<int>(info.ssi_signo), info.ssi_code == SI_KERNEL};
  }

 private:
  sigset_t before_{};
  struct sigaction child_before_ {};
  int reaper_before_ = 0;
  base::Fd arriving_;
};

/// The processes of one sluice-run, and its partners on other hosts.
class Job {
 public:
  /// @param outer  a pipe whose other end the sluice-run holds that started this one; empty: none did
  Job(Request request, Agreement agreement, base::Fd outer)
      : request_(std::move(request)), first_(agreement.first), size_(agreement.size),
        partners_(std::move(agreement.partners)), outer_(std::move(outer)) {
    events_ = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
    if (!events_) throw std::system_error(errno, std::generic_category(), "epoll_create1");
    watch(signals_.arriving(), {What::signal, 0});
    if (outer_) watch(outer_, {What::outer, 0});
    for (std::size_t i = 0; i < partners_.size(); ++i) watch(partners_[i].wire.socket(), {What::partner, i});
    start(agreement);
  }

  /// Returns when all have ended, here and elsewhere, with the exit code.
  int supervise() {
    report_end();
    while ((children_left() && !blind_) || !partners_.empty()) {
      std::array<epoll_event, 64> ready{};
      const int count = ::epoll_wait(events_.get(), ready.data(), ready.size(), patience());
      for (const epoll_event& event : std::span(ready).first(static_cast<std::size_t>(std::max(count, 0)))) {
        serve(event.data.u64);
      }
      if (ignoring_ && Clock::now() >= *ignoring_) kill_those_that_ignore();
      if (deadline_ && Clock::now() >= deadline_->at) kill_the_rest(std::exchange(deadline_, {})->why);
      report_end();
    }
    backends::remove_leftovers();
    return failed_ ? failed_->code : 0;
  }

 private:
  enum class What : std::uint64_t { signal, partner, outer };
  struct Event {
    What what;
    std::size_t index;
  };
  static constexpr std::uint64_t kKinds = 3;

  struct Failure {
    std::string who;
    int code = 0;
    bool consequence = false;
  };

  /// When what still runs is killed, and why.
  struct Deadline {
    Clock::time_point at;
    std::string why;
  };

  void start(Agreement& agreement) {
    const std::string path = find_program(request_.command.front());
    if (request_.threads) {
      return add(
          {path, request_.command, {"SLUICE_THREADS=" + std::to_string(size_)}, signals_.before(), reads_input(0)}, {});
    }
    // All are bound before the first rank runs, and each is given away with its rank: nobody else keeps it open, so
    // that a rank that has ended cannot be connected to.
    for (std::size_t i = 0; i < agreement.listeners.size(); ++i) {
      const base::Fd listener = std::move(agreement.listeners[i]);
      const base::Fd tcp_listener =
          agreement.tcp_listeners.empty() ? base::Fd() : std::move(agreement.tcp_listeners[i]);
      std::vector<Child::Gift> gifts = {{"SLUICE_LISTEN_FD", listener.get()}};
      if (tcp_listener) {
        gifts.push_back({"SLUICE_TCP_FD", tcp_listener.get()});
        gifts.push_back({"SLUICE_HOSTS_FD", agreement.roster.get()});
      }
      add({path,
           request_.command,
           {"SLUICE_RANK=" + std::to_string(rank_of(i)), "SLUICE_SIZE=" + std::to_string(size_),
            "SLUICE_JOB=" + agreement.job},
           signals_.before(),
           reads_input(rank_of(i))},
          gifts);
    }
  }

  /// Two that read one input would get a part of it each.
  bool reads_input(Rank rank) const {
    return request_.readers == Readers::all || (request_.readers == Readers::first && rank == 0);
  }

  Rank rank_of(std::size_t child) const { return first_ + static_cast<Rank>(child); }

  void add(const Child::Program& program, std::span<const Child::Gift> gifts) {
    children_.emplace_back(program, gifts);
    ++running_;
  }

  void watch(const base::Fd& fd, Event what) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = what.index * kKinds + static_cast<std::uint64_t>(what.what);
    if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) {
      throw std::system_error(errno, std::generic_category(), "epoll_ctl");
    }
  }

  void serve(std::uint64_t event) {
    const std::size_t index = event / kKinds;
    switch (static_cast<What>(event % kKinds)) {
      case What::signal: return serve_signals();
      case What::partner:
        // Those that have left are forgotten, which ends the job at once if host 0 has: the rest of the events is
        // stale.
        if (index < partners_.size()) hear(partners_[index]);
        return;
      case What::outer:
        ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, outer_.get(), nullptr);
        return kill_the_rest("the sluice-run that started this one is gone");
    }
  }

  // How long to wait for the next event, in milliseconds; -1: for ever.
  int patience() const {
    if (!deadline_ && !ignoring_) return -1;
    auto first = deadline_ ? deadline_->at : *ignoring_;
    if (ignoring_) first = std::min(first, *ignoring_);
    const auto left = std::chrono::ceil<milliseconds>(first - Clock::now());
    return static_cast<int>(std::max<milliseconds::rep>(left.count(), 0));
  }

  void serve_signals() {
    while (const auto arrived = signals_.next()) {
      if (arrived->signal == SIGCHLD) {
        reap();
      } else {
        pass_on(*arrived);
      }
    }
  }

  void pass_on(Signals::Arrived arrived) {
    const int signal = arrived.signal;
    const bool request = signal == SIGTERM || signal == SIGINT;
    if (running_ == 0 && (request || signal == SIGHUP || signal == SIGQUIT)) leave(signal);
    if (request) {
      if (asked_ != 0) return kill_the_rest("still running at the second signal that was to end it");
      ask_to_end(signal);
    }
    // The kernel ignores SIGTSTP in a group of processes without a shell.
    if (!arrived.everywhere) send(signal == SIGTSTP ? SIGSTOP : signal);
    if (signal == SIGTSTP) ::raise(SIGSTOP);  // the SIGCONT that ends this is passed on in turn
  }

  // A rank stops with all that it has started; the other signals may mean something to the rank alone.
  void send(int signal) {
    for (Child& child : children_) child.kill(signal);
    if (signal != SIGSTOP && signal != SIGCONT) return;
    for (const Descendant& one : descendants()) {
      if (!is_rank(one.pid)) ::kill(one.pid, signal);
    }
  }

  // A rank that catches the signal may have much to save.
  void ask_to_end(int signal) {
    asked_ = signal;
    ignoring_ = Clock::now() + kGrace;
    if (!request_.kill_after || deadline_) return;
    deadline_ = {Clock::now() + *request_.kill_after, "still running " + std::to_string(request_.kill_after->count()) +
                                                          " s after " + name_of_signal(signal) + " (--kill-after)"};
  }

  void kill_those_that_ignore() {
    ignoring_.reset();
    for (std::size_t child = 0; child < children_.size(); ++child) {
      if (!children_[child].running() || !children_[child].ignores(asked_)) continue;
      children_[child].kill(SIGKILL);
      say("killed " + who(child) + ", which ignores " + name_of_signal(asked_));
    }
  }

  // Also those that ranks have started and not waited for.
  void reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto child = std::ranges::find_if(children_, [pid](const Child& one) { return one.is(pid); });
      if (child != children_.end()) ended(static_cast<std::size_t>(child - children_.begin()), status);
    }
    if (running_ > 0 && asked_ == 0) return;
    if (running_ == 0 && !children_left()) return deadline_.reset();
    end_orphans();
  }

  bool is_rank(pid_t pid) const {
    return std::ranges::any_of(children_, [pid](const Child& child) { return child.is(pid); });
  }

  // Only a rank that has ended knew of these processes.
  void end_orphans() {
    for (const Descendant& one : descendants()) {
      if (!is_rank(one.child) && told_.insert(one.pid).second) ::kill(one.pid, asked_ != 0 ? asked_ : SIGTERM);
    }
    if (running_ == 0 && !deadline_)
      deadline_ = {Clock::now() + kGrace, "still running 5 s after the last rank has ended"};
  }

  // Ranks, or what they have started and left behind.
  static bool children_left() {
    siginfo_t first{};
    return ::waitid(P_ALL, 0, &first, WEXITED | WNOHANG | WNOWAIT) == 0;
  }

  void ended(std::size_t child, int status) {
    Ending ending = children_[child].ended(status);
    --running_;
    if (ending.code == 0) ending.code = code_of_zero(child);
    // A rank that this process has killed is named already.
    if (ending.signal != 0 && !children_[child].killed())
      say(who(child) + " was ended by signal " + signal_text(ending.signal));
    if (ending.code != 0 && !(killed_ && failed_)) fail({who(child), ending.code, children_[child].report().lost_peer});
  }

  // A process that ends with 0 may have failed all the same.
  int code_of_zero(std::size_t child) {
    const ProcessReport& report = children_[child].report();
    if (report.refused) return 2;
    if (!report.run_called && (request_.threads || size_ > 1)) {
      if (!failed_) say(request_.command.front() + std::string(" ended without having called sluice::run"));
      return 1;
    }
    if (report.left_together || report.ranks == 0 || (report.ranks == 1 && report.ends == 0)) return 0;
    say(who(child) + " ended inside sluice::run, with channels open or other ranks of the process");
    return 1;
  }

  // The exit code is that of the rank that failed first. Others may end, and be seen, before it: by the loss of it.
  void fail(Failure failure) {
    if (!failed_ && !request_.keep_going && asked_ == 0)
      deadline_ = {Clock::now() + kGrace, "still running 5 s after the failure of " + failure.who};
    if (failed_ && (!failed_->consequence || failure.consequence)) return;
    failed_ = std::move(failure);
    tell_of_failure();
  }

  void kill_the_rest(const std::string& why) {
    std::string names;
    const auto name = [&names](const std::string& one) { names += (names.empty() ? "" : ", ") + one; };
    for (std::size_t child = 0; child < children_.size(); ++child) {
      if (!children_[child].running()) continue;
      children_[child].kill(SIGKILL);
      name(who(child));
    }
    const std::vector<Descendant> all = descendants();
    if (killed_ && running_ == 0 && all.empty()) return give_up();
    for (const Descendant& one : all) {
      if (is_rank(one.pid)) continue;
      ::kill(one.pid, SIGKILL);
      if (!is_rank(one.child)) name("process " + std::to_string(one.pid) + " (" + one.name + ")");
    }
    if (!killed_ && !names.empty()) say("killed " + names + ": " + why);
    killed_ = true;
    deadline_ = {Clock::now() + milliseconds(100), why};  // what was started meanwhile
  }

  void give_up() {
    reap();
    blind_ = children_left();
    if (blind_) say("processes that ranks have left behind still run, and /proc does not show them");
  }

  std::string who(std::size_t child) const {
    return request_.threads ? "the process" : "rank " + std::to_string(rank_of(child));
  }
  static std::string name_of_signal(int signal) {
    const char* const name = ::sigabbrev_np(signal);
    return name == nullptr ? "signal " + std::to_string(signal) : std::string("SIG") + name;
  }
  static std::string signal_text(int signal) {
    const char* const name = ::sigabbrev_np(signal);
    return std::to_string(signal) + (name == nullptr ? "" : " (" + name_of_signal(signal) + ")");
  }
  static void say(const std::string& what) { base::write_line("sluice-run: " + what); }

  // ---- the partners

  void hear(Partner& partner) {
    while (auto packet = partner.wire.receive()) {
      if (packet->closed) return lose(partner);
      Reader message(packet->bytes);
      switch (message.get<Note>()) {
        case Note::failure: {
          const auto code = message.get<int>();
          const auto consequence = message.get<bool>();
          fail({message.text(), code, consequence});
          break;
        }
        case Note::finished: partner.finished = true; break;
        case Note::over: return end_as_host_0_says(message.get<int>());
        default: break;
      }
    }
  }

  // To all hosts: the one where it happened ignores it.
  void tell_of_failure() {
    const auto message = Writer(Note::failure).put(failed_->code).put(failed_->consequence).text(failed_->who).take();
    tell_partners(message);
  }

  void tell_partners(const backends::Blob& message) {
    for (Partner& partner : partners_) {
      if (partner.wire) partner.wire.send(message, {});
    }
  }

  // The few words that partners say always find room, but where a link is down: then its end is noticed.
  void report_end() {
    if (running_ > 0 || partners_.empty()) return;
    if (request_.host != 0) {
      if (!std::exchange(told_end_, true)) partners_.front().wire.send(Writer(Note::finished).take(), {});
      return;
    }
    if (!std::ranges::all_of(partners_, &Partner::finished)) return;
    const auto message = Writer(Note::over).put(failed_ ? failed_->code : 0).take();
    tell_partners(message);
    partners_.clear();
  }

  void end_as_host_0_says(int code) {
    if (code != 0) failed_ = Failure{"another host", code, false};
    partners_.clear();
  }

  void lose(Partner& partner) {
    const std::string host = "host " + std::to_string(partner.host);
    const int error = partner.wire.error();
    partner.wire = Wire();
    const bool had_finished = std::exchange(partner.finished, true);
    if (request_.host != 0) partners_.clear();
    if (had_finished) return;
    say("the sluice-run of " + host + (error == 0 ? " has ended" : std::string(" is lost: ") + std::strerror(error)));
    fail({host, 1, false});
  }

  // No rank is left here, and somebody does not want to wait for those elsewhere.
  void leave(int signal) {
    fail({"sluice-run", 128 + signal, false});
    partners_.clear();
  }

  Request request_;
  Rank first_;
  int size_;
  std::vector<Partner> partners_;  // at host 0 all others, else host 0; none once the whole job is over
  base::Fd outer_;
  Signals signals_;
  base::Fd events_;
  std::vector<Child> children_;
  std::size_t running_ = 0;
  std::optional<Failure> failed_;
  int asked_ = 0;                              // the signal that was to end the ranks; 0: none yet
  std::optional<Clock::time_point> ignoring_;  // when those that ignore it are killed
  std::optional<Deadline> deadline_;
  bool killed_ = false;
  bool blind_ = false;    // there are processes that nothing here can find
  std::set<pid_t> told_;  // processes left behind by ranks, which got a signal
  bool told_end_ = false;
};

/// The job of this host alone.
Agreement agree_alone(const Request& request) {
  Agreement agreement;
  agreement.size = request.ranks;
  if (request.threads) return agreement;
  agreement.job = new_job();
  for (Rank rank = 0; rank < request.ranks; ++rank) agreement.listeners.push_back(listen_as(agreement.job, rank));
  return agreement;
}

/// Each rank takes a listener, one more for other hosts, and a page for its reports.
void check_descriptors(const Request& request) {
  const std::size_t each = request.hosts > 1 ? 3 : 2;
  constexpr std::size_t kOwn = 16;
  const std::size_t needed = kOwn + (request.threads ? 0 : each * static_cast<std::size_t>(request.ranks));
  if (!base::make_room_for_descriptors(needed)) throw std::runtime_error(base::lack_of_descriptors(needed));
}

int launch_request(Request request) {
  if (request.help || request.version) {
    base::write_all(STDOUT_FILENO, request.help ? kLaunchUsage : "sluice-run " SLUICE_VERSION "\n", "standard output");
    return 0;
  }
  if (!request.trace.empty()) ::setenv("SLUICE_TRACE", request.trace.c_str(), 1);
  const base::Env env = checked_env();  // a bad variable is one error here, not one from each rank
  // A rank that is a launcher: its exit code is that of its job, and its ranks have nothing of the outer one.
  base::Fd outer = join_launcher(env);
  for (const int fd : {env.listen_fd, env.tcp_fd, env.hosts_fd}) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  find_program(request.command.front());  // likewise a program, before others wait for us
  check_descriptors(request);
  const bool one_host = request.hosts <= 1;
  Agreement agreement = one_host ? agree_alone(request) : meet(request, env);
  const std::string job = agreement.job;
  const int code = Job(std::move(request), std::move(agreement), std::move(outer)).supervise();
  if (env.trace.empty() || job.empty()) return code;
  try {
    base::trace::TimelineFile(env.trace, job).merge_the_rest();
    return code;
  } catch (const std::exception& reason) {
    base::write_line("sluice-run: the timeline " + env.trace + " lacks events: " + reason.what());
    return code == 0 ? 1 : code;
  }
}

}  // namespace

}  // namespace runtime

int launch(int argc, char** argv) {
  try {
    base::fill_standard_descriptors();
    return runtime::launch_request(runtime::parse_launch({argv + 1, argv + argc}));
  } catch (const std::invalid_argument& error) {
    base::write_line(std::string("sluice-run: ") + error.what());
    return 2;
  } catch (const std::exception& error) {
    base::write_line(std::string("sluice-run: ") + error.what());
    return 1;
  }
}

}  // namespace sluice
