// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/control.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <utility>

namespace sluice::mpi_rma {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);
constexpr std::size_t kChunkWords = 8192;

/// Memory of the program, not of an allocator, so no peer maps it.
alignas(kWordBytes) std::uint64_t g_private = 0;
constexpr const char* kPrivate = "mpi-rma private memory";

std::string name_of(std::uint32_t chunk) { return "mpi-rma control " + std::to_string(chunk); }

}  // namespace

Place Control::take(std::size_t words) {
  const std::lock_guard lock(mutex_);
  Place place;
  if (auto& free = free_[words]; !free.empty()) {
    place = free.back();
    free.pop_back();
  } else {
    if (chunks_.empty() || chunks_.back().used + words > chunks_.back().memory.bytes() / kWordBytes) add_chunk(words);
    place = {static_cast<std::uint32_t>(chunks_.size() - 1), static_cast<std::uint32_t>(chunks_.back().used)};
    chunks_.back().used += words;
  }
  auto* const first = reinterpret_cast<std::uint64_t*>(chunks_[place.chunk].memory.data()) + place.first;
  for (std::size_t i = 0; i < words; ++i) std::atomic_ref(first[i]).store(0);
  return place;
}

void Control::add_chunk(std::size_t words) {
  Chunk chunk;
  chunk.memory = context_.allocate(std::max(words, kChunkWords) * kWordBytes);
  chunk.window = context_.window(name_of(static_cast<std::uint32_t>(chunks_.size())), chunk.memory.all());
  chunks_.push_back(std::move(chunk));
}

void Control::give_back(Place place, std::size_t words) {
  const std::lock_guard lock(mutex_);
  free_[words].push_back(place);
}

std::uint64_t* Control::own(Place place) const {
  const std::lock_guard lock(mutex_);
  return reinterpret_cast<std::uint64_t*>(chunks_[place.chunk].memory.data()) + place.first;
}

void Control::open_mailbox() {
  const Place first = take(sizeof(Mailbox) / kWordBytes);
  mailbox_ = new (own(first)) Mailbox;
  add_mailbox(*mailbox_);
}

void Control::close_mailbox() noexcept {
  if (mailbox_ != nullptr) remove_mailbox(*std::exchange(mailbox_, nullptr));
}

Mailbox* Control::mailbox(Rank rank) {
  Line& there = line(rank, {});
  const std::lock_guard lock(there.mutex);
  std::byte* const first = map(there);
  return first == nullptr ? nullptr : std::launder(reinterpret_cast<Mailbox*>(first));
}

std::byte* Control::map(Line& there) {
  if (!there.mapped) there.mapping = there.target.mapped();
  there.mapped = true;
  return there.mapping.bytes() == 0 ? nullptr : there.mapping.data();
}

std::uint64_t* Control::mapped(Rank rank, Place place) {
  if (!maps(rank, place)) return nullptr;
  Line& there = line(rank, place);
  const std::lock_guard lock(there.mutex);
  return reinterpret_cast<std::uint64_t*>(map(there)) + place.first;
}

Control::Line& Control::find_line(Rank rank, Place place) {
  const std::lock_guard lock(mutex_);
  const std::pair where{rank, place.chunk};
  if (const auto found = lines_.find(where); found != lines_.end()) return *found->second;
  auto made = std::make_unique<Line>(rank, place.chunk);
  made->target = context_.target(rank, name_of(place.chunk));
  return *lines_.emplace(where, std::move(made)).first->second;
}

void Control::offer_private() {
  const std::lock_guard lock(mutex_);
  if (private_.bytes() == 0) private_ = context_.window(kPrivate, context_.region(&g_private, kWordBytes).all());
}

std::string Control::private_obstacle(Rank rank) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = obstacles_.find(rank); known != obstacles_.end()) return known->second;
  }
  std::string why;
  try {
    const Memory word = context_.allocate(kWordBytes);
    Target target = context_.target(rank, kPrivate);
    target.get({}, word.all(), 0);
    target.drain();
    target.close();
  } catch (const std::exception& reason) {
    why = reason.what();
  }
  const std::lock_guard lock(mutex_);
  return obstacles_[rank] = why;
}

std::vector<std::uint64_t> Control::read(Rank rank, Place place, std::size_t word, std::size_t count) {
  Line& there = line(rank, place);
  const std::lock_guard lock(there.mutex);
  if (there.read.bytes() == 0) there.read = context_.allocate(kMostRead * kWordBytes);
  there.target.get({}, there.read.slice(0, count * kWordBytes), (place.first + word) * kWordBytes);
  there.target.drain();
  std::vector<std::uint64_t> words(count);
  std::memcpy(words.data(), there.read.data(), count * kWordBytes);
  return words;
}

[[gnu::noinline]] void Control::reach(Line& there) {
  there.target.wait_connected();
  there.words = detail::MappedWords::of(there.target);
  there.reached = true;
}

template <class Change>
std::uint64_t Control::change(Rank rank, Place place, std::size_t word, Change change) {
  Line& there = line(rank, place);
  const std::lock_guard lock(there.mutex);
  return change(there.target, (place.first + word) * kWordBytes);
}

std::uint64_t Control::fetch_add(Rank rank, Place place, std::size_t word, std::uint64_t value) {
  Line& there = line(rank, place);
  const std::lock_guard lock(there.mutex);
  if (!there.reached) [[unlikely]]
    reach(there);
  const std::size_t at = (place.first + word) * kWordBytes;
  return there.words.exist() ? there.words.add(at, value) : there.target.fetch_add(at, value, kForever);
}

void Control::check_alive(Rank rank, Place place) {
  Line& there = line(rank, place);
  const std::lock_guard lock(there.mutex);
  static_cast<void>(there.target.connected());
}

bool Control::maps(Rank rank, Place place) {
  Line& there = line(rank, place);
  const std::lock_guard lock(there.mutex);
  if (!there.reached) reach(there);
  return there.words.exist();
}

std::uint64_t Control::swap(Rank rank, Place place, std::size_t word, std::uint64_t value) {
  return change(rank, place, word, [&](Target& target, std::size_t at) { return target.swap(at, value, kForever); });
}

std::uint64_t Control::compare_swap(Rank rank, Place place, std::size_t word, std::uint64_t expected,
                                    std::uint64_t desired) {
  const auto work = [&](Target& target, std::size_t at) {
    return target.compare_swap(at, expected, desired, kForever);
  };
  return change(rank, place, word, work);
}

void Control::close_lines() {
  const std::lock_guard lock(mutex_);
  for (auto& [where, line] : lines_) line->target.close();
  for (auto& last : lately_) last = nullptr;
  lines_.clear();
}

void Control::close_words(Timeout timeout) {
  close_mailbox();
  const std::lock_guard lock(mutex_);
  for (Chunk& chunk : chunks_) chunk.window.close(timeout);
  if (private_.bytes() != 0) private_.close(timeout);
}

}  // namespace sluice::mpi_rma
