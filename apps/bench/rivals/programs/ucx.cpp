// SPDX-License-Identifier: Apache-2.0
// UCX, measured by its own program ucx_perftest from PATH: once for each workload, before the rounds. It takes no turns
// with the other contenders.
#include "apps/bench/rivals/programs/rival.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace {

constexpr double kBytes = 1e9;  // of all messages, if these are 100 to 10000
constexpr int kAttempts = 50;
constexpr unsigned kBetweenAttemptsUs = 200000;

// Places in its last line, which has figures separated by commas.
constexpr std::size_t kOneWayUs = 3;
constexpr std::size_t kMessagesPerSecond = 7;
constexpr std::size_t kFigures = 8;

void check_here(const rivals::Rank& /*rank*/) {
  std::istringstream folders(std::getenv("PATH") == nullptr ? "" : std::getenv("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/ucx_perftest").c_str(), X_OK) == 0) return;
  }
  throw std::runtime_error("there is no ucx_perftest in PATH");
}

// A port of this machine that was free a moment ago.
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool bound = ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(socket);
  if (!bound) throw std::runtime_error("there is no free port");
  return ntohs(address.sin_port);
}

std::string command(const rivals::Workload& workload, const std::string& where) {
  const auto count_for_bytes =
      static_cast<long>(kBytes / static_cast<double>(std::max<std::size_t>(workload.bytes, 1)));
  const long count = std::clamp(count_for_bytes, 100L, 10000L);
  std::ostringstream text;
  text << "timeout 20 ucx_perftest " << where << " -t " << (workload.unit == "flood" ? "ucp_put_bw" : "ucp_put_lat")
       << " -m cuda,cuda -s " << workload.bytes << " -n " << count << " -w " << count / 10 << " -f -v";
  return text.str();
}

/// The figures of its last line; none if that line has no figures.
std::vector<double> figures(std::FILE* output) {
  std::array<char, 1024> line{};
  std::vector<double> found;
  while (std::fgets(line.data(), static_cast<int>(line.size()), output) != nullptr) {
    std::istringstream text(line.data());
    found.clear();
    double value = 0;
    for (char comma = ','; comma == ',' && text >> value; text >> comma) found.push_back(value);
  }
  return found;
}

/// Rank 0 runs the server, and rank 1 the client, whose figures count.
/// @returns the figures, at rank 1; none if ucx_perftest has failed
std::vector<double> measure(const rivals::Workload& workload, const rivals::Rank& rank) {
  if (rank.rank == 0) {
    const int port = free_port();
    std::FILE* const server = ::popen((command(workload, "-p " + std::to_string(port)) + " >/dev/null").c_str(), "r");
    rank.exchange(port);
    ::pclose(server);
    return {};
  }
  const std::string where = "127.0.0.1 -p " + std::to_string(rank.exchange(0));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::FILE* const client = ::popen((command(workload, where) + " 2>/dev/null").c_str(), "r");
    std::vector<double> found = figures(client);
    if (::pclose(client) == 0 && found.size() >= kFigures) return found;
    ::usleep(kBetweenAttemptsUs);  // the server may not listen yet
  }
  return {};
}

class Figure : public rivals::Runner {
 public:
  Figure(const rivals::Workload& workload, const rivals::Rank& rank) {
    const std::vector<double> found = measure(workload, rank);
    double unit_ns = 0;
    if (found.size() >= kFigures)
      unit_ns = workload.unit == "flood" ? workload.window * 1e9 / found[kMessagesPerSecond] : 2e3 * found[kOneWayUs];
    const double theirs = rank.exchange(unit_ns);
    unit_ns_ = rank.rank == 0 ? theirs : unit_ns;
    if (unit_ns_ <= 0) throw std::runtime_error("ucx_perftest gives no figure for memory of this GPU");
  }

  double run(long count) override { return unit_ns_ * static_cast<double>(count); }

 private:
  double unit_ns_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  ::setenv("UCX_TLS", "cuda_ipc,cuda_copy,sm,self", 0);
  return rivals::serve(argc, argv,
                       {.check = check_here, .open = [](const rivals::Workload& workload, const rivals::Rank& rank) {
                          if (workload.bytes == 0) throw std::runtime_error("ucx_perftest has no empty messages");
                          return std::make_unique<Figure>(workload, rank);
                        }});
}
