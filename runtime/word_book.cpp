// SPDX-License-Identifier: Apache-2.0
#include "runtime/word_book.hpp"

#include <algorithm>
#include <new>

namespace sluice::runtime {
namespace {

constexpr std::size_t kPageBytes = 2048;
constexpr std::size_t kWords = (kPageBytes - sizeof(base::Parking)) / sizeof(base::Word);

base::Word* word_at(const device::Extent& page, std::size_t index) {
  return reinterpret_cast<base::Word*>(page.data + sizeof(base::Parking)) + index;
}

}  // namespace

backends::Signal WordBook::take() {
  for (auto& page : pages_) {
    const auto free = std::find(page.used.begin(), page.used.end(), false);
    if (free == page.used.end()) continue;
    *free = true;
    const device::Extent& memory = page.memory.extent();
    auto* word = word_at(memory, static_cast<std::size_t>(free - page.used.begin()));
    word->value.store(0, std::memory_order_relaxed);
    return {word, reinterpret_cast<base::Parking*>(memory.data), memory};
  }
  Page page{device::allocate(kPageBytes, true), std::vector<bool>(kWords, false)};
  new (page.memory.extent().data) base::Parking;
  for (std::size_t i = 0; i < kWords; ++i) new (word_at(page.memory.extent(), i)) base::Word;
  pages_.push_back(std::move(page));
  return take();
}

void WordBook::give_back(const backends::Signal& word) {
  for (auto& page : pages_) {
    if (page.memory.extent().data != word.memory.data) continue;
    page.used[static_cast<std::size_t>(word.word - word_at(word.memory, 0))] = false;
  }
}

}  // namespace sluice::runtime
