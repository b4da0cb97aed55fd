// SPDX-License-Identifier: Apache-2.0
// sluice-run: starts the ranks of a job on this host and waits for them; if the job spans hosts, together with the
// sluice-run of every other host.
#include "backends/transport.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "base/timeline_file.hpp"
#include "launch/child.hpp"
#include "launch/launch_flags.hpp"
#include "launch/meeting.hpp"
#include "launch/observer.hpp"
#include "launch/shares.hpp"
#include "launch/signals.hpp"
#include "launch/start.hpp"
#include "launch/status.hpp"
#include "peers/bootstrap.hpp"
#include "runtime/report.hpp"

#include <sluice/run.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace sluice::runtime {
namespace {

using std::chrono::milliseconds;

/// The processes of one sluice-run, and its partners on other hosts.
class Job {
 public:
  /// @param outer  pipe to the sluice-run that started this one; empty: none did
  Job(Request request, Shares shares, Agreement agreement, base::Fd outer, const base::Env& env)
      : request_(std::move(request)), shares_(std::move(shares)), size_(agreement.size),
        partners_(std::move(agreement.partners)), outer_(std::move(outer)),
        observer_(env.warn, env.log < base::LogLevel::warn) {
    start(agreement);
  }

  /// Returns the exit code when all processes have ended, here and on other hosts.
  int supervise() {
    while ((children_left() && !unseen_left_) || !partners_.empty()) {
      wait_for_events();
      while (const auto arrived = signals_.next()) arrived->ssi_signo == SIGCHLD ? reap() : pass_on(*arrived);
      for (std::size_t next = 0; next < partners_.size();) hear(partners_[next++]);  // may clear the list
      if (Clock::now() >= kill_ignoring_at_) kill_those_that_ignore();
      observer_.look();
      if (deadline_ && Clock::now() >= deadline_->at) kill_the_rest(std::exchange(deadline_, {})->why);
      report_end();
    }
    backends::remove_leftovers();
    return failed_ ? failed_->code : 0;
  }

 private:
  struct Failure {
    std::string who;
    int code = 0;
    bool consequence = false;
  };

  /// When to kill the processes that still run, and why.
  struct Deadline {
    Clock::time_point at;
    std::string why;
  };

  void start(Agreement& agreement) {
    Child::Program program{
        "the process", find_program(request_.command.front()), request_.command, {}, signals_.before()};
    if (request_.threads) {
      program.environment = {"SLUICE_THREADS=" + std::to_string(size_), "SLUICE_JOB=" + agreement.job};
      add(program, 0);
      return observer_.add(children_.back(), 0, size_);
    }
    // All listeners are bound before the first rank runs. Each is closed here once its rank has it: connecting to a
    // rank that has ended must fail.
    for (std::size_t i = 0; i < agreement.listeners.size(); ++i) {
      const auto rank = agreement.first + static_cast<Rank>(i);
      const base::Fd listener = std::move(agreement.listeners[i]);
      const base::Fd tcp_listener =
          agreement.tcp_listeners.empty() ? base::Fd() : std::move(agreement.tcp_listeners[i]);
      program.name = "rank " + std::to_string(rank);
      program.environment = {"SLUICE_RANK=" + std::to_string(rank), "SLUICE_SIZE=" + std::to_string(size_),
                             "SLUICE_JOB=" + agreement.job};
      program.descriptors = {{"SLUICE_LISTEN_FD", listener.get()}};
      if (tcp_listener) {
        program.descriptors.emplace_back("SLUICE_TCP_FD", tcp_listener.get());
        program.descriptors.emplace_back("SLUICE_HOSTS_FD", agreement.roster.get());
      }
      add(program, rank);
      observer_.add(children_.back(), rank, 1);
    }
  }

  /// By default rank 0 alone reads the standard input: several readers would get a part of it each.
  void add(Child::Program& program, Rank rank) {
    program.reads_input = request_.readers == Readers::all || (request_.readers == Readers::first && rank == 0);
    if (!shares_.threads.empty()) program.environment.push_back("OMP_NUM_THREADS=" + shares_.threads);
    if (!shares_.bound.empty()) program.cores = base::mask_of(shares_.bound[children_.size()]);
    children_.emplace_back(program);
    ++running_;
  }

  /// Sleeps until a signal, a message of a partner, the end of the outer sluice-run, or the next deadline.
  void wait_for_events() {
    std::vector<pollfd> sockets = {
        {outer_.get(), POLLIN, 0}, {signals_.arriving().get(), POLLIN, 0}, {status_.socket().get(), POLLIN, 0}};
    for (const Partner& partner : partners_) sockets.push_back({partner.wire.socket().get(), POLLIN, 0});
    const auto next =
        std::min({kill_ignoring_at_, observer_.next(), deadline_ ? deadline_->at : Clock::time_point::max()});
    if (::poll(sockets.data(), sockets.size(), milliseconds_until(next)) <= 0) return;
    if (sockets[2].revents != 0) status_.answer([this] { return observer_.status(); });
    if (sockets.front().revents == 0) return;
    outer_ = base::Fd();
    kill_the_rest("the sluice-run that started this one is gone");
  }

  void pass_on(const signalfd_siginfo& arrived) {
    const auto signal = static_cast<int>(arrived.ssi_signo);
    const bool request = signal == SIGTERM || signal == SIGINT;
    if (running_ == 0 && (request || signal == SIGHUP || signal == SIGQUIT)) {
      // No rank is left here, and the user does not want to wait for those of other hosts.
      fail({"sluice-run", 128 + signal, false});
      partners_.clear();
    }
    if (request) {
      if (end_signal_ != 0) return kill_the_rest("still running at the second signal that was to end it");
      ask_to_end(signal);
    }
    // The kernel has sent its own signals, such as that of Ctrl-C, to the whole group of processes. It ignores SIGTSTP
    // in a group without a shell.
    if (arrived.ssi_code != SI_KERNEL) send(signal == SIGTSTP ? SIGSTOP : signal);
    if (signal == SIGTSTP) ::raise(SIGSTOP);  // the SIGCONT that ends this is passed on in turn
  }

  // SIGSTOP and SIGCONT also go to the processes that ranks have started. Other signals go to the ranks alone, which
  // may have a handler.
  void send(int signal) {
    for (Child& child : children_) child.kill(signal);
    if (signal != SIGSTOP && signal != SIGCONT) return;
    for (const Descendant& one : descendants()) {
      if (!is_rank(one.pid)) ::kill(one.pid, signal);
    }
  }

  // A rank that catches the signal may have much to save: only --kill-after limits its time.
  void ask_to_end(int signal) {
    observer_.print();
    end_signal_ = signal;
    kill_ignoring_at_ = Clock::now() + kGrace;
    if (!request_.kill_after || deadline_) return;
    deadline_ = {Clock::now() + *request_.kill_after, "still running " + std::to_string(request_.kill_after->count()) +
                                                          " s after " + name_of_signal(signal) + " (--kill-after)"};
  }

  void kill_those_that_ignore() {
    kill_ignoring_at_ = Clock::time_point::max();
    for (Child& child : children_) {
      if (!child.running() || !child.ignores(end_signal_)) continue;
      child.kill(SIGKILL);
      say("killed " + child.name() + ", which ignores " + name_of_signal(end_signal_));
    }
  }

  // Waits for ended children, also for processes that ranks have started and not waited for.
  void reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto child = std::ranges::find_if(children_, [pid](const Child& one) { return one.is(pid); });
      if (child != children_.end()) ended(*child, status);
    }
    if (running_ > 0 && end_signal_ == 0) return;
    if (running_ == 0 && !children_left()) return deadline_.reset();
    end_orphans();
  }

  bool is_rank(pid_t pid) const {
    return std::ranges::any_of(children_, [pid](const Child& child) { return child.is(pid); });
  }

  // Ends processes whose rank has ended, because no other process knows of them.
  void end_orphans() {
    for (const Descendant& one : descendants()) {
      if (!is_rank(one.child) && signalled_.insert(one.pid).second)
        ::kill(one.pid, end_signal_ != 0 ? end_signal_ : SIGTERM);
    }
    if (running_ == 0 && !deadline_)
      deadline_ = {Clock::now() + kGrace, "still running 5 s after the last rank has ended"};
  }

  // True if a rank still runs, or a process that a rank has left behind.
  static bool children_left() {
    siginfo_t first{};
    return ::waitid(P_ALL, 0, &first, WEXITED | WNOHANG | WNOWAIT) == 0;
  }

  void ended(Child& child, int status) {
    child.ended();
    --running_;
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    int code = signal != 0 ? 128 + signal : WEXITSTATUS(status);
    if (status == 0) code = code_of_zero(child);
    // sluice-run has named the ranks that it killed.
    if (signal != 0 && !child.killed()) say(child.name() + " was ended by signal " + signal_text(signal));
    if (code != 0 && !(killed_ && failed_)) fail({child.name(), code, child.report().lost_peer});
  }

  // The exit code for a process that ended with 0, which may have failed nevertheless.
  int code_of_zero(const Child& child) {
    const ProcessReport& report = child.report();
    if (report.refused) return 2;
    if (!report.run_called && (request_.threads || size_ > 1)) {
      if (!failed_) say(request_.command.front() + std::string(" ended without having called sluice::run"));
      return 1;
    }
    if (report.left_together || report.ranks == 0 || (report.ranks == 1 && report.ends == 0)) return 0;
    say(child.name() + " ended inside sluice::run, with channels open or other ranks of the process");
    return 1;
  }

  // The exit code is that of the rank that failed first. Ranks that lost it may end before it, as a consequence.
  void fail(Failure failure) {
    if (!failed_) observer_.print();
    if (!failed_ && !request_.keep_going && end_signal_ == 0)
      deadline_ = {Clock::now() + kGrace, "still running 5 s after the failure of " + failure.who};
    if (failed_ && (!failed_->consequence || failure.consequence)) return;
    failed_ = std::move(failure);
    // To all hosts: the one where the rank failed ignores the message.
    tell_partners(Writer(Note::failure).text(failed_->who).put(failed_->code).put(failed_->consequence).take());
  }

  void kill_the_rest(const std::string& why) {
    if (!killed_) observer_.print();
    std::string names;
    const auto name = [&names](const std::string& one) { names += (names.empty() ? "" : ", ") + one; };
    for (Child& child : children_) {
      if (!child.running()) continue;
      child.kill(SIGKILL);
      name(child.name());
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
    deadline_ = {Clock::now() + milliseconds(100), why};  // for processes that were started meanwhile
  }

  void give_up() {
    reap();
    unseen_left_ = children_left();
    if (unseen_left_) say("processes that ranks have left behind still run, and /proc does not show them");
  }

  static void say(const std::string& what) { base::write_line("sluice-run: " + what); }

  // ---- the partners

  void hear(Partner& partner) {
    while (partner.wire) {
      const auto packet = partner.wire.receive();
      if (!packet) return;
      if (packet->closed) return lose(partner);
      Reader message(packet->bytes);
      switch (message.get<Note>()) {
        case Note::failure: {
          const std::string who = message.text();
          const int code = message.get<int>();
          fail({who, code, message.get<std::uint8_t>() != 0});
          break;
        }
        case Note::finished: partner.finished = true; break;
        case Note::ended: return end_as_host_0_says(message.get<int>());
        default: break;
      }
    }
  }

  void tell_partners(const backends::Blob& message) {
    for (Partner& partner : partners_) {
      if (partner.wire) partner.wire.send(message, {});
    }
  }

  // Tells the partners when no rank is left, here or anywhere. Sockets have room for the few messages of partners,
  // unless the link is down, and then receiving finds that.
  void report_end() {
    if (running_ > 0 || partners_.empty()) return;
    if (request_.host != 0) {
      if (!std::exchange(reported_end_, true)) tell_partners(Writer(Note::finished).take());
    } else if (std::ranges::all_of(partners_, &Partner::finished)) {
      tell_partners(Writer(Note::ended).put(failed_ ? failed_->code : 0).take());
      partners_.clear();
    }
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

  Request request_;
  Shares shares_;
  int size_;
  std::vector<Partner> partners_;  // at host 0 all others, else host 0; none once the job has ended
  base::Fd outer_;
  Signals signals_;
  std::deque<Child> children_;
  Observer observer_;
  StatusServer status_;
  std::size_t running_ = 0;
  std::optional<Failure> failed_;
  int end_signal_ = 0;  // SIGTERM or SIGINT, once sluice-run has received it; 0: not yet
  Clock::time_point kill_ignoring_at_ = Clock::time_point::max();  // when to kill the ranks that ignore it
  std::optional<Deadline> deadline_;
  bool killed_ = false;
  bool unseen_left_ = false;   // processes are left that /proc does not show
  std::set<pid_t> signalled_;  // processes left behind by ranks that were sent a signal
  bool reported_end_ = false;
};

/// Makes room for the descriptors of each rank: a listener, one more for other hosts, and a page for its reports.
void check_descriptors(const Request& request) {
  const std::size_t each = request.hosts > 1 ? 3 : 2;
  constexpr std::size_t kOwn = 16;
  const std::size_t needed = kOwn + (request.threads ? 0 : each * static_cast<std::size_t>(request.ranks));
  if (!base::make_room_for_descriptors(needed)) throw std::runtime_error(base::lack_of_descriptors(needed));
}

Shares share_cores_here(const Request& request) {
  Shares shares = share_cores(request, base::cores_here(), std::getenv("OMP_NUM_THREADS"));
  if (!shares.warning.empty()) base::write_line("sluice-run: " + shares.warning);
  if (!request.verbose) return shares;
  for (const std::string& note : shares.notes) base::write_line("sluice-run: " + note);
  return shares;
}

int launch_request(Request request) {
  if (!request.answer.empty()) {
    base::write_all(STDOUT_FILENO, request.answer, "standard output");
    return 0;
  }
  if (request.status != 0) {
    base::write_all(STDOUT_FILENO, ask_status(request.status), "standard output");
    return 0;
  }
  if (!request.finish.empty()) {
    base::trace::finish_timeline(request.finish);
    return 0;
  }
  if (!request.trace.empty()) ::setenv("SLUICE_TRACE", request.trace.c_str(), 1);
  const base::Env env = checked_env();  // a bad variable is one error here, not one from each rank
  // If a rank is a sluice-run, its exit code is that of its job, and its ranks inherit nothing of the outer job.
  base::Fd outer = join_launcher(env);
  for (const int fd : {env.listen_fd, env.tcp_fd, env.hosts_fd}) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  find_program(request.command.front());  // an error now, before other hosts wait for this one
  check_descriptors(request);
  Agreement agreement = meet(request, env);
  if (request.threads) agreement.job = new_job();
  const std::string job = agreement.job;
  Shares shares = share_cores_here(request);
  const int code = Job(std::move(request), std::move(shares), std::move(agreement), std::move(outer), env).supervise();
  if (env.trace.empty()) return code;
  try {
    base::trace::merge_the_rest(env.trace, job);
    return code;
  } catch (const std::exception& reason) {
    base::write_line("sluice-run: the timeline " + env.trace + " lacks events: " + reason.what());
    return code == 0 ? 1 : code;
  }
}

}  // namespace
}  // namespace sluice::runtime

int sluice::launch(int argc, char** argv) {
  return runtime::guarded("sluice-run", [&] {
    base::fill_standard_descriptors();
    return runtime::launch_request(runtime::parse_launch({argv + 1, argv + argc}));
  });
}
