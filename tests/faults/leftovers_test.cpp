// SPDX-License-Identifier: Apache-2.0
// Files that killed ranks leave in /dev/shm over libfabric's shm, and a /dev/shm that is full.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "backends/transport.hpp"
#include "base/fd.hpp"
#include "tests/conformance/cases.hpp"
#include "tests/faults/dev_shm.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

std::vector<std::string> files() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) names.push_back(file.path().filename());
  std::ranges::sort(names);
  return names;
}

base::Fd file_in_dev_shm(const std::string& name) {
  base::Fd file(::open(("/dev/shm/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  EXPECT_TRUE(file && ::ftruncate(file.get(), 4096) == 0);
  return file;
}

class DevShm : public testing::Test {
 protected:
  void SetUp() override {
    if (is_a_rank()) return;  // /dev/shm is as the test has made it
    std::string why_not = kSanitized ? "libfabric is not built for sanitizers" : why_unusable("ofi:shm");
    if (why_not.empty() && !shm_.made()) why_not = "mounting in a name space of its own is forbidden";
    if (why_not.empty()) return;
    skipped_here(why_not);
    GTEST_SKIP() << why_not;
  }

 private:
  const OwnDevShm shm_{"size=64m"};
};

/// The number of a process that has ended, and the owner's part of its files' names.
std::string name_of_the_dead() {
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  return std::to_string(dead) + ":" + std::to_string(::getuid());
}

TEST_F(DevShm, loses_files_that_belong_to_nobody) {
  const std::string dead = name_of_the_dead();
  file_in_dev_shm(dead + ":0");
  file_in_dev_shm(dead + ":0_17");                       // of a large message
  file_in_dev_shm(std::to_string(::getpid()) + ":0:0");  // of a number that has come again
  backends::remove_leftovers();
  EXPECT_EQ(files(), std::vector<std::string>());
}

TEST_F(DevShm, keeps_files_that_may_be_somebodys) {
  const std::string dead = name_of_the_dead();
  // Its owner may live in another name space of processes: the file is mapped, and the number means nothing here.
  void* const mapped = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file_in_dev_shm(dead + ":0").get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  file_in_dev_shm(dead + ":0_5");
  const base::Fd opened = file_in_dev_shm(dead + ":1");
  file_in_dev_shm("somebodys");
  file_in_dev_shm("1:2");
  file_in_dev_shm("1:2:3:4");
  const base::Fd big = file_in_dev_shm("99999999999:0:0");
  const base::Fd others = file_in_dev_shm(dead + ":2");
  ASSERT_EQ(::fchown(others.get(), 4711, 4711), 0);
  const std::vector<std::string> before = files();
  backends::remove_leftovers();
  EXPECT_EQ(files(), before);
  ::munmap(mapped, 4096);
}

/// All but 4 MiB.
void fill_with(const std::string& name) {
  if (!is_a_rank()) std::ofstream("/dev/shm/" + name) << std::string(60 << 20, 'x');
}

Peers over_shm(int ranks) { return {.ranks = ranks, .processes = true, .backend = "ofi:shm", .limit = 40s}; }

/// Data flows both ways, and then one of them is killed.
void die_after_an_exchange(Context& context) {
  const Memory memory = context.allocate(128);
  const Rank other = 1 - context.rank();
  Sender sender = context.sender(other, kTag, memory.slice(0, 64));
  Receiver receiver = context.receiver(other, kTag, memory.slice(64, 64));
  sender.put({});
  receiver.wait({});
  board().meet(context);
  if (context.rank() == 1) ::raise(SIGKILL);
  expect_code(Code::peer_lost, [&] { receiver.wait({}); });
}

TEST_F(DevShm, is_empty_after_a_job_whose_ranks_were_killed) {
  const Ended ended = end_of_peers(over_shm(2), die_after_an_exchange);
  EXPECT_EQ(ended.code, 128 + SIGKILL) << ended.text;
  EXPECT_FALSE(ended.hung);
  EXPECT_EQ(files(), std::vector<std::string>());
}

TEST_F(DevShm, full_of_files_of_the_dead_stops_no_job) {
  fill_with(name_of_the_dead() + ":0");
  run_peers(over_shm(2), [](Context& context) {
    const Memory memory = context.allocate(64);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, memory.all());
      sender.put({});
      sender.drain();
    } else {
      context.receiver(0, kTag, memory.all()).wait({});
    }
  });
}

TEST_F(DevShm, that_is_full_is_an_error_that_names_what_is_in_it) {
  fill_with("somebodys");
  const Ended ended = end_of_peers(over_shm(2), [](Context&) { ADD_FAILURE() << "the body was called"; });
  EXPECT_NE(ended.code, 0);
  for (const char* const named : {"shm", "/dev/shm has ", "somebodys (62914560 bytes"})
    EXPECT_NE(ended.text.find(named), std::string::npos) << named << " is not in:\n" << ended.text;
}

}  // namespace
