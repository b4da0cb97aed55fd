// SPDX-License-Identifier: Apache-2.0
// The path that bytes take into each kind of memory: describe() tells it, also where the kernel forbids the best one.
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "tests/conformance/cases.hpp"
#include "tests/kernel_copies.hpp"

namespace {
std::atomic<std::size_t> g_bytes_by_kernel{0};  // from this process into another's memory
}

// Replaces glibc's function by one that counts.
extern "C" ssize_t process_vm_writev(pid_t process, const iovec* local, unsigned long local_count, const iovec* remote,
                                     unsigned long remote_count, unsigned long flags) {
  g_bytes_by_kernel.fetch_add(local->iov_len);
  return ::syscall(SYS_process_vm_writev, process, local, local_count, remote, remote_count, flags);
}

namespace {

using namespace sluice;
using namespace sluice::test;

// On the board: where rank 0 may try to read rank 1's memory, and whether it could.
constexpr std::size_t kOwner = 0;
constexpr std::size_t kAddress = 1;
constexpr std::size_t kCopied = 2;

class MemoryPaths : public testing::TestWithParam<Case> {};

/// True if the kernel lets rank 0 access the memory of rank 1: settings of the machine may forbid that. Both ranks call
/// it.
bool kernel_copies(Context& context) {
  static const std::uint64_t there = 1;
  if (context.rank() == 1) {
    board().set(kOwner, static_cast<std::uint64_t>(::getpid()));
    board().set(kAddress, reinterpret_cast<std::uintptr_t>(&there));
  }
  board().meet(context);
  if (context.rank() == 0) {
    std::uint64_t copy = 0;
    const iovec local{&copy, sizeof copy};
    const iovec remote{reinterpret_cast<void*>(board().word(kAddress).load()), sizeof copy};
    ::process_vm_readv(static_cast<pid_t>(board().word(kOwner).load()), &local, 1, &remote, 1, 0);
    board().set(kCopied, copy);
  }
  board().meet(context);
  return board().word(kCopied) == 1;
}

bool on_network(const Case& one) { return one.ground.name != "threads" && one.ground.name != "shm"; }

bool by_messages(const Case& one) { return one.ground.backend == "mpi" || one.ground.backend == "late_messages"; }

std::string path_of(const Case& one) {
  const std::string by_stream = "; fired by the stream";
  if (one.ground.name == "threads") return "threads: copied by the stream into the peer's memory" + by_stream;
  if (one.ground.name == "ofi_sockets" || one.ground.name == "emucxi") {
    const bool page = one.ground.name == "emucxi";
    return one.ground.backend + ": armed ahead, and written into the target when the " +
           (page ? "NIC's counter" : "bell") + " is rung, where arrivals are counted; fired by the NIC";
  }
  if (by_messages(one))
    return "mpi: sent as a message, above 2000 bytes as two, the second into the target; fired by the engine";
  if (on_network(one)) {
    return one.ground.backend + ": written into the target, then a number that raises the signal; fired by the engine";
  }
  if (!one.user) return "shm: copied by the stream into the target, which is mapped" + by_stream;
  return "shm: the target cannot be mapped, so parts up to 4096 bytes go through a bounce buffer, and larger ones by "
         "the kernel's cross-memory copy, of which a peer that waits does a part" +
         by_stream;
}

std::string landing_of(const Case& one) {
  if (one.ground.name == "threads") return "threads: lands in the target itself";
  if (by_messages(one)) return "mpi: lands in the target itself";
  if (on_network(one)) return one.ground.backend + ": lands in the target itself";
  if (!one.user) return "shm: lands in the target itself, which the peer maps";
  return "shm: the target cannot be mapped, so bytes land in a bounce buffer";
}

/// Three epochs from rank 0 to rank 1, whose ends tell `sends` and `lands`.
void expect_path(Context& context, const Case& one, const std::string& sends, const std::string& lands) {
  const Buffer buffer(context, one);
  const auto expect_told = [](const auto& end, const std::string& path) {
    EXPECT_NE(end.describe().find(path), std::string::npos) << path << " is not in: " << end.describe();
  };
  if (context.rank() == 0) {
    Sender sender = context.sender(1, kTag, buffer.all());
    sender.wait_connected();
    expect_told(sender, sends);
    for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
      fill(bytes_of(sender.acquire({})), {0, kTag, epoch});
      sender.put({});
    }
  } else {
    Receiver receiver = context.receiver(0, kTag, buffer.all());
    receiver.wait_connected();
    expect_told(receiver, lands);
    for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
      expect_and_poison(receiver.wait({}), {0, kTag, epoch});
      receiver.release({});
    }
  }
}

TEST_P(MemoryPaths, are_told_by_describe) {
  const Case& one = GetParam();
  Peers peers = one.peers();
  peers.environment = {"SLUICE_BOUNCE_MAX=4096"};
  run_peers(peers, [&](Context& context) {
    if (one.ground.name == "shm" && one.user && !kernel_copies(context)) {
      if (context.rank() == 0) skipped_here("the kernel forbids cross-memory copies");
      return;
    }
    expect_path(context, one, path_of(one), landing_of(one));
  });
}

#ifdef SLUICE_TESTS_HEAP
/// Peers map malloc'ed memory where libsluice_heap stands before the C library.
TEST(Heap, makes_memory_of_the_program_like_that_of_the_library) {
  const Case one{.ground = {.name = "shm", .backend = "shm", .processes = true}, .user = true, .bytes = 65536};
  Peers peers = one.peers();
  peers.environment = {"LD_PRELOAD=" SLUICE_TESTS_HEAP};
  run_peers(peers, [one](Context& context) {
    Case mapped = one;
    mapped.user = false;
    expect_path(context, one, path_of(mapped), landing_of(mapped));
  });
}
#endif

/// A put waits for no receiver to come, however large it is. In the second half one rank waits while the other puts.
TEST_P(MemoryPaths, let_both_ranks_put_before_they_wait) {
  const Case& one = GetParam();
  run_peers(one.peers(), [&](Context& context) {
    const Buffer source(context, one);
    const Buffer target(context, one);
    const Rank self = context.rank();
    const Rank other = 1 - self;
    Sender out = context.sender(other, kTag, source.all());
    Receiver in = context.receiver(other, kTag, target.all());
    constexpr std::uint64_t kBoth = 3;
    constexpr std::uint64_t kInTurns = 6;
    for (std::uint64_t epoch = 1; epoch <= kInTurns; ++epoch) {
      const auto put = [&] {
        fill(bytes_of(out.acquire({})), {self, kTag, epoch});
        out.put({});
      };
      const bool first = epoch <= kBoth || self == 0;
      if (first) put();
      expect_and_poison(in.wait({}), {other, kTag, epoch});
      in.release({});
      if (!first) put();
    }
  });
}

/// Waits until the main thread of the process sleeps.
void await_asleep(std::uint64_t process) {
  const std::string path = "/proc/" + std::to_string(process) + "/stat";
  for (std::string line; line.find(") S ") == std::string::npos;) {
    std::ifstream stat(path);
    std::getline(stat, line);
  }
}

/// The receiver has gone to sleep before each put. It does not always wake in time to do a part, so there are many
/// puts: the first that is shared is the last. `wait` returns nothing once the sender has closed.
void expect_parts_done(const Case& one, const std::function<std::optional<Slice>(Receiver&)>& wait) {
  if (one.ground.name != "shm" || !one.user) return;  // elsewhere receivers copy nothing
  constexpr std::size_t kRoom = std::size_t{256} * 1024;
  Peers peers = one.peers();
  peers.environment = {"SLUICE_BOUNCE_MAX=256k"};
  run_peers(peers, [&](Context& context) {
    if (!kernel_copies(context)) {
      if (context.rank() == 0) skipped_here("the kernel forbids cross-memory copies");
      return;
    }
    constexpr std::uint64_t kMost = 2000;
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      sender.wait_connected();
      bool alone = true;
      for (std::uint64_t epoch = 1; alone && epoch <= kMost; ++epoch) {
        fill(bytes_of(sender.acquire({})), {0, kTag, epoch});
        await_asleep(board().word(kOwner));
        g_bytes_by_kernel = 0;
        sender.put({});
        alone = g_bytes_by_kernel == one.bytes || g_bytes_by_kernel == one.bytes - kRoom;
      }
      EXPECT_FALSE(alone);
      sender.close();
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      receiver.wait_connected();
      for (std::uint64_t epoch = 1; const auto slot = wait(receiver); ++epoch) {
        expect_and_poison(*slot, {0, kTag, epoch});
        receiver.release({});
      }
      EXPECT_TRUE(receiver.closed());
    }
  });
}

TEST_P(MemoryPaths, let_a_receiver_that_waits_do_a_part) {
  expect_parts_done(GetParam(), [](Receiver& receiver) -> std::optional<Slice> {
    try {
      return receiver.wait({});
    } catch (const Error& reason) {
      EXPECT_EQ(reason.code(), Code::closed) << reason.what();
      return std::nullopt;
    }
  });
}
TEST_P(MemoryPaths, let_a_receiver_that_waits_with_a_limit_do_a_part) {
  expect_parts_done(GetParam(), [](Receiver& receiver) { return receiver.wait_for(30s); });
}

/// Between cores that are far apart the kernel copies 8 KiB sooner than bounce memory does, so some of the first puts
/// go by the kernel, to measure that.
TEST(KernelCopies, are_tried_for_some_KiB) {
  constexpr std::uint64_t kPuts = 64;
  for (const std::size_t bytes : {4096, 4097, 8193, 12'000}) {
    const Case one{.ground = {"shm", "shm", true}, .user = true, .bytes = bytes};
    run_peers(one.peers(), [&](Context& context) {
      if (!kernel_copies(context)) {
        if (context.rank() == 0) skipped_here("the kernel forbids cross-memory copies");
        return;
      }
      const Buffer buffer(context, one);
      if (context.rank() == 0) {
        Sender sender = context.sender(1, kTag, buffer.all());
        g_bytes_by_kernel = 0;
        for (std::uint64_t epoch = 1; epoch <= kPuts; ++epoch) {
          fill(bytes_of(sender.acquire({})), {0, kTag, epoch});
          sender.put({});
        }
        if (bytes <= 4096) {
          EXPECT_EQ(g_bytes_by_kernel, 0U) << "a call takes longer than such copies";
        } else {
          EXPECT_GT(g_bytes_by_kernel, 0U);
          EXPECT_LT(g_bytes_by_kernel, kPuts * bytes);
        }
      } else {
        Receiver receiver = context.receiver(0, kTag, buffer.all());
        for (std::uint64_t epoch = 1; epoch <= kPuts; ++epoch) {
          expect_and_poison(receiver.wait({}), {0, kTag, epoch});
          receiver.release({});
        }
      }
    });
  }
}

TEST(ForbiddenCopies, leave_the_bounce_buffer_for_all) {
  for (const std::size_t bytes : {8 * 1024, 1024 * 1024}) {
    const Case one{.ground = {"shm", "shm", true}, .user = true, .bytes = bytes};
    Peers peers = one.peers();
    peers.environment = {"SLUICE_BOUNCE_MAX=4096"};  // is for those that the kernel may copy
    run_peers(peers, [&](Context& context) {
      forbid_kernel_copies();
      if (kernel_copies(context)) {
        if (context.rank() == 0) skipped_here("no seccomp filter can be set to forbid cross-memory copies");
        return;
      }
      expect_path(
          context, one,
          "shm: the target cannot be mapped and the kernel forbids to copy into it, so all goes through a bounce "
          "buffer; fired by the stream",
          landing_of(one));
    });
  }
}

TEST(ForbiddenCopies, refuse_a_target_of_memory_that_is_not_mapped) {
  const Case one{.ground = {"shm", "shm", true}, .user = true};
  run_peers(one.peers(), [&](Context& context) {
    forbid_kernel_copies();
    if (kernel_copies(context)) {
      if (context.rank() == 0) skipped_here("no seccomp filter can be set to forbid cross-memory copies");
      return;
    }
    alignas(8) static std::uint64_t word = 0;
    const Window window = context.window("private", context.region(&word, sizeof word).all());
    const Memory here = context.allocate(sizeof word);
    Target target = context.target(1 - context.rank(), "private");
    try {
      target.get({}, here.all(), 0);
      target.drain();
      ADD_FAILURE() << "the kernel lets nobody copy";
    } catch (const Error& refused) {
      EXPECT_EQ(refused.code(), Code::unsupported) << refused.what();
    }
    board().meet(context);
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, MemoryPaths, testing::ValuesIn(inline_only(with_sizes(memory_cases(), {1024 * 1024}))),
                         CaseName());

}  // namespace
