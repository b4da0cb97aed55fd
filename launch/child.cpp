// SPDX-License-Identifier: Apache-2.0
#include "launch/child.hpp"

#include "base/cores.hpp"
#include "base/env.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace sluice::runtime {

namespace {

/// Returns the end to read from, and the end to write to.
std::pair<base::Fd, base::Fd> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) base::throw_not_opened("cannot start a rank");
  return {base::Fd(ends[0]), base::Fd(ends[1])};
}

void add_own_environment(std::vector<std::string>& variables) {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    // A launcher that a launcher started passes none of those variables on.
    if (!base::launchers_own(text.substr(0, text.find('=')))) variables.emplace_back(text);
  }
}

/// Runs between fork and exec, where nothing may allocate or lock.
[[noreturn]] void exec_in_child(const Child::Program& program, char* const* environment, pid_t parent, int input,
                                int error_to) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the launcher died before that took effect
  ::sigprocmask(SIG_SETMASK, &program.blocked, nullptr);
  for (const auto& [variable, fd] : program.descriptors) ::fcntl(fd, F_SETFD, 0);
  if (input >= 0) ::dup2(input, STDIN_FILENO);
  if (!program.cores.empty() && !base::bind_to(program.cores)) {
    constexpr std::string_view kUnbound = "sluice-run: cannot bind a rank to its cores\n";
    [[maybe_unused]] const auto said = ::write(STDERR_FILENO, kUnbound.data(), kUnbound.size());
  }
  ::execve(program.path.c_str(), program.arguments.data(), environment);
  const int error = errno;
  [[maybe_unused]] const auto written = ::write(error_to, &error, sizeof(error));
  ::_exit(2);
}

/// @param input  standard input of the program; -1: that of this process
pid_t fork_and_exec(const Child::Program& program, char* const* environment, int input) {
  auto [errors, error_to] = make_pipe();
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) base::throw_not_opened("cannot start a rank");
  if (pid == 0) exec_in_child(program, environment, parent, input, error_to.get());
  error_to = base::Fd();
  int error = 0;  // of `exec_in_child`
  while (::read(errors.get(), &error, sizeof(error)) < 0 && errno == EINTR) {
  }
  if (error == 0) return pid;
  ::waitpid(pid, nullptr, 0);
  throw std::system_error(error, std::generic_category(), "cannot execute " + program.path);
}

// False where /proc belongs to another name space of processes, which have other numbers there.
bool proc_is_ours() {
  std::error_code unreadable;
  return std::filesystem::read_symlink("/proc/self", unreadable) == std::to_string(::getpid());
}

bool executable(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

Child::Child(Program program) : name_(program.name) {
  auto [held, life] = make_pipe();
  auto [page, report] = new_report();
  struct stat status {};
  if (::fstat(life.get(), &status) != 0) base::throw_not_opened("cannot start a rank");
  report->process.launcher = status.st_ino;
  program.descriptors.emplace_back("SLUICE_REPORT_FD", page.get());
  program.descriptors.emplace_back("SLUICE_LAUNCHER_FD", life.get());
  for (const auto& [variable, fd] : program.descriptors)
    program.environment.push_back(variable + "=" + std::to_string(fd));
  add_own_environment(program.environment);
  std::vector<char*> variables;
  for (std::string& variable : program.environment) variables.push_back(variable.data());
  variables.push_back(nullptr);
  program.arguments.push_back(nullptr);

  const base::Fd nothing = program.reads_input ? base::Fd() : base::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!program.reads_input && !nothing) base::throw_not_opened("cannot open /dev/null for a rank");
  pid_ = fork_and_exec(program, variables.data(), nothing.get());
  report_ = std::move(report);
  held_ = std::move(held);
}

Child::~Child() {
  if (!running()) return;
  kill(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Child::kill(int signal) noexcept {
  if (pid_ < 0) return;
  ::kill(pid_, signal);
  killed_ |= signal == SIGKILL;
}

bool Child::ignores(int signal) const {
  if (!proc_is_ours()) return false;
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  for (std::string word; status >> word;) {
    std::uint64_t ignored = 0;
    if (word == "SigIgn:" && status >> std::hex >> ignored) return (ignored >> (signal - 1) & 1) != 0;
  }
  return false;
}

std::vector<Descendant> descendants() {
  if (!proc_is_ours()) return {};
  std::vector<Descendant> all;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", unreadable)) {
    std::ifstream stat(entry.path() / "stat");
    std::string line;
    // "PID (NAME) STATE PARENT ...", where NAME may have any of these characters.
    std::getline(stat, line);
    const std::size_t open = line.find(" (");
    const std::size_t close = line.rfind(") ");
    if (close == std::string::npos || close < open || line.compare(close + 2, 2, "Z ") == 0) continue;
    all.push_back(
        {std::atoi(line.c_str()), std::atoi(line.c_str() + close + 4), -1, line.substr(open + 2, close - open - 2)});
  }
  std::vector<Descendant> found = {{::getpid(), -1, -1, ""}};
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const Descendant& one : all) {
      if (one.parent != found[i].pid) continue;
      found.push_back(one);
      found.back().child = i == 0 ? one.pid : found[i].child;
    }
  }
  found.erase(found.begin());
  return found;
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (executable(name)) return name;
    throw std::invalid_argument("there is no program " + name);
  }
  const char* const path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    std::string candidate = (folder.empty() ? "." : std::string(folder)) + "/" + name;
    if (executable(candidate)) return candidate;
    rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
  }
  throw std::invalid_argument("there is no program " + name + " in PATH");
}

}  // namespace sluice::runtime
