// SPDX-License-Identifier: Apache-2.0
// Two processes that exchange triggered puts, fired by stores into the page of a counter, and seen by the counter of
// the region alone.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <new>

#include "tests/emucxi/rig.hpp"

namespace emucxi::test {
namespace {

constexpr std::size_t kSlotBytes = 8192;
constexpr std::size_t kSlots = 4;
constexpr std::uint64_t kPuts = 100;
/// Memory that the two processes share besides the fabric.
struct Shared {
  struct Side {
    std::atomic<bool> ready;
    std::array<char, 8> name;
    std::atomic<std::uint64_t> checked;  // puts that this side has received and checked
  };
  std::array<Side, 2> sides;
};

class Side {
 public:
  Side(Shared& shared, std::size_t self) : mine_(shared.sides[self]), other_(shared.sides[1 - self]), self_(self) {}

  void run() {
    meet();
    for (std::uint64_t put = 1; put <= kPuts; ++put) {
      send(put);
      receive(put);
      if (testing::Test::HasFailure()) return;
    }
    ASSERT_TRUE(reaches(done_, kPuts));
    expect_counts(trigger_, kPuts);
    // A process that has left does not acknowledge writes.
    ASSERT_TRUE(eventually([&] { return other_.checked.load() == kPuts; }));
  }

 private:
  void meet() {
    std::size_t bytes = mine_.name.size();
    ASSERT_EQ(fi_getname(&rig_.endpoint->fid, mine_.name.data(), &bytes), 0);
    mine_.ready.store(true);
    ASSERT_TRUE(eventually([&] { return other_.ready.load(); }));
    ASSERT_EQ(fi_av_insert(rig_.addresses.get(), other_.name.data(), 1, &peer_, 0, nullptr), 1);
    CounterOps* ops = nullptr;
    std::size_t ignored = 0;
    ASSERT_EQ(fi_open_ops(&trigger_->fid, kCounterOps, 0, reinterpret_cast<void**>(&ops), nullptr), 0);
    ASSERT_EQ(ops->get_mmio_addr(&trigger_->fid, reinterpret_cast<void**>(&doorbell_), &ignored), 0);
  }

  std::uint64_t stamp(std::uint64_t put, std::size_t side) const { return 2 * put + side; }

  void send(std::uint64_t put) {
    // A slot is free when the peer has checked what was last put from it.
    ASSERT_TRUE(eventually([&] { return other_.checked.load() + kSlots >= put; }));
    std::vector<std::byte>& source = sources_[put % kSlots];
    source = payload(kSlotBytes, stamp(put, self_));
    if (work_.size() == kSlots) work_.pop_front();
    Deferred& work = work_.emplace_back(rig_, trigger_, put, done_.get());
    work.write(source, target_, put % kSlots * kSlotBytes).to(peer_, kKey);
    ASSERT_EQ(work.queue(), 0);
    ASSERT_TRUE(eventually([&] { return doorbell_->load() == 0; }));
    doorbell_->store(1);
    rig_.read_queue();
  }

  void receive(std::uint64_t put) {
    ASSERT_TRUE(reaches(arrived_, put));
    const std::span slot = std::span(target_.bytes).subspan(put % kSlots * kSlotBytes, kSlotBytes);
    expect_payload(slot, stamp(put, 1 - self_));
    std::ranges::fill(slot, std::byte{0xee});
    mine_.checked.store(put);
  }

  Shared::Side& mine_;
  Shared::Side& other_;
  std::size_t self_;
  Rig rig_;
  Handle<fid_cntr> trigger_ = rig_.counter();
  Handle<fid_cntr> done_ = rig_.counter();
  Handle<fid_cntr> arrived_ = rig_.counter();
  Target target_{rig_, kSlots* kSlotBytes, kKey, arrived_.get()};
  std::array<std::vector<std::byte>, kSlots> sources_;
  std::deque<Deferred> work_;
  std::atomic<std::uint64_t>* doorbell_ = nullptr;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
};

/// In memory that a child has too.
class SharedMemory {
 public:
  SharedMemory() {
    void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    shared_ = ::new (memory) Shared{};
  }
  ~SharedMemory() { ::munmap(shared_, sizeof(Shared)); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  Shared& operator*() const { return *shared_; }

 private:
  Shared* shared_;
};

/// A child that runs `body`, and ends.
template <class F>
pid_t start(F body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::alarm(60);
  body();
  ::_exit(testing::Test::HasFailure() ? 1 : 0);
}

TEST(Processes, exchange_triggered_puts) {
  const SharedMemory shared;
  const pid_t child = start([&] { Side(*shared, 1).run(); });
  ASSERT_GT(child, 0);
  Side(*shared, 0).run();
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Processes, a_put_to_one_that_is_killed_fails_and_others_go_on) {
  const SharedMemory shared;
  Shared::Side& victim = (*shared).sides[1];
  const pid_t child = start([&] {
    const Rig rig;
    const Target target(rig, kSlotBytes, kKey);
    std::size_t bytes = victim.name.size();
    fi_getname(&rig.endpoint->fid, victim.name.data(), &bytes);
    victim.ready.store(true);
    ::pause();
  });
  ASSERT_GT(child, 0);
  ASSERT_TRUE(eventually([&] { return victim.ready.load(); }));

  Rig rig;
  const auto trigger = rig.counter(), done = rig.counter();
  const Target mine(rig, kSlotBytes, kKey);
  const auto source = payload(kSlotBytes, 1);
  fi_addr_t peer = FI_ADDR_UNSPEC;
  ASSERT_EQ(fi_av_insert(rig.addresses.get(), victim.name.data(), 1, &peer, 0, nullptr), 1);
  // The first tells that the peer is reached; the second finds it stopped, and never comes to its end.
  Deferred first(rig, trigger, 1, done.get()), second(rig, trigger, 2, done.get()), own(rig, trigger, 3, done.get());
  ASSERT_EQ(first.write(source, mine).to(peer, kKey).queue(), 0);
  ASSERT_EQ(second.write(source, mine).to(peer, kKey).queue(), 0);
  fi_cntr_add(trigger.get(), 1);
  ASSERT_TRUE(reaches(done, 1));
  ::kill(child, SIGSTOP);
  ASSERT_EQ(::waitpid(child, nullptr, WUNTRACED), child);  // it has stopped
  fi_cntr_add(trigger.get(), 1);
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(eventually([&] { return fi_cntr_readerr(done.get()) == 1; }));

  ASSERT_EQ(own.write(source, mine).queue(), 0);
  fi_cntr_add(trigger.get(), 1);
  ASSERT_TRUE(reaches(done, 2));
  expect_payload(mine.bytes, 1);
}

}  // namespace
}  // namespace emucxi::test
