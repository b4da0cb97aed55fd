// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedule.hpp"

#include <algorithm>

namespace sluice::collectives {
namespace {

constexpr Tag kTagsOfAGroup = 1 << 24;

}  // namespace

void Schedule::enter(std::vector<Rank> group, int stage) {
  const auto found = std::ranges::find(group, whole_.first);
  rank = group.empty() ? whole_.first : static_cast<Rank>(found - group.begin());
  size = group.empty() ? whole_.second : static_cast<int>(group.size());
  group_ = std::move(group);
  tags_ = stage * kTagsOfAGroup;
}

Place Schedule::user(const Slice& slice) {
  slices.push_back(slice);
  return {Place::Of::user, static_cast<std::uint32_t>(slices.size() - 1), 0};
}

Place Schedule::scratch(std::size_t bytes) {
  scratches.push_back(bytes);
  return {Place::Of::scratch, static_cast<std::uint32_t>(scratches.size() - 1), 0};
}

std::uint32_t Schedule::send(Rank peer, Tag tag, Place from, std::size_t bytes) {
  messages.push_back({true, in_context(peer), tags_ + tag, bytes, from});
  return static_cast<std::uint32_t>(messages.size() - 1);
}

std::uint32_t Schedule::receive(Rank peer, Tag tag, std::size_t bytes) {
  return receive_in(peer, tag, landed(static_cast<std::uint32_t>(messages.size())), bytes);
}

std::uint32_t Schedule::receive_in(Rank peer, Tag tag, Place to, std::size_t bytes) {
  messages.push_back({false, in_context(peer), tags_ + tag, bytes, to});
  return static_cast<std::uint32_t>(messages.size() - 1);
}

Schedule::Long Schedule::send_long(Rank peer, Tag tag, Place from, std::size_t bytes) {
  const std::uint32_t ready = receive(peer, tag, 0);
  messages[ready].ready = true;
  return {ready, send(peer, tag, from, bytes)};
}

void Schedule::put(const Long& message) {
  wait(message.ready);
  release(message.ready);
  put(message.message);
}

std::uint32_t Schedule::receive_long(Rank peer, Tag tag, Place to, std::size_t bytes, bool aside) {
  const std::uint32_t ready = send(peer, tag, {}, 0);
  messages[ready].ready = true;
  put(ready);
  return aside ? receive(peer, tag, bytes) : receive_in(peer, tag, to, bytes);
}

void Schedule::copy(Place to, Place from, std::size_t bytes) {
  if (bytes > 0) steps.push_back({.kind = Step::Kind::copy, .to = to, .first = from, .bytes = bytes});
}

void Schedule::combine(Place to, Place first, Place second, std::size_t bytes) {
  if (bytes > 0)
    steps.push_back({.kind = Step::Kind::combine, .to = to, .first = first, .second = second, .bytes = bytes});
}

void Schedule::widen(Place to, Place from, std::size_t bytes) {
  if (bytes > 0) steps.push_back({.kind = Step::Kind::widen, .to = to, .first = from, .bytes = bytes});
}

void Schedule::narrow(Place to, Place from, std::size_t bytes) {
  if (bytes > 0) steps.push_back({.kind = Step::Kind::narrow, .to = to, .first = from, .bytes = bytes});
}

void Schedule::acquire_all() {
  for (std::uint32_t i = 0; i < messages.size(); ++i)
    if (messages[i].sends) steps.push_back({.kind = Step::Kind::acquire, .message = i});
}

}  // namespace sluice::collectives
