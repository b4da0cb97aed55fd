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
  Page& page = page_with_room(standing);
  const auto free = std::find(page.used.begin(), page.used.end(), false);
  *free = true;
  if (--page.left == 0) with_room_[standing].erase(&page);
  const device::Extent& memory = page.memory.extent();
  const std::size_t at = sizeof(base::Parking) + static_cast<std::size_t>(free - page.used.begin()) * apart(standing);
  return {new (memory.data + at) base::Word, reinterpret_cast<base::Parking*>(memory.data), memory};
}

WordBook::Page& WordBook::page_with_room(Standing standing) {
  std::set<Page*>& with_room = with_room_[standing];
  if (!with_room.empty()) return **with_room.begin();
  const std::size_t words = (kPageBytes - sizeof(base::Parking)) / apart(standing);
  Page page{device::allocate_words(kPageBytes), standing, std::vector<bool>(words), words};
  auto* const parking = new (page.memory.extent().data) base::Parking;
  parking->after_common = static_cast<std::uint32_t>(page.memory.extent().offset() % device::kWordsBytes);
  Page& kept = pages_.emplace(page.memory.extent().data, std::move(page)).first->second;
  with_room.insert(&kept);
  return kept;
}

void WordBook::give_back(const backends::Signal& word) {
  const auto found = pages_.find(word.memory.data);
  if (found == pages_.end()) return;
  Page& page = found->second;
  const auto at = reinterpret_cast<std::byte*>(word.word) - word.memory.data - sizeof(base::Parking);
  page.used[static_cast<std::size_t>(at) / apart(page.standing)] = false;
  if (page.left++ == 0) with_room_[page.standing].insert(&page);
}

}  // namespace sluice::runtime
