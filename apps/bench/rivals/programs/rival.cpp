// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/rivals/programs/rival.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace rivals {
namespace {

constexpr auto kHex = "0123456789abcdef";
constexpr std::size_t kMaxReasonBytes = 200;

// The original standard output. Libraries print to standard output, which `serve` redirects to standard error.
std::FILE* answers = nullptr;

void answer(const std::string& line) {
  std::fprintf(answers, "%s\n", line.c_str());
  std::fflush(answers);
}

void refuse(std::string why) {
  std::ranges::replace(why, '\n', ' ');
  answer("cannot " + why.substr(0, kMaxReasonBytes));
}

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += kHex[std::to_integer<unsigned>(byte) >> 4];
    text += kHex[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

void from_hex(const std::string& text, std::span<std::byte> bytes) {
  if (text.size() != 2 * bytes.size()) throw std::runtime_error("the other rank gave something else");
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
}

Workload read_workload(std::istream& words) {
  Workload read;
  std::string drive;
  words >> read.unit >> drive >> read.bytes >> read.depth >> read.window >> read.neighbours;
  const auto found = std::ranges::find(bench::kDriveNames, drive);
  if (!words || found == bench::kDriveNames.end()) throw std::runtime_error("this is no workload");
  read.drive = static_cast<bench::Drive>(found - bench::kDriveNames.begin());
  return read;
}

// Executes the lines of standard input until it ends.
void serve_lines(const Rival& rival, const Rank& rank) {
  std::unique_ptr<Runner> runner;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "workload") {
      runner.reset();
      runner = rival.open(read_workload(words), rank);
      answer("done");
    } else {
      long count = 0;
      words >> count;
      answer("done " + std::to_string(runner->run(count)));
    }
  }
}

class OnStream : public Runner {
 public:
  OnStream(const Workload& workload, std::unique_ptr<bench::Queue> queue, std::unique_ptr<Verbs> verbs, bool first)
      : workload_(workload), first_(first), queue_(std::move(queue)), verbs_(std::move(verbs)) {
    queue_->prepare(
        workload_.drive, [this] { step(); }, workload_.period());
  }

  double run(long count) override {
    if (!verbs_->driven_by_host()) return queue_->drive(workload_.drive, count, [this] { step(); });
    return bench::timed_steps(count, [this] { step(); });
  }

 private:
  void step() {
    if (workload_.unit == "ping_pong") {
      ping_pong();
    } else if (workload_.unit == "halo") {
      halo();
    } else if (first_) {
      send_window();
    } else {
      receive_window();
    }
    ++steps_;
  }

  void ping_pong() {
    const int slot = static_cast<int>(steps_ % workload_.depth);
    const auto put = [&] { queue_->verb(bench::Drive::enqueue_put, [&] { verbs_->put(slot, 1); }); };
    if (first_) put();
    queue_->verb(bench::Drive::enqueue_wait, [&] { verbs_->wait(slot, 1); });
    if (workload_.needs_credits()) queue_->verb(bench::Drive::enqueue_release, [&] { verbs_->release(slot, 1); });
    if (!first_) put();
  }

  // Each rank puts its step n+1 only after it has received the other's step n. So two sets of slots need no credits.
  void halo() {
    verbs_->exchange(static_cast<int>(steps_ % workload_.period()) * workload_.neighbours, workload_.neighbours);
  }

  // Moves a window in bursts of half a ring: the receiver reads one half while the sender fills the other one.
  template <class Burst>
  void bursts(Burst burst) {
    const int half = std::max(workload_.depth / 2, 1);
    for (int done = 0; done < workload_.window;) {
      const int count = std::min({half, workload_.window - done, workload_.depth - slot_});
      burst(slot_, count);
      slot_ = (slot_ + count) % workload_.depth;
      done += count;
    }
  }

  void send_window() {
    bursts([this](int first, int count) { verbs_->put(first, count); });
    verbs_->await_notice();
  }

  void receive_window() {
    bursts([this](int first, int count) {
      verbs_->wait(first, count);
      verbs_->release(first, count);
    });
    verbs_->notify();
  }

  const Workload workload_;
  const bool first_;
  const std::unique_ptr<bench::Queue> queue_;
  const std::unique_ptr<Verbs> verbs_;
  long steps_ = 0;
  int slot_ = 0;  // the next slot of a flood
};

}  // namespace

int Workload::slots() const { return unit == "halo" ? period() * neighbours : depth; }

int Workload::period() const { return unit == "halo" ? 2 : depth; }

int Workload::filled() const { return unit == "halo" ? neighbours : unit == "flood" ? std::min(depth, window) : 1; }

bool Workload::needs_credits() const {
  return unit == "flood" || drive == bench::Drive::enqueue_put || drive == bench::Drive::enqueue_wait ||
         drive == bench::Drive::enqueue_release;
}

void Rank::swap(std::span<const std::byte> mine, std::span<std::byte> theirs) {
  answer("give " + to_hex(mine));
  std::string word;
  std::string text;
  std::string line;
  std::getline(std::cin, line);
  std::istringstream(line) >> word >> text;
  if (word != "take") throw std::runtime_error("the other rank is gone");
  from_hex(text, theirs);
}

std::unique_ptr<Runner> run_on(const Workload& workload, const Rank& rank, std::unique_ptr<bench::Queue> queue,
                               std::unique_ptr<Verbs> verbs) {
  return std::make_unique<OnStream>(workload, std::move(queue), std::move(verbs), rank.rank == 0);
}

int serve(int argc, char** argv, const Rival& rival) {
  // This process ends with sluice-bench: otherwise its stream might wait for ever.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  answers = ::fdopen(::dup(STDOUT_FILENO), "w");
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  try {
    Rank rank;
    if (argc < 2) throw std::runtime_error("is started by sluice-bench");
    if (argc > 2) rank.mode = arguments[2];
    rival.check(rank);
    if (argc < 5) {
      answer("done");
      return 0;
    }
    rank.rank = std::stoi(arguments[3]);
    rank.device = std::stoi(arguments[4]);
    serve_lines(rival, rank);
  } catch (const std::exception& error) {
    refuse(error.what());
    return 1;
  }
  return 0;
}

}  // namespace rivals
