// SPDX-License-Identifier: Apache-2.0
// Bad settings, and machines that have run out of something: one clear error, the right exit code, nothing hangs.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/fd.hpp"
#include "tests/conformance/cases.hpp"
#include "tests/faults/dev_shm.hpp"
#include "tests/faults/limit.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class Settings : public testing::TestWithParam<Case> {};

void expect_refused(const Peers& peers, const std::string& named) {
  const Ended ended = end_of_peers(peers, [](Context&) { ADD_FAILURE() << "the body was called"; });
  EXPECT_FALSE(ended.hung);
  EXPECT_EQ(ended.code, 2) << ended.text;
  EXPECT_NE(ended.text.find(named), std::string::npos) << ended.text;
}

TEST_P(Settings, an_unknown_variable_is_named) {
  Peers peers = GetParam().peers();
  peers.environment = {"SLUICE_NONSENSE=1"};
  expect_refused(peers, "SLUICE_NONSENSE");
}

TEST_P(Settings, a_bad_value_is_named) {
  for (const char* const variable : {"SLUICE_TIMEOUT=soon", "SLUICE_BOUNCE_MAX=-1", "SLUICE_LOG=loud",
                                     "SLUICE_CONNECT_TIMEOUT=5 s", "SLUICE_ENGINE_CPU=100000"}) {
    Peers peers = GetParam().peers();
    peers.environment = {variable};
    expect_refused(peers, std::string(variable).substr(0, std::string(variable).find('=')));
  }
}

TEST_P(Settings, an_unknown_backend_is_named) {
  Peers peers = GetParam().peers();
  peers.backend = "carrier-pigeon";
  expect_refused(peers, "carrier-pigeon");
}

TEST_P(Settings, a_users_own_variables_are_left_alone) {
  Peers peers = GetParam().peers();
  peers.environment = {"SLUICE_USER_ANYTHING=1", "SLUICE_ROOT=/nowhere", "SLUICE_DIR=/nowhere"};
  run_peers(peers, [](Context&) {});
}

/// Between processes the backend `threads` reaches no peer: that is an error, not a silent change of backend.
TEST(Backends, one_that_does_not_reach_the_peer_is_an_error) {
  Peers peers;
  peers.processes = true;
  peers.backend = "threads";
  run_peers(peers, [](Context& context) {
    const Memory memory = context.allocate(64);
    Sender sender = context.sender(1 - context.rank(), 1, memory.slice(0, 64));
    Receiver receiver = context.receiver(1 - context.rank(), 1, memory.slice(0, 64));
    const auto error = expect_code(Code::unsupported, [&] { sender.wait_connected(); });
    EXPECT_EQ(error ? error->peer() : -1, 1 - context.rank());
    expect_code(Code::unsupported, [&] { receiver.wait_connected(); });
    expect_code(Code::unsupported, [&] { static_cast<void>(receiver.connected()); });
    board().meet(context);
  });
}

/// The end fails before it has any place where bytes could land.
TEST(Backends, one_that_does_not_reach_the_peer_fails_what_waits_already) {
  Peers peers;
  peers.processes = true;
  peers.backend = "threads";
  run_peers(peers, [](Context& context) {
    const Memory memory = context.allocate(128);
    HostStream stream;
    Receiver one = context.receiver(1 - context.rank(), 1, memory.slice(0, 64), {.depth = 2});
    Receiver many = context.receiver(1 - context.rank(), 2, memory.slice(64, 64), {.depth = 2});
    const auto fail = [&] {
      one.wait(Stream::host(stream));
      many.wait(Stream::host(stream), 2);
      stream.synchronize();
    };
    expect_code(Code::unsupported, fail);
    for (Receiver* const end : {&one, &many}) expect_code(Code::unsupported, [&] { end->wait_connected(); });
    board().meet(context);
  });
}

class Limits : public testing::TestWithParam<Case> {};

TEST_P(Limits, no_descriptors_left_is_out_of_resources_and_passes) {
  if (kSanitized) return skipped_here("a sanitizer needs descriptors to look at memory");
  Case alone = GetParam();
  alone.ranks = 1;
  run_peers(alone.peers(), [](Context& context) {
    {
      const NoDescriptors none;
      expect_code(Code::out_of_resources, [&] {
        std::vector<Memory> memories;
        for (int i = 0; i < 1000; ++i) memories.push_back(context.allocate(1024 * 1024));
      });
    }
    EXPECT_NE(context.allocate(1024 * 1024).data(), nullptr);
  });
}

/// Opening a channel takes memory for its words, which comes from a segment that others may have filled.
TEST_P(Limits, an_opening_without_descriptors_is_out_of_resources_and_passes) {
  if (kSanitized) return skipped_here("a sanitizer needs descriptors to look at memory");
  Case alone = GetParam();
  alone.ranks = 1;
  run_peers(alone.peers(), [](Context& context) {
    const Memory memory = context.allocate(64);
    {
      const NoDescriptors none;
      std::vector<Memory> full;
      for (const std::size_t bytes : {std::size_t{65536}, std::size_t{1024}}) {
        expect_code(Code::out_of_resources, [&] {
          for (int i = 0; i < 10'000; ++i) full.push_back(context.allocate(bytes));
        });
      }
      const auto error = expect_code(Code::out_of_resources, [&] { context.sender(0, kTag, memory.all()); });
      EXPECT_EQ(error ? error->tag() : 0, kTag);
    }
    Sender sender = context.sender(0, kTag, memory.all());
    const Receiver receiver = context.receiver(0, kTag, memory.all());
    sender.wait_connected();
  });
}

void expect_once(const std::string& text, const std::string& part) {
  const auto first = text.find(part);
  EXPECT_NE(first, std::string::npos) << "no '" << part << "' in:\n" << text;
  EXPECT_EQ(text.rfind(part), first) << text;
}

/// Both are tried again many times a second, for as long as it takes.
TEST(FullMachine, a_lack_of_descriptors_is_complained_of_once) {
  if (kSanitized) return skipped_here("a sanitizer needs descriptors to look at memory");
  const Case one{.ground = {"shm", "shm", true}};
  const Ended ended = end_of_peers(one.peers(), [&](Context& context) {
    constexpr std::size_t kTried = 0;
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      board().await(kTried, 1);
      Sender sender = context.sender(0, kTag, buffer.all());
      fill(buffer.bytes(), {1, kTag, 1});
      sender.put({});
      return;
    }
    std::optional<NoDescriptors> none(std::in_place);
    Receiver receiver = context.receiver(1, kTag, buffer.all());
    expect_code(Code::timeout, [&] { receiver.wait_connected(300ms); });
    board().set(kTried, 1);
    expect_code(Code::timeout, [&] { receiver.wait_connected(500ms); });
    none.reset();
    expect_and_poison(receiver.wait({}), {1, kTag, 1});
  });
  EXPECT_EQ(ended.code, 0) << ended.text;
  expect_once(ended.text, "rank 0: this process needs ");
}

/// The opening of a channel waits for a descriptor to be free; what other ranks say, or that they die, does not.
TEST(FullMachine, a_rank_without_descriptors_hears_of_others) {
  if (kSanitized) return skipped_here("a sanitizer needs descriptors to look at memory");
  const Case one{.ground = {"shm", "shm", true}, .ranks = 3, .bytes = 1024 * 1024};
  Peers peers = one.peers();
  peers.keep_going = true;
  const Ended ended = end_of_peers(peers, [&](Context& context) {
    constexpr std::size_t kFull = 0;
    constexpr std::size_t kDie = 1;
    const Buffer buffer(context, one);
    const Slice word = buffer.all().slice(0, 8);
    const Rank rank = context.rank();
    if (rank == 2) {
      Sender sender = context.sender(0, kTag, word);
      sender.wait_connected();
      board().await(kDie, 1);
      ::raise(SIGKILL);
    }
    if (rank == 1) {
      Sender first = context.sender(0, kTag, word);  // so that the ranks know each other
      first.wait_connected();
      board().await(kFull, 1);
      expect_and_poison(context.receiver(0, kTag, buffer.all()).wait({}), {0, kTag, 1});
      return;
    }
    Receiver known = context.receiver(1, kTag, word);
    Receiver dying = context.receiver(2, kTag, word);
    known.wait_connected();
    dying.wait_connected();
    Sender sender = context.sender(1, kTag, buffer.all());
    std::optional<NoDescriptors> none(std::in_place);
    board().set(kFull, 1);
    expect_code(Code::timeout, [&] { sender.wait_connected(300ms); });
    board().set(kDie, 1);
    const auto error = expect_code(Code::peer_lost, [&] { dying.wait({}); });
    EXPECT_EQ(error ? error->peer() : -1, 2);
    none.reset();
    fill(buffer.bytes(), {0, kTag, 1});
    sender.put({});
  });
  EXPECT_EQ(ended.code, 128 + SIGKILL);
  EXPECT_FALSE(ended.hung) << ended.text;
  EXPECT_EQ(ended.text.find("limits_test.cpp"), std::string::npos) << ended.text;
}

/// Shared memory of Sluice has no name, and none of its room is taken from /dev/shm.
TEST(FullMachine, a_full_dev_shm_hinders_nothing) {
  const OwnDevShm full("size=4k");
  if (!full.made()) return skipped_here("mounting in a name space of its own is forbidden");
  std::ofstream("/dev/shm/full") << std::string(100'000, 'x');
  const Case one{.ground = {"shm", "shm", true}, .bytes = 1024 * 1024};
  run_peers(one.peers(), [&](Context& context) {
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      fill(buffer.bytes(), {0, kTag, 1});
      context.sender(1, kTag, buffer.all()).put({});
    } else {
      expect_and_poison(context.receiver(0, kTag, buffer.all()).wait({}), {0, kTag, 1});
    }
  });
}

TEST_P(Limits, no_memory_left_is_out_of_resources_and_passes) {
  if (kSanitized) return skipped_here("a sanitizer needs its address space");
  Case alone = GetParam();
  alone.ranks = 1;
  run_peers(alone.peers(), [](Context& context) {
    {
      const Limit limit(RLIMIT_AS, rlim_t{2} << 30);
      expect_code(Code::out_of_resources, [&] { context.allocate(std::size_t{8} << 30); });
    }
    EXPECT_NE(context.allocate(1024 * 1024).data(), nullptr);
  });
}

/// The bytes of addresses that this process uses now.
rlim_t addresses_in_use() {
  std::ifstream pages("/proc/self/statm");
  rlim_t all = 0;
  pages >> all;
  return all * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

/// Small allocations share a piece of memory, whose descriptor a peer gets once.
TEST(FullMachine, a_peer_that_cannot_map_shared_memory_says_so) {
  if (kSanitized) return skipped_here("a sanitizer needs its address space");
  run_peers({.processes = true, .backend = "shm"}, [](Context& context) {
    const int rank = context.rank();
    const Memory shared = rank == 0 ? context.allocate(64) : Memory();
    const Memory own = rank == 0 ? Memory() : context.allocate(8 * 1024 * 1024);
    std::optional<Sender> sender;
    std::optional<Limit> limit;
    if (rank == 1) {
      sender.emplace(context.sender(0, kTag, own.slice(0, 64)));
      limit.emplace(RLIMIT_AS, addresses_in_use() + (rlim_t{512} << 10));
    }
    board().meet(context);
    const auto because = [](auto wait) {
      const auto error = expect_code(Code::out_of_resources, wait);
      EXPECT_NE(std::string(error ? error->what() : "").find("cannot be reached"), std::string::npos);
    };
    if (rank == 0) {
      Receiver receiver = context.receiver(1, kTag, shared.all());
      because([&] { receiver.wait({}); });
    } else {
      because([&] { sender->wait_connected(20s); });
    }
    board().meet(context);
    limit.reset();
    expect_code(Code::out_of_resources, [&] { context.check(); });
  });
}

/// Descriptors of memory that all channels use are sent once.
TEST(FullMachine, a_channel_without_memory_for_its_lengths_breaks_no_other) {
  if (kSanitized) return skipped_here("a sanitizer needs its address space");
  run_peers({.processes = true, .backend = "shm"}, [](Context& context) {
    const Memory memory = context.allocate(64);
    if (context.rank() == 0) {
      {
        const Limit limit(RLIMIT_AS, addresses_in_use() + (rlim_t{256} << 20));
        Receiver deep = context.receiver(1, kTag, {}, {.depth = 1 << 28, .lengths = true});
        expect_code(Code::out_of_resources, [&] { deep.wait_connected(20s); });
      }
      Receiver receiver = context.receiver(1, kTag + 1, memory.all());
      expect_and_poison(receiver.wait({}), {1, kTag + 1, 1});
      receiver.release({});
    } else {
      Sender deep = context.sender(0, kTag, {});
      expect_code(Code::out_of_resources, [&] { deep.wait_connected(20s); });
      Sender sender = context.sender(0, kTag + 1, memory.all());
      fill(bytes_of(sender.acquire({})), {1, kTag + 1, 1});
      sender.put({});
    }
    expect_code(Code::out_of_resources, [&] { context.check(); });
  });
}

TEST(FullMachine, memory_beyond_the_limit_on_files_is_out_of_resources) {
  run_peers({.ranks = 1}, [](Context& context) {
    constexpr std::size_t kMost = 1 << 20;
    const Limit limit(RLIMIT_FSIZE, kMost);
    const auto error = expect_code(Code::out_of_resources, [&] { context.allocate(2 * kMost); });
    const std::string why = error ? error->what() : "";
    for (const char* const named : {"2097152", "1048576 bytes (ulimit -f)"})
      EXPECT_NE(why.find(named), std::string::npos) << why;
    EXPECT_NE(context.allocate(kMost / 2).data(), nullptr);
  });
}

/// A group of processes that may have so much memory, for the ranks of a test; v1 or v2.
class Cgroup {
 public:
  explicit Cgroup(std::size_t limit) {
    for (const char* const top : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      folder_ = std::filesystem::path(top) / ("sluice-test-" + std::to_string(::getpid()));
      std::error_code refused;
      std::filesystem::create_directory(folder_, refused);
      for (const char* const file : {"memory.limit_in_bytes", "memory.max"}) made_ |= write(file, limit);
      if (made_) return;
      std::filesystem::remove(folder_, refused);
    }
  }
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;
  ~Cgroup() {
    std::error_code refused;
    if (made_) std::filesystem::remove(folder_, refused);
  }

  bool made() const { return made_; }
  void enter() const { EXPECT_TRUE(write("cgroup.procs", static_cast<std::size_t>(::getpid()))); }

 private:
  bool write(const char* file, std::size_t number) const {
    if (!std::filesystem::exists(folder_ / file)) return false;
    std::ofstream out(folder_ / file);
    out << number << std::flush;
    return out.good();
  }

  std::filesystem::path folder_;
  bool made_ = false;
};

/// Reading a file fills the group with pages that it can give back, as long as the file is open.
base::Fd fill_page_cache(std::size_t bytes) {
  const std::string name = std::filesystem::temp_directory_path() / ("sluice-test-" + std::to_string(::getpid()));
  std::ofstream(name) << std::string(bytes, 'x');
  base::Fd file(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  ::fdatasync(file.get());
  std::vector<char> piece(1 << 20);
  while (::read(file.get(), piece.data(), piece.size()) > 0) {
  }
  std::filesystem::remove(name);
  return file;
}

TEST(FullMachine, memory_beyond_the_limit_of_its_cgroup_is_out_of_resources) {
  constexpr std::size_t kMiB = 1 << 20;
  if (kSanitized) return skipped_here("a sanitizer needs memory of its own");
  const Cgroup group(160 * kMiB);
  if (!group.made()) return skipped_here("no cgroup with a limit on memory can be made");
  run_peers({.ranks = 1}, [&](Context& context) {
    group.enter();
    const base::Fd cached = fill_page_cache(96 * kMiB);
    const Memory half = context.allocate(96 * kMiB);
    const auto error = expect_code(Code::out_of_resources, [&] { context.allocate(96 * kMiB); });
    const std::string why = error ? error->what() : "";
    for (const std::size_t named : {96 * kMiB, 160 * kMiB})
      EXPECT_NE(why.find(std::to_string(named)), std::string::npos) << why;
    EXPECT_NE(context.allocate(16 * kMiB).data(), nullptr);
  });
}

std::vector<Case> one_each() {
  std::vector<Case> cases;
  for (const Ground& ground : grounds()) cases.push_back({.ground = ground});
  return cases;
}
INSTANTIATE_IN_ITS_RANKS(Quick, Settings, testing::ValuesIn(one_each()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, Limits, testing::ValuesIn(one_each()), CaseName());

}  // namespace
