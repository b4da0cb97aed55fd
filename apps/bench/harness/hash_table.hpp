// SPDX-License-Identifier: Apache-2.0
// The unit of the bench `hash_table`, for Sluice and its rivals: every rank inserts a random key into a table that is
// spread over all ranks. A key goes into an empty cell by compare_swap; if the cell is taken, fetch_add gives a free
// node, and swap puts that node at the head of the cell's chain. examples/windows/hash_table.cpp is this program alone.
// Source: Gerstenberger, Besta, Hoefler, "Enabling Highly-Scalable Remote Memory Access Programming with MPI-3 One
// Sided", SC13.
#pragma once

#include "apps/bench/harness/parts.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace bench {

/// `Parts`: see harness/parts.hpp.
template <class Parts>
class HashTableContender : public Contender {
 public:
  template <class... More>
  explicit HashTableContender(const Workload& workload, More&&... more)
      : rank_(static_cast<Word>(workload.context.rank())), ranks_(static_cast<Word>(workload.context.size())),
        nodes_(kCells + static_cast<std::size_t>(ranks_) * kAtOnce),
        parts_(workload, PartBytes{key_at(nodes_), kAtOnce * kNodeBytes}, std::forward<More>(more)...) {}

  static constexpr std::size_t kAtOnce = 1000;  // keys of a rank in a table, which begins empty

  std::string describe() const { return parts_.describe(); }

  double run(long count) override {
    double taken = 0;
    for (auto left = static_cast<std::size_t>(count); left > 0;) {
      const std::size_t keys = std::min(left, kAtOnce);
      taken += fill_table(keys);
      check(keys);
      left -= keys;
    }
    return taken;
  }

 private:
  // A part is a word that counts the nodes that were given away, and then nodes: a key, and the number of the next
  // node. The first kCells nodes are the cells. No chain goes on at node 0, so that 0 ends it.
  static constexpr std::size_t kCells = 1024;
  static constexpr std::size_t kWordBytes = sizeof(Word);
  static constexpr std::size_t kNodeBytes = 2 * kWordBytes;
  static constexpr std::size_t key_at(std::size_t node) { return kWordBytes + node * kNodeBytes; }
  static constexpr std::size_t next_at(std::size_t node) { return key_at(node) + kWordBytes; }

  // 0 is an empty cell, and no key. Keys that are random need no hash function.
  Word key(Word rank, std::size_t number) const { return std::max<Word>(mix(tables_, rank, number), 1); }
  Word owner_of(Word key) const { return key % ranks_; }
  std::size_t cell_of(Word key) const { return static_cast<std::size_t>(key / ranks_ % kCells); }

  double fill_table(std::size_t keys) {
    ++tables_;
    std::memset(parts_.part(), 0, key_at(nodes_));
    parts_.meet();
    return timed([&] {
      for (std::size_t i = 0; i < keys; ++i) insert(key(rank_, i), i);
      parts_.meet();
    });
  }

  void insert(Word key, std::size_t number) {
    const int owner = static_cast<int>(owner_of(key));
    const std::size_t cell = cell_of(key);
    if (parts_.compare_swap(owner, key_at(cell), 0, key) == 0) return;
    const std::size_t node = kCells + static_cast<std::size_t>(parts_.fetch_add(owner, 0, 1));
    const Word after[] = {key, parts_.swap(owner, next_at(cell), node)};
    std::memcpy(parts_.local() + number * kNodeBytes, after, kNodeBytes);
    parts_.put(owner, number * kNodeBytes, kNodeBytes, key_at(node));  // chains are followed after `meet` only
  }

  Word word(std::size_t at) {
    Word value = 0;
    std::memcpy(&value, parts_.part() + at, kWordBytes);
    return value;
  }

  // Every key of this rank's cells is in its chain, and no other.
  void check(std::size_t keys) {
    Word missing = 0;  // sums of random numbers, a number for each key
    for (Word from = 0; from < ranks_; ++from) {
      for (std::size_t i = 0; i < keys; ++i) {
        if (owner_of(key(from, i)) == rank_) missing += mix(key(from, i), 1);
      }
    }
    for (std::size_t cell = 0; cell < kCells; ++cell) {
      if (word(key_at(cell)) != 0) missing -= sum_of_chain(cell);
    }
    if (missing != 0) throw std::runtime_error("hash_table: keys are missing, or in a wrong place");
  }

  Word sum_of_chain(std::size_t cell) {
    Word sum = 0;
    std::size_t node = cell;
    for (std::size_t length = 0; length < nodes_ && node < nodes_ && (node != 0 || length == 0); ++length) {
      const Word found = word(key_at(node));
      sum += mix(found, cell_of(found) == cell && owner_of(found) == rank_ ? 1 : 2);
      node = static_cast<std::size_t>(word(next_at(node)));
    }
    return sum;
  }

  const Word rank_;
  const Word ranks_;
  const std::size_t nodes_;
  Parts parts_;
  Word tables_ = 0;
};

}  // namespace bench
