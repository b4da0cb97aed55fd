// SPDX-License-Identifier: Apache-2.0
#include "peers/word_book.hpp"

#include <algorithm>
#include <new>

namespace sluice::runtime {
namespace {

constexpr std::size_t kPageBytes = 2048;
constexpr std::size_t kLine = 64;

std::size_t apart(Standing standing) { return standing == Standing::alone ? kLine : sizeof(base::Word); }

base::Word* word_at(const device::Extent& page, Standing standing, std::size_t index) {
  return reinterpret_cast<base::Word*>(page.data + sizeof(base::Parking) + index * apart(standing));
}

}  // namespace

backends::Signal WordBook::take(Standing standing) {
  for (auto& page : pages_) {
    if (page.standing != standing) continue;
    const auto free = std::find(page.used.begin(), page.used.end(), false);
    if (free == page.used.end()) continue;
    *free = true;
    const device::Extent& memory = page.memory.extent();
    auto* word = word_at(memory, standing, static_cast<std::size_t>(free - page.used.begin()));
    word->value.store(0, std::memory_order_relaxed);
    return {word, reinterpret_cast<base::Parking*>(memory.data), memory};
  }
  const std::size_t words = (kPageBytes - sizeof(base::Parking)) / apart(standing);
  Page page{device::allocate(kPageBytes, true), standing, std::vector<bool>(words, false)};
  new (page.memory.extent().data) base::Parking;
  for (std::size_t i = 0; i < words; ++i) new (word_at(page.memory.extent(), standing, i)) base::Word;
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
