// SPDX-License-Identifier: Apache-2.0
// A hash table that is spread over all ranks. Each rank inserts random keys into the parts of all ranks, which make no
// call for it. A key goes into an empty cell by compare_swap; if the cell is taken, fetch_add gives a free node, and
// swap puts that node at the head of the cell's chain.
// Source: Gerstenberger, Besta, Hoefler, "Enabling Highly-Scalable Remote Memory Access Programming with MPI-3 One
// Sided", SC13.
#include <sluice/sluice.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Word = std::uint64_t;
constexpr std::size_t kWord = sizeof(Word), kInserts = 250, kCells = 128, kNodes = 4 * kCells;

// The part of a rank: one word that counts the nodes that were given away, and then kNodes nodes of two words, the key
// and the number of the next node. The first kCells nodes are the cells. No chain goes on at node 0, so that 0 ends it.
constexpr std::size_t kWords = 1 + 2 * kNodes;
constexpr std::size_t key_of(std::size_t node) { return 1 + 2 * node; }
constexpr std::size_t next_of(std::size_t node) { return key_of(node) + 1; }

// 0 is an empty cell, and no key. Keys that are random need no hash function.
std::vector<Word> keys_of_rank(int rank) {
  std::mt19937_64 random(static_cast<unsigned>(rank));
  std::vector<Word> keys(kInserts);
  for (Word& key : keys) key = std::max<Word>(random(), 1);
  return keys;
}

// `buffer` must stay as it is until the put has completed, so each call has one of its own.
void insert(sluice::Target& owner, Word key, std::size_t cell, const sluice::Slice& buffer) {
  if (owner.compare_swap(key_of(cell) * kWord, 0, key) == 0) return;
  const std::size_t node = kCells + owner.fetch_add(0, 1);
  if (node >= kNodes) throw std::runtime_error("the table of a rank is full");
  const auto words = buffer.as<Word>();
  words[0] = key;
  words[1] = owner.swap(next_of(cell) * kWord, node);
  owner.put({}, buffer, key_of(node) * kWord);  // the chain is followed only after the fence
}

std::vector<Word> keys_of_chain(std::span<const Word> table, std::size_t cell) {
  std::vector<Word> keys;
  if (table[key_of(cell)] == 0) return keys;
  std::size_t node = cell;
  do {
    keys.push_back(table[key_of(node)]);
    node = table[next_of(node)];
  } while (node != 0 && node < kNodes && keys.size() < kNodes);
  return keys;
}

// The keys of this rank's cells, as a loop over the keys of all ranks finds them.
std::vector<std::vector<Word>> serial_table(int rank, int ranks) {
  std::vector<std::vector<Word>> cells(kCells);
  const auto size = static_cast<Word>(ranks);
  for (int from = 0; from < ranks; ++from)
    for (const Word key : keys_of_rank(from))
      if (key % size == static_cast<Word>(rank)) cells[key / size % kCells].push_back(key);
  return cells;
}

}  // namespace

int main(int argc, char** argv) {
  return sluice::run(argc, argv, [](sluice::Context& ctx) {
    const auto ranks = static_cast<Word>(ctx.size());
    const sluice::Memory memory = ctx.allocate(kWords * kWord);  // zeros
    const sluice::Memory buffers = ctx.allocate(kInserts * 2 * kWord);
    const sluice::Slice part = memory.all();
    sluice::CollectiveWindow window(ctx, "table", part);

    std::size_t done = 0;
    for (const Word key : keys_of_rank(ctx.rank())) {
      sluice::Target& owner = window.target(static_cast<int>(key % ranks));
      insert(owner, key, key / ranks % kCells, buffers.slice(2 * kWord * done++, 2 * kWord));
    }
    window.fence();  // all ranks have inserted their keys, and each sees its own part

    const auto table = part.as<Word>();
    std::vector<std::vector<Word>> expected = serial_table(ctx.rank(), ctx.size());
    for (std::size_t cell = 0; cell < kCells; ++cell) {
      std::vector<Word> found = keys_of_chain(table, cell);
      std::sort(found.begin(), found.end());
      std::sort(expected[cell].begin(), expected[cell].end());
      if (found != expected[cell]) throw std::runtime_error("cell " + std::to_string(cell) + " has wrong keys");
    }
    if (ctx.rank() == 0)
      std::printf("hash table: %llu keys inserted; %llu of rank 0's are in chains\n",
                  static_cast<unsigned long long>(ranks) * kInserts, static_cast<unsigned long long>(table[0]));
    window.close();
  });
}
