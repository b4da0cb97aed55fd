// SPDX-License-Identifier: Apache-2.0
#include "launch/launch_flags.hpp"

#include <charconv>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace sluice::runtime {

namespace {

constexpr std::string_view kUsage =
    "usage: sluice-run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
    "       sluice-run -n N --hosts H --host I --meet HOST:PORT [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
    "       sluice-run --status PID\n"
    "       sluice-run --finish FILE\n"
    "Starts N ranks of PROGRAM on this host. With --hosts the same command is given on each of H hosts, and all their\n"
    "ranks are one job: those of host 0 come first, then those of host 1, and so on.\n"
    "  -n N, -np N       how many ranks, here\n"
    "  --threads         as threads of one process\n"
    "  --keep-going      when a rank fails, let the others go on (else they are killed after 5 s)\n"
    "  --kill-after S    kill what still runs S seconds after it was told to end (SIGTERM, SIGINT); without this "
    "option\n"
    "                    the second such signal does that\n"
    "  --stdin WHO       who reads the standard input: first (rank 0; unless given), all or none\n"
    "  --status PID      print which ranks of the sluice-run with this process number wait for which\n"
    "  --trace FILE      write a timeline of all ranks to this file, as SLUICE_TRACE=FILE does\n"
    "  --bind WHAT       core: bind each rank to cores of its own; none (unless given): bind no rank\n"
    "  -v                say how the ranks share the cores\n"
    "  --finish FILE     add to the timeline what processes that were killed have left; for programs that another\n"
    "                    launcher has started\n"
    "  --hosts H         the job has ranks on H hosts\n"
    "  --host I          this is host I of them, from 0\n"
    "  --meet HOST:PORT  where host 0 can be reached by the others\n"
    "  --version         print the version\n"
    "The exit code is that of the first rank that failed; 128+S if signal S ended it.\n";

std::optional<int> number_in(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

MeetingPoint meeting_point(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const int port = colon < text.size() ? number_in(text.substr(colon + 1)).value_or(0) : 0;
  if (host.empty() || port < 1 || port > std::numeric_limits<std::uint16_t>::max())
    throw std::invalid_argument("--meet takes HOST:PORT, not \"" + std::string(text) + "\"");
  return {std::string(host), static_cast<std::uint16_t>(port)};
}

Readers readers(std::string_view text) {
  if (text == "first") return Readers::first;
  if (text == "all") return Readers::all;
  if (text == "none") return Readers::none;
  throw std::invalid_argument("--stdin takes first, all or none, not \"" + std::string(text) + "\"");
}

bool bound_to_cores(std::string_view text) {
  if (text == "core" || text == "none") return text == "core";
  throw std::invalid_argument("--bind takes core or none, not \"" + std::string(text) + "\"");
}

class Flags {
 public:
  explicit Flags(std::span<char*> arguments) : arguments_(arguments) {}

  Request parse() {
    while (next_ < arguments_.size() && arguments_[next_][0] == '-' && !done_ && request_.answer.empty()) {
      flag_ = split(arguments_[next_++]);
      const auto found = actions_.find(flag_);
      if (found == actions_.end()) throw std::invalid_argument("unknown flag " + flag_ + " (sluice-run --help)");
      if (!given_.insert(flag_).second) throw std::invalid_argument(flag_ + " is given twice");
      found->second();
      if (attached_) throw std::invalid_argument(flag_ + " takes no value");
    }
    if (!request_.answer.empty() || request_.status != 0 || !request_.finish.empty()) return request_;
    request_.command.assign(arguments_.begin() + static_cast<std::ptrdiff_t>(next_), arguments_.end());
    if (request_.ranks == 0) throw std::invalid_argument("how many ranks? -n N is missing (sluice-run --help)");
    check_hosts();
    if (request_.bind && request_.threads)
      throw std::invalid_argument("--bind is for ranks that are processes, not for --threads");
    if (request_.command.empty()) throw std::invalid_argument("which program? (sluice-run --help)");
    return request_;
  }

 private:
  /// The flag without the value that is attached to it: -n2, -n=2, -np=2, --trace=FILE.
  std::string_view split(std::string_view argument) {
    attached_.reset();
    if (argument.starts_with("-n")) {
      std::string_view rest = argument.substr(argument.starts_with("-np") ? 3 : 2);
      if (rest.starts_with('=')) rest.remove_prefix(1);
      if (!rest.empty()) attached_ = rest;
      return argument.substr(0, 2);
    }
    const std::size_t equals = argument.starts_with("--") ? argument.find('=') : std::string_view::npos;
    if (equals != std::string_view::npos) attached_ = argument.substr(equals + 1);
    return argument.substr(0, equals);
  }

  std::string_view value(const std::string& what) {
    if (attached_) return *std::exchange(attached_, {});
    if (next_ < arguments_.size()) return arguments_[next_++];
    throw std::invalid_argument(flag_ + " takes " + what);
  }

  int number(const std::string& what, int least) {
    const std::string_view text = value(what);
    const auto number = number_in(text);
    if (number && *number >= least) return *number;
    throw std::invalid_argument(flag_ + " takes " + what + ", " + std::to_string(least) + " or more, not \"" +
                                std::string(text) + "\"");
  }

  void check_hosts() const {
    const auto given = given_.count("--hosts") + given_.count("--host") + given_.count("--meet");
    if (given == 0) return;
    if (given < 3) throw std::invalid_argument("--hosts, --host and --meet are given together (sluice-run --help)");
    if (request_.threads) throw std::invalid_argument("--threads starts one process, not ranks on several hosts");
    if (request_.host >= request_.hosts) {
      throw std::invalid_argument("there is no --host " + std::to_string(request_.host) + " among " +
                                  std::to_string(request_.hosts) + ": the first is 0");
    }
  }

  std::span<char*> arguments_;
  std::size_t next_ = 0;
  std::string flag_;   // that is being read
  bool done_ = false;  // the program follows
  std::optional<std::string_view> attached_;
  std::set<std::string> given_;
  Request request_;
  const std::map<std::string, std::function<void()>> actions_ = {
      {"-n", [this] { request_.ranks = number("the number of ranks", 1); }},
      {"--threads", [this] { request_.threads = true; }},
      {"--keep-going", [this] { request_.keep_going = true; }},
      {"--kill-after", [this] { request_.kill_after = std::chrono::seconds(number("seconds", 0)); }},
      {"--stdin", [this] { request_.readers = readers(value("first, all or none")); }},
      {"--status", [this] { request_.status = number("the process number of a sluice-run", 1); }},
      {"--trace", [this] { request_.trace = value("a file"); }},
      {"--finish", [this] { request_.finish = value("the file of a timeline"); }},
      {"--bind", [this] { request_.bind = bound_to_cores(value("core or none")); }},
      {"-v", [this] { request_.verbose = true; }},
      {"--hosts", [this] { request_.hosts = number("the number of hosts", 1); }},
      {"--host", [this] { request_.host = number("the index of this host", 0); }},
      {"--meet", [this] { request_.meet = meeting_point(value("HOST:PORT")); }},
      {"-h", [this] { request_.answer = kUsage; }},
      {"--help", [this] { request_.answer = kUsage; }},
      {"--version", [this] { request_.answer = "sluice-run " SLUICE_VERSION "\n"; }},
      {"--", [this] { done_ = true; }}};
};

}  // namespace

Request parse_launch(std::span<char*> arguments) { return Flags(arguments).parse(); }

}  // namespace sluice::runtime
