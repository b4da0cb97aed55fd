// SPDX-License-Identifier: Apache-2.0
#include "peers/word_book.hpp"

#include <algorithm>
#include <new>

namespace sluice::runtime {
namespace {

constexpr std::size_t kPageBytes = 2048;
constexpr std::size_t kLine = 64;

std::size_t apart(Standing standing) { return standing == Standing::alone ? kLine : sizeof(base::Word); }

}  // namespace

backends::Signal WordBook::take(Standing standing) {
  for (auto& page : pages_) {
    if (page.standing != standing) continue;
    const auto free = std::find(page.used.begin(), page.used.end(), false);
    if (free == page.used.end()) continue;
    *free = true;
    const device::Extent& memory = page.memory.extent();
    const std::size_t at = sizeof(base::Parking) + static_cast<std::size_t>(free - page.used.begin()) * apart(standing);
    return {new (memory.data + at) base::Word, reinterpret_cast<base::Parking*>(memory.data), memory};
  }
  const std::size_t words = (kPageBytes - sizeof(base::Parking)) / apart(standing);
  Page page{device::allocate_words(kPageBytes), standing, std::vector<bool>(words)};
  auto* const parking = new (page.memory.extent().data) base::Parking;
  parking->after_common = static_cast<std::uint32_t>(page.memory.extent().offset() % device::kWordsBytes);
  pages_.push_back(std::move(page));
  return take(standing);
}

void WordBook::give_back(const backends::Signal& word) {
  for (auto& page : pages_) {
    if (page.memory.extent().data != word.memory.data) continue;
    const auto at = reinterpret_cast<std::byte*>(word.word) - word.memory.data - sizeof(base::Parking);
    page.used[static_cast<std::size_t>(at) / apart(page.standing)] = false;
  }
}

}  // namespace sluice::runtime
