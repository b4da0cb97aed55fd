// SPDX-License-Identifier: Apache-2.0
// The compiled kernels: images in ELF, which this test reads itself, as tools for them may be missing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "device/driver.hpp"

namespace sluice::device {
namespace {

/// The program for one architecture within an image: from its ELF header to the next one's, or to the end.
struct Program {
  std::uint16_t machine;  // of the ELF header
  std::uint32_t flags;
  std::string_view bytes;
};

std::string_view text(std::span<const std::byte> image) {
  return {reinterpret_cast<const char*>(image.data()), image.size()};
}

template <class T>
T at(std::string_view bytes, std::size_t offset) {
  T value{};
  if (offset + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::vector<Program> programs(std::string_view image) {
  constexpr std::string_view kMagic =
      "\x7f"
      "ELF\2\1";  // of 64 bits, little endian
  std::vector<Program> found;
  for (std::size_t begin = image.find(kMagic); begin != image.npos;) {
    const std::size_t end = image.find(kMagic, begin + 1);
    const std::string_view bytes = image.substr(begin, end == image.npos ? end : end - begin);
    found.push_back({at<std::uint16_t>(bytes, 18), at<std::uint32_t>(bytes, 48), bytes});
    begin = end;
  }
  return found;
}

std::vector<std::string> words(const char* list) {
  std::istringstream stream(list);
  std::vector<std::string> all;
  for (std::string word; stream >> word;) all.push_back(word);
  return all;
}

/// With the end of its name, so that it is no beginning of another.
bool has_name(std::string_view bytes, const std::string& name) {
  return bytes.find(name + '\0') != std::string_view::npos;
}

/// True if this build has the part; else reports that, and its image must be empty.
bool has_part(const char* name, const char* architectures, std::span<const std::byte> image) {
  if (*architectures != '\0') return true;
  EXPECT_TRUE(image.empty());
  std::cout << "SKIPPED-HERE: device.kernels: built without " << name << "\n";
  return false;
}

TEST(Images, cuda_has_every_kernel_for_every_architecture) {
  if (!has_part("CUDA", CUDA_ARCHITECTURES, cuda_kernels())) return;
  constexpr std::uint16_t kCuda = 190;
  const auto image = text(cuda_kernels());
  const auto found = programs(image);
  std::size_t real = 0;
  for (const std::string& architecture : words(CUDA_ARCHITECTURES)) {
    const auto number = static_cast<std::uint32_t>(std::stoul(architecture));
    if (architecture.ends_with("-virtual")) {
      EXPECT_NE(image.find(".target sm_" + std::to_string(number)), image.npos) << architecture;
      for (const char* kernel : kKernelNames) EXPECT_NE(image.find(std::string(".entry ") + kernel + "("), image.npos);
      continue;
    }
    ++real;
    // In the lowest byte of the flags before CUDA 13, in the next one since.
    const auto program = std::ranges::find_if(found, [&](const Program& one) {
      return one.machine == kCuda && ((one.flags & 0xff) == number || (one.flags >> 8 & 0xff) == number);
    });
    ASSERT_NE(program, found.end()) << architecture;
    for (const char* kernel : kKernelNames)
      EXPECT_TRUE(has_name(program->bytes, std::string(".text.") + kernel)) << kernel;
  }
  EXPECT_EQ(found.size(), real);
}

/// The contents of the section of that name.
std::string_view section(const Program& program, const std::string& name) {
  constexpr std::size_t kOfNames = 62;
  const auto headers = at<std::uint64_t>(program.bytes, 40);
  const auto header = [&](std::size_t index) { return headers + index * at<std::uint16_t>(program.bytes, 58); };
  const auto begin = [&](std::size_t of) { return at<std::uint64_t>(program.bytes, of + 24); };
  const auto names = begin(header(at<std::uint16_t>(program.bytes, kOfNames)));
  for (std::size_t i = 0; i < at<std::uint16_t>(program.bytes, 60); ++i) {
    const std::size_t found = names + at<std::uint32_t>(program.bytes, header(i));
    if (program.bytes.substr(found, name.size() + 1) == name + '\0')
      return program.bytes.substr(begin(header(i)), at<std::uint64_t>(program.bytes, header(i) + 32));
  }
  return {};
}

/// Kernels that ring a NIC's counter.
constexpr std::array kRinging = {"sluice_write", "sluice_put", "sluice_end_put", "sluice_release"};

// A store to a register must be neither merged with the next nor repeated, and come behind all that was stored before:
// the NIC counts stores, and then reads the source.
TEST(Images, cuda_stores_to_registers_once) {
  if (!has_part("CUDA", CUDA_ARCHITECTURES, cuda_kernels())) return;
  if (!CUDA_KNOWS_REGISTERS) {
    std::cout << "SKIPPED-HERE: device.registers: this nvcc has no stores for registers\n";
    return;
  }
  const auto image = text(cuda_kernels());
  for (std::size_t ptx = image.find(".target sm_"); ptx != image.npos; ptx = image.find(".target sm_", ptx + 1)) {
    for (const std::string kernel : kRinging) {
      const std::size_t begin = image.find(".entry " + kernel + "(", ptx);
      const auto body = image.substr(begin, image.find(".entry ", begin + 1) - begin);
      const std::size_t store = body.find("st.mmio.relaxed.sys.b64");
      ASSERT_NE(store, body.npos) << kernel;
      const auto before = body.substr(0, body.find_last_not_of("\t\n ", store - 1) + 1);
      EXPECT_TRUE(before.ends_with("fence.acq_rel.sys;")) << kernel;
    }
  }
  // As nvdisasm prints them. 128 bits each: the operation in the lowest, the kind of memory access in the second half.
  const auto is = [](std::uint64_t low, std::uint64_t operation) { return (low & 0x1ff) == operation; };
  const auto accesses = [&](std::uint64_t low) {
    return is(low, 0x185) || is(low, 0x186) || is(low, 0x180) || is(low, 0x181);  // ST, STG, LD, LDG
  };
  for (const Program& program : programs(image)) {
    const std::uint32_t flags = program.flags;
    for (const std::string kernel : kRinging) {
      const auto code = section(program, ".text." + kernel);
      bool fenced = false;  // by MEMBAR.SYS, and nothing has been stored since
      int stores = 0;
      for (std::size_t i = 0; i < code.size(); i += 16) {
        const auto low = at<std::uint64_t>(code, i);
        const auto high = at<std::uint64_t>(code, i + 8);
        const bool to_register = (is(low, 0x185) || is(low, 0x186)) && (high >> 15 & 1) != 0;  // .MMIO.SYS
        if (to_register) {
          ++stores;
          EXPECT_TRUE(fenced) << kernel << ", flags " << flags << ", at byte " << i;
        }
        if (is(low, 0x192)) fenced = (high >> 12 & 0xf) == 0xb;
        if (accesses(low)) fenced = false;
      }
      EXPECT_GE(stores, 1) << kernel << ", flags " << flags;
    }
  }
}

// A weaker fence does not order an earlier store with a later load (PTX ISA, "membar/fence").
TEST(Images, cuda_fences_before_it_changes_words_or_numbers) {
  if (!has_part("CUDA", CUDA_ARCHITECTURES, cuda_kernels())) return;
  const auto image = text(cuda_kernels());
  for (std::size_t ptx = image.find(".target sm_"); ptx != image.npos; ptx = image.find(".target sm_", ptx + 1)) {
    const std::size_t begin = image.find(".entry sluice_change(", ptx);
    const auto body = image.substr(begin, image.find(".entry ", begin + 1) - begin);
    const std::size_t change = body.find("atom.relaxed.sys.");
    ASSERT_NE(change, body.npos);
    EXPECT_LT(body.find("fence.sc.sys;"), change);
    EXPECT_EQ(body.find("fence.acq_rel.sys;"), body.npos);
  }
}

TEST(Images, hip_has_every_kernel_for_every_architecture) {
  if (!has_part("HIP", HIP_ARCHITECTURES, hip_kernels())) return;
  constexpr std::uint16_t kAmdGpu = 224;
  const auto image = text(hip_kernels());
  EXPECT_TRUE(image.starts_with("__CLANG_OFFLOAD_BUNDLE__"));
  const auto found = programs(image);
  const auto architectures = words(HIP_ARCHITECTURES);
  EXPECT_EQ(found.size(), architectures.size());
  for (const std::string& architecture : architectures) {
    EXPECT_NE(image.find("amdgcn-amd-amdhsa--" + architecture), image.npos) << architecture;
    const auto program = std::ranges::find_if(found, [&](const Program& one) {
      return one.machine == kAmdGpu && one.bytes.find("amdgcn-amd-amdhsa--" + architecture) != one.bytes.npos;
    });
    ASSERT_NE(program, found.end()) << architecture;
    for (const char* kernel : kKernelNames)
      EXPECT_TRUE(has_name(program->bytes, std::string(kernel) + ".kd")) << kernel;
  }
}

// A release first writes the cache back (buffer_wbl2), waits for that (s_waitcnt vmcnt(0)), then stores. Compilers have
// left out the wait: the signal could overtake the data. Encodings: "MI200 ISA", "MI300 ISA", chapter "Microcode
// formats".
TEST(Images, hip_waits_for_the_cache_before_it_stores_a_word) {
  if (!has_part("HIP", HIP_ARCHITECTURES, hip_kernels())) return;
  const auto is_write_back = [](std::uint32_t first, std::uint32_t second) {
    return (first & ~std::uint32_t{0xc000}) == 0xe0a00000 && second == 0;
  };
  const auto is_wait = [](std::uint32_t word) { return (word & 0xffffc00f) == 0xbf8c0000; };
  const auto is_memory_access = [](std::uint32_t word) { return word >> 26 == 0x37; };  // the format of global_store
  for (const Program& program : programs(text(hip_kernels()))) {
    constexpr std::size_t kWord = sizeof(std::uint32_t);
    int releases = 0;
    for (std::size_t i = 0; i + 2 * kWord <= program.bytes.size(); i += kWord) {
      const auto word = [&](std::size_t ahead) { return at<std::uint32_t>(program.bytes, i + ahead * kWord); };
      if (!is_write_back(word(0), word(1))) continue;
      ++releases;
      std::size_t next = 2;
      while (!is_wait(word(next)) && !is_memory_access(word(next)) && next < 64) ++next;
      EXPECT_TRUE(is_wait(word(next))) << "flags " << program.flags << ", at byte " << i;
    }
    const std::uint32_t target = program.flags & 0xff;  // EF_AMDGPU_MACH
    if (target == 0x3f || target == 0x4c) {             // gfx90a, gfx942: caches of others need no writing back
      EXPECT_GE(releases, 8);                           // one a kernel at least, of those that raise words
    }
  }
}

}  // namespace
}  // namespace sluice::device
