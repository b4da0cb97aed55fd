// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/cases.hpp"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <set>
#include <string_view>

namespace sluice::test {
namespace {

std::string size_name(std::size_t bytes) {
  if (bytes >= 1024 * 1024 && bytes % (1024 * 1024) == 0) return std::to_string(bytes / 1024 / 1024) + "MiB";
  return std::to_string(bytes) + "B";
}

template <class Change, class Value>
std::vector<Case> with_each(const std::vector<Case>& cases, const std::vector<Value>& values, Change change) {
  std::vector<Case> all;
  for (const Case& one : cases) {
    for (const Value& value : values) {
      all.push_back(one);
      change(all.back(), value);
    }
  }
  return all;
}

/// Each is a run of its own: loading libfabric alone takes a rank 0.2 s. Only conformance_mpi has MPI.
const std::vector<Ground>& networks() {
  static const std::vector<Ground> all = {{"ofi_tcp", "ofi:tcp", true},
                                          {"threads_ofi_tcp", "ofi:tcp", false},
                                          {"ofi_shm", "ofi:shm", true, true},
                                          {"ofi_sockets", "ofi:sockets", true, true, true, true},
                                          {"emucxi", "emucxi", true, true, true, true},
                                          {"chaos", "ofi:chaos", true, true, true},
                                          {"cxi", "cxi", true, true, false, true},
                                          {"threads_mpi", "mpi", false, true},
                                          {"late_messages", "late_messages", false, true}};
  return all;
}

/// One that never changes; in the full run a new one, which is printed. Ranks inherit the seed of their test.
void choose_seed() {
  constexpr unsigned kSeed = 20261121;
  if (std::getenv("CHAOS_SEED") != nullptr) return;
  const bool full = std::getenv("SLUICE_USER_FULL") != nullptr;
  const std::string seed = std::to_string(full ? std::random_device()() >> 1 : kSeed);
  std::cout << "CHAOS_SEED=" << seed << '\n' << std::flush;
  setenv("CHAOS_SEED", seed.c_str(), 1);
}

}  // namespace

const std::vector<Ground>& grounds() {
  static const std::vector<Ground> all = [] {
    std::vector<Ground> named = {{"threads", "threads", false}, {"shm", "shm", true}};
    const char* const level = std::getenv("SLUICE_LEVEL");
    // Nothing tells when the peer has written a word.
    const bool writes_words = level != nullptr && std::string_view(level) == "0";
    for (const Ground& network : networks()) {
      if (GTEST_FLAG_GET(filter).find(network.name) == std::string::npos) continue;
      if (network.name == "chaos") choose_seed();
      named.push_back(network);
      named.back().network = true;
      named.back().polled |= writes_words;
    }
    return named;
  }();
  return all;
}

const std::vector<Ground>& wrapped_grounds() {
  static const std::vector<Ground> all = {{.name = "posted", .backend = "posted"},
                                          {.name = "rung", .backend = "rung", .arms = true}};
  return all;
}

const std::vector<Ground>& all_grounds() {
  static const std::vector<Ground> all = {{"threads", "threads", false},
                                          {"shm", "shm", true},
                                          {"shm_between_threads", "shm", false},
                                          {"posted", "posted", false},
                                          {.name = "rung", .backend = "rung", .arms = true}};
  return all;
}

std::string Case::name() const {
  return ground.name +
         (cuda   ? "_cuda"
          : host ? "_host"
                 : "_inline") +
         (user ? "_user" : "_allocated") + "_d" + std::to_string(depth) + "_" + size_name(bytes) +
         (ranks == 2 ? "" : "_" + std::to_string(ranks) + "ranks");
}

Peers Case::peers() const {
  Peers peers;
  peers.ranks = ranks;
  peers.processes = ground.processes;
  peers.backend = ground.backend;
  return peers;
}

std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name(); }

std::vector<Case> stream_cases() {
  const auto cases =
      with_each(std::vector<Case>(1), grounds(), [](Case& one, const Ground& ground) { one.ground = ground; });
  std::vector<int> kinds = {0, 1};
  if (GTEST_FLAG_GET(filter).find("cuda") != std::string::npos) kinds.push_back(2);
  return with_each(cases, kinds, [](Case& one, int kind) {
    one.host = kind != 0;
    one.cuda = kind == 2;
  });
}

std::vector<Case> memory_cases() {
  return with_each(stream_cases(), std::vector<int>{0, 1}, [](Case& one, int user) { one.user = user != 0; });
}

std::vector<Case> with_depths(const std::vector<Case>& cases, const std::vector<int>& depths) {
  return with_each(cases, depths, [](Case& one, int depth) { one.depth = depth; });
}

std::vector<Case> inline_only(std::vector<Case> cases) {
  std::erase_if(cases, [](const Case& one) { return one.host; });
  return cases;
}

Case on_host(Case one) {
  one.host = true;
  one.cuda = false;
  return one;
}

std::vector<Case> with_sizes(const std::vector<Case>& cases, const std::vector<std::size_t>& sizes) {
  return with_each(cases, sizes, [](Case& one, std::size_t bytes) { one.bytes = bytes; });
}

std::vector<Case> with_ranks(const std::vector<Case>& cases, const std::vector<int>& ranks) {
  return with_each(cases, ranks, [](Case& one, int count) { one.ranks = count; });
}

std::vector<Case> on(const std::vector<Ground>& grounds, const std::vector<Case>& cases) {
  std::vector<Case> all = with_each(cases, grounds, [](Case& one, const Ground& ground) { one.ground = ground; });
  std::set<std::string> names;
  std::erase_if(all, [&](const Case& one) { return !names.insert(one.name()).second; });
  return all;
}

std::string why_not_kill(const Ground& ground) {
  if (ground.name != "ofi_shm" || std::getenv("SLUICE_USER_FULL") != nullptr) return {};
  return "ranks killed over ofi_shm: one that dies with a lock of libfabric held hangs who writes to it; in the full "
         "run only";
}

bool wants_full() {
  const std::string filter = GTEST_FLAG_GET(filter);
  if (filter.find("-Full/*") != std::string::npos) return false;
  return filter.starts_with("Full/") || filter.starts_with('*') || filter.find(":Full/") != std::string::npos;
}

Buffer::Buffer(Context& context, const Case& one, std::size_t bytes) {
  const std::size_t at_least = std::max<std::size_t>(bytes, 64);  // slots of no bytes have a place too
  if (one.user) {
    users_.reset(new std::byte[at_least]);
    all_ = context.region(users_.get(), at_least).slice(0, bytes);
  } else {
    all_ = context.allocate(at_least).slice(0, bytes);
  }
  poison(this->bytes());
}

ChannelEnd::ChannelEnd(Context& context, const Case& one, ChannelOptions options)
    : first(context.rank() == 0), order(one), buffer(context, one) {
  options.depth = one.depth;
  if (first) {
    sender = context.sender(1, kTag, buffer.all(), options);
  } else {
    receiver = context.receiver(0, kTag, buffer.all(), options);
  }
}

BothEnds::BothEnds(Context& context, const Case& one)
    : first(context.rank() == 0), other(1 - context.rank()), order(one), source(context, one), target(context, one),
      sender(context.sender(other, kTag, source.all())), receiver(context.receiver(other, kTag, target.all())) {}

bool is_refused(Sender& sender, Stream stream) {
  try {
    sender.acquire(stream);
    return false;
  } catch (const Error& error) {
    return error.code() == Code::misuse;
  }
}

long resident_kib() {
  if (!kSanitized) ::malloc_trim(0);
  std::ifstream status("/proc/self/status");
  long kib = 0;
  for (std::string word; status >> word;)
    if (word == "VmRSS:") status >> kib;
  return kib;
}

void expect_and_poison(const Slice& slot, const Stamp& stamp) {
  EXPECT_EQ(difference(bytes_of(slot), stamp), "");
  poison(bytes_of(slot));
}

}  // namespace sluice::test
