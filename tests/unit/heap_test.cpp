// SPDX-License-Identifier: Apache-2.0
// The malloc of libsluice_heap, of which this program is made.
#include "device/heap/heap.hpp"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/program.hpp"

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMiB = std::size_t{1} << 20;

struct Free {
  void operator()(void* block) const noexcept { std::free(block); }
};
using Block = std::unique_ptr<unsigned char, Free>;

Block block_of(void* data) { return Block(static_cast<unsigned char*>(data)); }

bool is_shared(const void* data, std::size_t bytes) { return sluice_heap_find(data, bytes).data != nullptr; }

bool all_are(const unsigned char* data, std::size_t bytes, unsigned char value) {
  return std::all_of(data, data + bytes, [&](unsigned char byte) { return byte == value; });
}

/// Runs `check` in a child of fork. True if it returned true.
template <class Check>
bool good_in_child(Check check) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(check() ? 0 : 1);
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

/// `ulimit -d` counts memory that is private. The first test: others use up whole chunks.
TEST(Heap, of_a_child_is_private_only_where_it_was_given_out) {
  const Block block = block_of(std::malloc(kMiB));
  ASSERT_TRUE(is_shared(block.get(), kMiB));
  EXPECT_TRUE(good_in_child([] {
    std::ifstream maps("/proc/self/maps");
    bool given = false;
    bool rest = false;
    for (std::string line; std::getline(maps, line);) {
      if (line.find("memfd:sluice-heap") == std::string::npos) continue;
      given = given || line.find(" rw-p ") != std::string::npos;
      rest = rest || line.find(" rw-s ") != std::string::npos;
    }
    return given && rest;
  }));
}

TEST(Heap, shares_blocks_of_a_page_and_more) {
  const Block page = block_of(std::malloc(kPage));
  const Block less = block_of(std::malloc(kPage - 1));
  const std::unique_ptr<double[]> numbers(new double[kPage]);
  int on_the_stack = 0;
  EXPECT_TRUE(is_shared(page.get(), kPage));
  EXPECT_FALSE(is_shared(less.get(), kPage - 1));
  EXPECT_TRUE(is_shared(numbers.get(), kPage * sizeof(double)));
  EXPECT_FALSE(is_shared(&on_the_stack, sizeof on_the_stack));
  EXPECT_FALSE(is_shared(nullptr, 0));
  const sluice_heap_chunk chunk = sluice_heap_find(page.get(), kPage);
  EXPECT_FALSE(is_shared(page.get(), chunk.bytes));  // they would reach beyond the chunk
}

TEST(Heap, shows_the_same_bytes_to_who_maps_the_descriptor) {
  const Block block = block_of(std::malloc(3 * kPage));
  std::memset(block.get(), 7, 3 * kPage);
  const sluice_heap_chunk chunk = sluice_heap_find(block.get(), 3 * kPage);
  void* const again = ::mmap(nullptr, chunk.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, chunk.fd, 0);
  ASSERT_NE(again, MAP_FAILED);
  auto* const there = static_cast<unsigned char*>(again) + (block.get() - static_cast<unsigned char*>(chunk.data));
  EXPECT_TRUE(all_are(there, 3 * kPage, 7));
  there[5] = 9;
  EXPECT_EQ(block.get()[5], 9);
  ::munmap(again, chunk.bytes);
}

TEST(Heap, gives_one_chunk_to_a_block_that_is_longer_than_others) {
  constexpr std::size_t kLong = 2500 * kMiB;
  const Block block = block_of(std::malloc(kLong));
  ASSERT_TRUE(is_shared(block.get(), kLong));
  block.get()[0] = 1;
  block.get()[kLong - 1] = 2;
  EXPECT_EQ(block.get()[0], 1);
  EXPECT_EQ(sluice_heap_find(block.get() + kLong - kPage, kPage).data, sluice_heap_find(block.get(), kPage).data);
  const Block next = block_of(std::malloc(kPage));
  EXPECT_TRUE(is_shared(next.get(), kPage));
}

TEST(Heap, clears_what_calloc_gives) {
  for (int round = 0; round < 20; ++round) {
    const std::size_t bytes = kPage << round % 8;
    const Block block = block_of(std::calloc(bytes / 8, 8));
    ASSERT_TRUE(all_are(block.get(), bytes, 0)) << bytes;
    std::memset(block.get(), 255, bytes);
  }
  volatile std::size_t too_many = ~std::size_t{0} / 2;
  EXPECT_EQ(std::calloc(too_many, 3), nullptr);
}

TEST(Heap, clears_no_pages_that_are_new) {
  constexpr std::size_t kBytes = 1500 * kMiB;
  const Block block = block_of(std::calloc(kBytes, 1));
  ASSERT_TRUE(is_shared(block.get(), kBytes));
  struct stat file {};
  ASSERT_EQ(::fstat(sluice_heap_find(block.get(), kBytes).fd, &file), 0);
  EXPECT_LT(static_cast<std::size_t>(file.st_blocks) * 512, 16 * kMiB);
}

TEST(Heap, leaves_blocks_to_the_C_library_where_files_may_not_be_long) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little{kMiB, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  constexpr std::size_t kBytes = 3000 * kMiB;  // a chunk of its own
  const Block block = block_of(std::malloc(kBytes));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(block, nullptr);
  EXPECT_FALSE(is_shared(block.get(), kBytes));
}

/// The heap begins before `main`, so the program is started once more where it finds too few addresses.
TEST(Heap, that_cannot_begin_says_so_and_leaves_blocks_to_the_C_library) {
  sluice::tests::Program without_room([] {
    const rlimit one_tib{std::size_t{1} << 40, std::size_t{1} << 40};
    if (::setrlimit(RLIMIT_AS, &one_tib) != 0) return 2;
    ::execl("/proc/self/exe", "heap_test",
            "--gtest_filter=Heap.leaves_blocks_to_the_C_library_where_files_may_not_be_long", nullptr);
    return 3;
  });
  const sluice::tests::Result result = without_room.result();
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_TRUE(sluice::tests::contains(result.err, "warning: libsluice_heap: not enough address space")) << result.err;
  EXPECT_TRUE(sluice::tests::contains(result.err, "malloc stays the C library's")) << result.err;
}

TEST(Heap, offers_nothing_once_the_program_has_put_another_file_in_the_place_of_its_own) {
  const Block block = block_of(std::malloc(kPage));
  const int fd = sluice_heap_find(block.get(), kPage).fd;
  const int kept = ::dup(fd);
  const int other = ::open("/dev/null", O_RDWR);
  ASSERT_EQ(::dup2(other, fd), fd);
  EXPECT_FALSE(is_shared(block.get(), kPage));
  ASSERT_EQ(::dup2(kept, fd), fd);
  EXPECT_TRUE(is_shared(block.get(), kPage));
  ::close(kept);
  ::close(other);
}

TEST(Heap, keeps_bytes_when_blocks_grow_and_shrink) {
  std::mt19937 random(20261130);
  for (int round = 0; round < 200; ++round) {
    std::size_t bytes = 1 + random() % 100;
    auto* data = static_cast<unsigned char*>(std::malloc(bytes));
    std::memset(data, round, bytes);
    for (int step = 0; step < 5; ++step) {
      const std::size_t next = std::size_t{1} << random() % 22;
      auto* const moved = static_cast<unsigned char*>(std::realloc(data, next));
      data = moved;
      ASSERT_TRUE(all_are(data, std::min(bytes, next), static_cast<unsigned char>(round)));
      ASSERT_EQ(is_shared(data, next), next >= kPage) << next;
      ASSERT_GE(::malloc_usable_size(data), next);
      std::memset(data, round, next);
      bytes = next;
    }
    std::free(data);
  }
}

TEST(Heap, aligns_as_it_is_asked) {
  for (std::size_t alignment = sizeof(void*); alignment <= 4 * kMiB; alignment *= 2) {
    for (const std::size_t bytes : {std::size_t{100}, kPage, 3 * kMiB}) {
      void* data = nullptr;
      ASSERT_EQ(::posix_memalign(&data, alignment, bytes), 0);
      const Block block = block_of(data);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % alignment, 0U);
      EXPECT_EQ(is_shared(data, bytes), bytes >= kPage);
    }
  }
  void* untouched = nullptr;
  EXPECT_EQ(::posix_memalign(&untouched, 24, kPage), EINVAL);
  EXPECT_EQ(untouched, nullptr);
}

/// Pages of freed blocks go back to the kernel; jemalloc's own call does at once what else takes some seconds.
TEST(Heap, gives_back_the_pages_of_blocks_that_were_freed) {
  constexpr std::size_t kBytes = 64 * kMiB;
  Block block = block_of(std::malloc(kBytes));
  const int fd = sluice_heap_find(block.get(), kBytes).fd;
  const auto pages = [&] {
    struct stat now {};
    EXPECT_EQ(::fstat(fd, &now), 0);
    return static_cast<std::size_t>(now.st_blocks) * 512 / kPage;
  };
  std::memset(block.get(), 1, kBytes);
  const std::size_t before = pages();
  block.reset();
  using Control = int (*)(const char*, void*, std::size_t*, void*, std::size_t);
  const auto control = reinterpret_cast<Control>(::dlsym(RTLD_DEFAULT, "mallctl"));
  ASSERT_NE(control, nullptr);
  ASSERT_EQ(control("arena.4096.purge", nullptr, nullptr, nullptr, 0), 0);  // of all arenas
  EXPECT_LE(pages() + kBytes / kPage, before);
  block = block_of(std::calloc(kBytes, 1));
  EXPECT_TRUE(all_are(block.get(), kBytes, 0));
}

TEST(Heap, of_a_child_of_fork_is_its_own) {
  const Block block = block_of(std::malloc(kMiB));
  std::memset(block.get(), 1, kMiB);
  EXPECT_TRUE(good_in_child([&] {
    if (!all_are(block.get(), kMiB, 1) || is_shared(block.get(), kMiB)) return false;
    std::memset(block.get(), 2, kMiB);
    const Block other = block_of(std::malloc(kMiB));
    const Block grown = block_of(std::realloc(std::calloc(kMiB, 1), 2 * kMiB));
    return !is_shared(other.get(), kMiB) && all_are(grown.get(), kMiB, 0);
  }));
  EXPECT_TRUE(all_are(block.get(), kMiB, 1));
  EXPECT_TRUE(good_in_child([&] {  // what it frees stays in use by the parent
    std::free(block.get());
    return true;
  }));
  EXPECT_TRUE(all_are(block.get(), kMiB, 1));
}

TEST(Heap, of_a_child_of_a_child_is_its_own) {
  const Block block = block_of(std::malloc(kMiB));
  std::memset(block.get(), 1, kMiB);
  EXPECT_TRUE(good_in_child([&] {
    std::memset(block.get(), 2, kMiB);
    for (int fd = 3; fd < 1024; ++fd) ::close(fd);  // as a daemon does
    const bool kept = good_in_child([&] {
      const bool inherited = all_are(block.get(), kMiB, 2);
      std::memset(block.get(), 3, kMiB);
      return inherited;
    });
    return kept && all_are(block.get(), kMiB, 2);
  }));
  EXPECT_TRUE(all_are(block.get(), kMiB, 1));
}

/// Children free and allocate while the threads of their parent do so, too.
TEST(Heap, of_a_child_of_many_threads_is_whole) {
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!ends) {
        std::vector<Block> blocks;
        for (std::size_t n = 0; n < 32; ++n) blocks.push_back(block_of(std::malloc(kPage << n % 6)));
      }
    });
  }
  for (int round = 0; round < 30; ++round) {
    std::vector<Block> blocks;
    for (std::size_t n = 0; n < 32; ++n) blocks.push_back(block_of(std::calloc(kPage << n % 6, 1)));
    EXPECT_TRUE(good_in_child([&] {
      ::alarm(20);  // where a lock of the parent's is held
      bool good = true;
      for (std::size_t n = 0; n < 32; ++n) good = good && all_are(blocks[n].get(), kPage << n % 6, 0);
      blocks.clear();
      for (std::size_t n = 0; n < 32; ++n) blocks.push_back(block_of(std::malloc(kPage << n % 6)));
      return good;
    }));
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(Heap, is_for_many_threads) {
  constexpr int kThreads = 4;
  constexpr std::size_t kBlocks = 64;
  std::vector<std::vector<Block>> of_thread(kThreads);
  const auto in_all = [](auto work) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
    for (std::thread& thread : threads) thread.join();
  };
  for (int round = 0; round < 10; ++round) {
    in_all([&](int i) {  // each frees what another has allocated
      of_thread[static_cast<std::size_t>(i)].clear();
    });
    in_all([&](int i) {
      auto& mine = of_thread[static_cast<std::size_t>((i + round) % kThreads)];
      for (std::size_t n = 0; n < kBlocks; ++n) {
        mine.push_back(block_of(std::malloc(kPage + n * 512)));
        std::memset(mine.back().get(), i, kPage + n * 512);
      }
    });
    for (int i = 0; i < kThreads; ++i) {
      const auto& blocks = of_thread[static_cast<std::size_t>((i + round) % kThreads)];
      for (std::size_t n = 0; n < kBlocks; ++n)
        ASSERT_TRUE(all_are(blocks[n].get(), kPage + n * 512, static_cast<unsigned char>(i)));
    }
  }
}

}  // namespace
