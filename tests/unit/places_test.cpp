// SPDX-License-Identifier: Apache-2.0
// Places in messages, and the calls that free memory.
#include "base/places.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/frees.hpp"
#include "tests/peers.hpp"

namespace {

using namespace sluice;

[[gnu::noinline]] base::Place place_of_caller() { return base::Place(__builtin_return_address(0)); }

TEST(Places, are_file_and_line_where_the_program_has_debug_information) {
  if (std::system("command -v addr2line > /dev/null") != 0) {
    std::puts("SKIPPED-HERE: Places.are_file_and_line*: there is no addr2line");
    return;
  }
  const base::Place place = place_of_caller();
  const int line = __LINE__ - 1;
  EXPECT_EQ(base::place_text(place), "places_test.cpp:" + std::to_string(line));
}

// Functions of a header of ours, one that is inlined and one that is not.
#line 1 "include/sluice/header.hpp"
[[gnu::always_inline]] inline base::Place inlined_of_a_header() { return place_of_caller(); }
[[gnu::noinline]] base::Place called_of_a_header() {
  const base::Place place = place_of_caller();
  return place;
}
#line 43 "places_test.cpp"

TEST(Places, of_calls_by_headers_are_those_of_their_callers) {
  if (std::system("command -v addr2line > /dev/null") != 0) return;
  const base::Place inlined = inlined_of_a_header();
  const base::Place called = called_of_a_header();
  const int line = __LINE__ - 1;
  EXPECT_EQ(base::place_text(inlined), "places_test.cpp:" + std::to_string(line - 1));
  EXPECT_EQ(base::place_text(called), "places_test.cpp:" + std::to_string(line));
}

TEST(Places, are_program_and_offset_without_addr2line) {
  const base::Place place = place_of_caller();
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  const std::string text = base::place_text(place);
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(text.rfind("library_test+0x", 0), 0U) << text;
  EXPECT_EQ(base::place_text(place), text);
  EXPECT_EQ(base::place_text(base::Place()), "an unknown place");
}

struct FreeSeen {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  base::Place place;
};
const std::byte* looked_for = nullptr;
FreeSeen seen;

void see_free(const std::byte* begin, const std::byte* end, const void* from) noexcept {
  if (seen.begin == nullptr && looked_for >= begin && looked_for < end) seen = {begin, end, base::Place(from)};
}

/// Asserts that the call that frees `memory` was seen.
template <class F>
void expect_seen(const void* memory, std::size_t bytes, F frees) {
  seen = {};
  looked_for = static_cast<const std::byte*>(memory);
  frees();
  EXPECT_EQ(seen.begin, looked_for);
  EXPECT_GE(seen.end - seen.begin, static_cast<std::ptrdiff_t>(bytes));
  EXPECT_NE(seen.place, base::Place());
}

TEST(Frees, every_way_to_free_memory_is_seen) {
  if (test::kSanitized) {
    std::puts("SKIPPED-HERE: Frees.every_way*: a sanitizer brings its own allocator");
    return;
  }
  constexpr std::size_t kBytes = 8192;
  base::watch_frees(see_free);
  void* block = std::malloc(kBytes);
  expect_seen(block, kBytes, [&] { std::free(block); });
  block = std::malloc(kBytes);
  void* longer = nullptr;
  void* const behind = std::malloc(kBytes);  // so that the block moves
  expect_seen(block, kBytes, [&] { longer = std::realloc(block, 64 * kBytes); });
  seen = {};
  looked_for = static_cast<const std::byte*>(longer);
  EXPECT_EQ(std::realloc(longer, kBytes), longer);
  EXPECT_EQ(seen.begin, nullptr) << "nothing was freed";
  std::free(longer);
  std::free(behind);
  auto owned = std::make_unique<std::array<std::byte, kBytes>>();
  expect_seen(owned.get(), kBytes, [&] { owned.reset(); });
  auto* const several = new std::string[100];
  delete[] several;
  auto bytes = std::make_unique<std::vector<std::byte>>(kBytes);
  expect_seen(bytes->data(), kBytes, [&] { bytes.reset(); });
  void* const plugin = ::dlopen(FREEING_PLUGIN, RTLD_NOW);
  ASSERT_NE(plugin, nullptr) << ::dlerror();
  base::watch_frees(see_free);  // again, as each opening of a channel does
  block = std::malloc(kBytes);
  expect_seen(block, kBytes, [&] { reinterpret_cast<void (*)(void*)>(::dlsym(plugin, "free_it"))(block); });
  void* const pages = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_TRUE(base::is_mapped(static_cast<const std::byte*>(pages), kBytes));
  expect_seen(pages, kBytes, [&] { ::munmap(pages, kBytes); });
  EXPECT_FALSE(base::is_mapped(static_cast<const std::byte*>(pages), kBytes));
}

}  // namespace
