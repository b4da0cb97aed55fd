// SPDX-License-Identifier: Apache-2.0
// The copy of a put against the C library's, as it is and without `rep movsb`. The latter runs in another process,
// since the C library reads that setting when a process starts.
#include "base/copy.hpp"

#include "apps/bench/benches.hpp"
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/harness/child.hpp"
#include "apps/common/report.hpp"
#include "apps/common/sizes.hpp"

#include <sluice/run.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

namespace bench {
namespace {

constexpr double kGoal = 0.95;
constexpr int kWarmUps = 2;  // a change of process flushes the TLB
constexpr long kMaxCopies = 10000;
constexpr std::size_t kBytesOfRound = 400000;
constexpr std::size_t kCallAsBytes = 40;  // a call takes about as long as so many bytes
constexpr std::size_t kFewRoundsMin = 8 << 20;
constexpr int kFewRounds = 7;
constexpr std::size_t kMaxBetween = 256;  // up to here sizes between the powers of two are measured, too
const char* const kTunable = "GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1000000000";

/// Maps the file until the process ends: at the address, or elsewhere if that is in use.
void* map_pages(int file, std::size_t bytes, void* address) {
  void* const at = ::mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  if (at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap of memory to copy");
  return at;
}

/// Addresses in pages that both processes have mapped.
struct Copy {
  std::uintptr_t to;
  std::uintptr_t from;
  std::size_t bytes;
};

/// The time of `count` calls of `copy_by(to, from, bytes)`, in nanoseconds.
template <class CopyBy>
double timed_copies(const Copy& copy, long count, CopyBy copy_by) {
  auto* const to = reinterpret_cast<std::byte*>(copy.to);
  const auto* const from = reinterpret_cast<const std::byte*>(copy.from);
  const auto step = [=, bytes = copy.bytes] {
    copy_by(to, from, bytes);
    keep(to);
  };
  for (int i = 0; i < kWarmUps; ++i) step();
  return timed_steps(count, step);
}

double timed_memcpy(const Copy& copy, long count) {
  return timed_copies(copy, count, [](auto... arguments) { std::memcpy(arguments...); });
}

double timed_copy_bytes(const Copy& copy, long count) {
  return timed_copies(copy, count, [](auto... arguments) { sluice::base::copy_bytes(arguments...); });
}

class CopyHere : public Contender {
 public:
  CopyHere(const Copy& copy, double (*timed)(const Copy&, long)) : copy_(copy), timed_(timed) {}
  double run(long count) override { return timed_(copy_, count); }

 private:
  const Copy copy_;
  double (*const timed_)(const Copy&, long);
};

class CopyInChild : public Contender {
 public:
  CopyInChild(const Copy& copy, Child& child) : copy_(copy), child_(child) {}
  double run(long count) override {
    child_.write_line(fmt::format("{} {} {} {}", copy_.to, copy_.from, copy_.bytes, count));
    return std::stod(child_.read_line());
  }

 private:
  const Copy copy_;
  Child& child_;
};

std::vector<std::size_t> with_sizes_between(const std::vector<std::size_t>& sizes) {
  std::vector<std::size_t> all;
  for (const std::size_t bytes : sizes) {
    all.push_back(bytes);
    if (sizes.size() > 1 && bytes <= kMaxBetween) all.push_back(bytes + bytes / 2);
  }
  return all;
}

// As the library's contexts do: a shared library has variables of its own.
void prepare_copies() {
  const auto info = nlohmann::json::parse(sluice::info(true));
  for (const auto& variable : info.at("variables")) {
    if (variable.at("name") == "SLUICE_NONTEMPORAL_MIN")
      sluice::base::prepare_copies(apps::parse_size(variable.at("value").get<std::string>()));
  }
}

void measure_copy(Session& session, Child& child, const Copy& copy, std::size_t offset) {
  std::vector<Entry> entries;
  entries.push_back({"sluice", "ours", std::make_unique<CopyHere>(copy, timed_copy_bytes)});
  entries.push_back({"shipped", "memcpy", std::make_unique<CopyHere>(copy, timed_memcpy)});
  entries.push_back({"tuned", std::string("memcpy with ") + kTunable, std::make_unique<CopyInChild>(copy, child)});
  Budget budget{session.options.rounds, session.options.iterations};
  if (copy.bytes >= kFewRoundsMin) budget.rounds = std::min(budget.rounds, kFewRounds);
  if (budget.iterations == 0)
    budget.iterations = std::clamp(static_cast<long>(kBytesOfRound / (copy.bytes + kCallAsBytes)), 1L, kMaxCopies);
  budget.batch = budget.iterations;
  const Measurement measured = measure(session.team(), entries, budget);
  const Workload workload = session.pair_workload(copy.bytes, 1);
  Row row = make_row(session, workload, {"copy", "ns", [](double ns) { return ns; }}, "", measured);
  row.offset = offset;
  row.sample = "mean of copies";  // so that a head is for all rows of an offset
  for (RivalResult& rival : row.rivals) rival.goal = rival.goal.value_or(kGoal);
  session.report->add(std::move(row));
}

}  // namespace

int serve_copies(std::span<char* const> arguments) {
  auto* const address = reinterpret_cast<void*>(std::stoull(arguments[2]));
  if (map_pages(std::stoi(arguments[0]), std::stoull(arguments[1]), address) != address)
    throw std::runtime_error("the address of the pages to copy is in use");
  Copy copy{};
  for (long count = 0; std::cin >> copy.to >> copy.from >> copy.bytes >> count;)
    apps::print("{}\n", timed_memcpy(copy, count));
  return 0;
}

void run_copy(Session& session) {
  prepare_copies();
  const std::vector<std::size_t> sizes = with_sizes_between(session.options.sizes);
  const std::size_t area = whole_pages(*std::ranges::max_element(sizes)) + 4 * kPage;
  const int file = ::memfd_create("sluice-bench", 0);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(2 * area)) != 0)
    throw std::system_error(errno, std::generic_category(), "memory to copy");
  // Both processes map it at one address, which is free in both: caches may find a line by its virtual address.
  const auto pages = reinterpret_cast<std::uintptr_t>(
      map_pages(file, 2 * area, reinterpret_cast<void*>(std::uintptr_t{0x200000000000})));
  Child child({"/usr/bin/env", kTunable, std::filesystem::read_symlink("/proc/self/exe").string(), kServeCopies,
               std::to_string(file), std::to_string(2 * area), std::to_string(pages)});
  ::close(file);
  for (const std::size_t offset : session.options.offsets) {
    for (const std::size_t bytes : sizes)
      measure_copy(session, child, {pages + area + kPage + offset, pages + kPage, bytes}, offset);
  }
}

}  // namespace bench
