// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/rivals/program.hpp"

#include "apps/bench/harness/child.hpp"
#include "apps/bench/harness/exchange.hpp"

#include <fmt/core.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace bench {
namespace {

struct Names {
  const char* rival;
  const char* program;
  const char* mode;  // chooses a rival, if the program contains several
};

Names names(Program program) {
  switch (program) {
    case Program::raw: return {"raw", "rival-raw", ""};
    case Program::raw_host: return {"raw_host", "rival-raw", "host"};
    case Program::synchronised: return {"synchronised", "rival-synchronised", ""};
    case Program::nvshmem: return {"nvshmem", "rival-nvshmem", ""};
    case Program::nccl: return {"nccl", "rival-nccl", "send"};
    case Program::nccl_put: return {"nccl_put", "rival-nccl", "put"};
    case Program::ucx: break;
  }
  return {"ucx", "rival-ucx", ""};
}

// The rival's program, in the folder of this program.
std::filesystem::path path(Program program) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / names(program).program;
}

// A line of a process: "give" and a value for the peer's process, "done" and the result of a run, or "cannot" and the
// reason.
struct Answer {
  std::string word;
  std::string text;
};

Answer read_answer(Child& child) {
  try {
    const std::string line = child.read_line();
    const auto end = std::min(line.find(' '), line.size());
    return {line.substr(0, end), line.substr(std::min(end + 1, line.size()))};
  } catch (const std::runtime_error& error) {
    return {"cannot", error.what()};
  }
}

// Gives the answer of this rank's process to the peer's rank, and returns the answer of its process.
Answer answer_of_peer(const Workload& workload, const Answer& mine) {
  std::array<char, 1024> buffer{};
  const std::string line = mine.word + ' ' + mine.text;
  line.copy(buffer.data(), buffer.size() - 1);
  sluice::Context context = workload.context;
  const std::string theirs(exchange(context, workload.peer, buffer).data());
  return {theirs.substr(0, theirs.find(' ')), theirs.substr(theirs.find(' ') + 1)};
}

// Waits until both processes have executed the last line, and passes the values that they exchange. Returns the reason
// why one of them cannot; empty if both have succeeded.
std::string finish(Child& child, const Workload& workload) {
  for (;;) {
    const Answer mine = read_answer(child);
    const Answer theirs = answer_of_peer(workload, mine);
    for (const Answer& answer : {mine, theirs}) {
      if (answer.word == "cannot") return answer.text;
    }
    if (mine.word != theirs.word) return "its ranks do not agree";
    if (mine.word == "done") return {};
    child.write_line("take " + theirs.text);
  }
}

class ProgramContender : public Contender {
 public:
  ProgramContender(const char* rival, Child& child) : rival_(rival), child_(child) {}

  double run(long count) override {
    child_.write_line(fmt::format("run {}", count));
    const Answer answer = read_answer(child_);
    if (answer.word != "done") throw std::runtime_error(fmt::format("the rival {}: {}", rival_, answer.text));
    return std::stod(answer.text);
  }

 private:
  const char* rival_;
  Child& child_;
};

// The reason why the program cannot run on this machine; empty if it can. Asked once, because the answer takes long:
// the program starts the GPU's driver.
std::string check(Program program) {
  static std::mutex mutex;
  static std::map<Program, std::string> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(program); found != known.end()) return found->second;
  Child child({path(program).string(), "check", names(program).mode});
  const Answer answer = read_answer(child);
  return known[program] = answer.word == "done" ? "" : answer.text;
}

}  // namespace

std::string why_no_program(Program program, const Options& options) {
  if (options.stream != StreamChoice::cuda) return "is for --stream cuda";
  if (options.ranks != 2) return fmt::format("is a pair of processes, not {}", options.ranks);
  if (::access(path(program).c_str(), X_OK) != 0)
    return fmt::format("{} is not beside sluice-bench: apps/bench/rivals/programs/README.md says what it needs",
                       names(program).program);
  return check(program);
}

struct RivalPrograms::Running {
  Program program;
  std::unique_ptr<Child> child;  // null: the rival has turned out to be unable to run
};

RivalPrograms::RivalPrograms() = default;
RivalPrograms::~RivalPrograms() = default;

std::unique_ptr<Contender> RivalPrograms::make(Program program, const char* unit, const Workload& workload) {
  const Names name_of = names(program);
  auto found = std::ranges::find(running_, program, &Running::program);
  if (found == running_.end()) {
    const std::vector<std::string> command = {path(program).string(), "serve", name_of.mode, workload.first ? "0" : "1",
                                              std::to_string(workload.device)};
    running_.push_back({program, std::make_unique<Child>(command)});
    found = std::prev(running_.end());
  }
  if (found->child == nullptr) return nullptr;
  found->child->write_line(fmt::format("workload {} {} {} {} {} {}", unit,
                                       kDriveNames.at(static_cast<std::size_t>(workload.drive)), workload.bytes,
                                       workload.depth, workload.window, workload.neighbours));
  if (const std::string why = finish(*found->child, workload); !why.empty()) {
    found->child.reset();
    if (workload.first) fmt::print("# {} is left out: {}\n", name_of.rival, why);
    return nullptr;
  }
  return std::make_unique<ProgramContender>(name_of.rival, *found->child);
}

}  // namespace bench
