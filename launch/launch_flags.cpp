// SPDX-License-Identifier: Apache-2.0
#include "launch/launch_flags.hpp"

#include <charconv>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace sluice::runtime {

const char* const kLaunchUsage =
    "usage: sluice-run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
    "       sluice-run -n N --hosts H --host I --meet HOST:PORT [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
    "Starts N ranks of PROGRAM on this host. With --hosts the same command is given on each of H hosts, and all their\n"
    "ranks are one job: those of host 0 come first, then those of host 1, and so on.\n"
    "  -n N, -np N       how many ranks, here\n"
    "  --threads         as threads of one process\n"
    "  --keep-going      when a rank fails, let the others go on (else they are killed after 5 s)\n"
    "  --kill-after S    kill what still runs S seconds after it was told to end (SIGTERM, SIGINT); without this "
    "option\n"
    "                    the second such signal does that\n"
    "  --stdin WHO       who reads the standard input: first (rank 0; unless given), all or none\n"
    "  --trace FILE      write a timeline of all ranks to this file, as SLUICE_TRACE=FILE does\n"
    "  --hosts H         the job has ranks on H hosts\n"
    "  --host I          this is host I of them, from 0\n"
    "  --meet HOST:PORT  where host 0 can be reached by the others\n"
    "  --version         print the version\n"
    "The exit code is that of the first rank that failed; 128+S if signal S ended it.\n";

namespace {

int number(std::string_view flag, std::string_view what, int least, std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) {
    throw std::invalid_argument(std::string(flag) + " takes " + std::string(what) + ", " + std::to_string(least) +
                                " or more, not \"" + std::string(text) + "\"");
  }
  return value;
}

MeetingPoint meeting_point(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, std::min(colon, text.size()));
  const std::string_view port = colon < text.size() ? text.substr(colon + 1) : std::string_view();
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  int value = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), value);
  if (host.empty() || error != std::errc() || end != port.data() + port.size() || value < 1 ||
      value > std::numeric_limits<std::uint16_t>::max()) {
    throw std::invalid_argument("--meet takes HOST:PORT, not \"" + std::string(text) + "\"");
  }
  return {std::string(host), static_cast<std::uint16_t>(value)};
}

Readers readers(std::string_view text) {
  if (text == "first") return Readers::first;
  if (text == "all") return Readers::all;
  if (text == "none") return Readers::none;
  throw std::invalid_argument("--stdin takes first, all or none, not \"" + std::string(text) + "\"");
}

class Flags {
 public:
  explicit Flags(std::span<char*> arguments) : arguments_(arguments) {}

  Request parse() {
    while (next_ < arguments_.size() && arguments_[next_][0] == '-' && !over_) read(arguments_[next_++]);
    if (request_.help || request_.version) return request_;
    request_.command.assign(arguments_.begin() + static_cast<std::ptrdiff_t>(next_), arguments_.end());
    if (request_.ranks == 0) throw std::invalid_argument("how many ranks? -n N is missing (sluice-run --help)");
    check_hosts();
    if (request_.command.empty()) throw std::invalid_argument("which program? (sluice-run --help)");
    return request_;
  }

 private:
  void read(std::string_view argument) {
    const std::string_view flag = split(argument);
    if (!given_.insert(flag).second) throw std::invalid_argument(std::string(flag) + " is given twice");
    if (flag == "-n") {
      request_.ranks = number(flag, "the number of ranks", 1, value(flag, "the number of ranks"));
    } else if (flag == "--trace") {
      request_.trace = value(flag, "a file");
    } else if (flag == "--hosts") {
      hosts_ = number(flag, "the number of hosts", 1, value(flag, "the number of hosts"));
    } else if (flag == "--host") {
      host_ = number(flag, "the index of this host", 0, value(flag, "the index of this host"));
    } else if (flag == "--meet") {
      meet_ = meeting_point(value(flag, "HOST:PORT"));
    } else if (flag == "--kill-after") {
      request_.kill_after = std::chrono::seconds(number(flag, "seconds", 0, value(flag, "seconds")));
    } else if (flag == "--stdin") {
      request_.readers = readers(value(flag, "first, all or none"));
    } else {
      read_switch(flag);
    }
  }

  void read_switch(std::string_view flag) {
    if (flag == "-h" || flag == "--help") {
      over_ = request_.help = true;
    } else if (flag == "--version") {
      over_ = request_.version = true;
    } else if (flag == "--") {
      over_ = true;
    } else if (flag == "--threads") {
      request_.threads = true;
    } else if (flag == "--keep-going") {
      request_.keep_going = true;
    } else {
      throw std::invalid_argument("unknown flag " + std::string(flag) + " (sluice-run --help)");
    }
    if (attached_) throw std::invalid_argument(std::string(flag) + " takes no value");
  }

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

  std::string_view value(std::string_view flag, std::string_view what) {
    if (attached_) return *attached_;
    if (next_ < arguments_.size()) return arguments_[next_++];
    throw std::invalid_argument(std::string(flag) + " takes " + std::string(what));
  }

  void check_hosts() {
    if (!hosts_ && !host_ && !meet_) return;
    if (!hosts_ || !host_ || !meet_) {
      throw std::invalid_argument("--hosts, --host and --meet are given together (sluice-run --help)");
    }
    if (request_.threads) throw std::invalid_argument("--threads starts one process, not ranks on several hosts");
    if (*host_ >= *hosts_) {
      throw std::invalid_argument("there is no --host " + std::to_string(*host_) + " among " + std::to_string(*hosts_) +
                                  ": the first is 0");
    }
    request_.hosts = *hosts_;
    request_.host = *host_;
    request_.meet = *meet_;
  }

  std::span<char*> arguments_;
  std::size_t next_ = 0;
  bool over_ = false;  // what follows is the program
  std::optional<std::string_view> attached_;
  std::set<std::string_view> given_;
  Request request_;
  std::optional<int> hosts_;
  std::optional<int> host_;
  std::optional<MeetingPoint> meet_;
};

}  // namespace

Request parse_launch(std::span<char*> arguments) { return Flags(arguments).parse(); }

}  // namespace sluice::runtime
