// SPDX-License-Identifier: Apache-2.0
// Words by which the ranks of a context synchronise their windows.
#pragma once

#include "rma/mpi/call_mutex.hpp"
#include "rma/mpi/mailbox.hpp"

#include <sluice/context.hpp>
#include <sluice/window.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sluice::mpi_rma {

/// Place of words of a rank.
struct Place {
  std::uint32_t chunk = 0;
  std::uint32_t first = 0;  ///< word of the chunk
  bool operator==(const Place&) const = default;
};
inline constexpr Place kNoPlace{~std::uint32_t{0}, 0};

/// Words at every rank. The windows of MPI on a context share them, so that a new window opens nothing. Any thread that
/// may call MPI.
class Control {
 public:
  explicit Control(Context& context) : context_(context) {}
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control() { close_mailbox(); }

  /// Words of this rank, which are 0.
  Place take(std::size_t words);
  /// No peer uses them any more.
  void give_back(Place place, std::size_t words);
  /// Words of this rank, of which each is used by std::atomic_ref.
  std::uint64_t* own(Place place) const;
  /// The mailbox of this rank, the first words that it takes; and of another one, null if it is not mapped here.
  void open_mailbox();
  Mailbox* mailbox(Rank rank);
  /// Lets other ranks find out whether the kernel lets them reach memory of this one that is not mapped.
  void offer_private();
  /// Finds out, once, whether it lets this rank reach that of a rank which has offered it. Why it does not; empty: it
  /// does.
  std::string private_obstacle(Rank rank);
  /// Words of a rank, up to kMostRead.
  std::vector<std::uint64_t> read(Rank rank, Place place, std::size_t word, std::size_t count);
  static constexpr std::size_t kMostRead = 16;

  // Atomics on a word of a rank; the word before. They return once it has changed, without a limit: an atomic that
  // timed out would still change the word later, and the turn that it takes would never be given back. The first one
  // of a rank, if by messages, opens their line, for which SLUICE_TIMEOUT is the limit.
  std::uint64_t fetch_add(Rank rank, Place place, std::size_t word, std::uint64_t value);
  std::uint64_t swap(Rank rank, Place place, std::size_t word, std::uint64_t value);
  std::uint64_t compare_swap(Rank rank, Place place, std::size_t word, std::uint64_t expected, std::uint64_t desired);
  /// @throws Error, in each call, if the rank is lost. Opens a target of its words.
  void check_alive(Rank rank, Place place);
  /// True if `fetch_add`, `swap` and `compare_swap` of the rank are one instruction each.
  bool maps(Rank rank, Place place);
  /// The words of a rank for which `maps` is true, until `close_lines`; else null.
  std::uint64_t* mapped(Rank rank, Place place);
  /// The words of a rank from `word` on, for a program whose calls come one after another. There are none if they were
  /// not changed lately, or are not mapped.
  detail::MappedWords words_now(Rank rank, Place place, std::size_t word) const {
    const Line* const last = lately_[place_of(rank)].load(std::memory_order_acquire);
    const bool known = last != nullptr && last->rank == rank && last->chunk == place.chunk;
    return known ? last->words.from((place.first + word) * sizeof(std::uint64_t)) : detail::MappedWords();
  }

  /// Closes what this rank has opened at others.
  void close_lines();
  /// Closes its own words, once no peer uses them.
  /// @throws Error{Code::timeout}: call it again
  void close_words(Timeout timeout);

 private:
  struct Chunk {
    Memory memory;
    Window window;
    std::size_t used = 0;
  };
  /// The words of a peer, in one chunk.
  struct Line {
    Line(Rank of, std::uint32_t in) : rank(of), chunk(in) {}
    const Rank rank;
    const std::uint32_t chunk;
    CallMutex mutex;
    Target target;
    detail::MappedWords words;  // once it was reached
    bool reached = false;
    Memory read;
    Region mapping;
    bool mapped = false;  // or there is nothing to map
  };
  void add_chunk(std::size_t words);
  void close_mailbox() noexcept;
  Line& line(Rank rank, Place place) {
    auto& place_of_last = lately_[place_of(rank)];
    Line* const last = place_of_last.load(std::memory_order_acquire);
    if (last != nullptr && last->rank == rank && last->chunk == place.chunk) return *last;
    Line& found = find_line(rank, place);
    place_of_last.store(&found, std::memory_order_release);
    return found;
  }
  Line& find_line(Rank rank, Place place);
  static std::size_t place_of(Rank rank) { return static_cast<std::size_t>(rank) % kLately; }
  static void reach(Line& there);
  /// The first byte of the chunk; null: it is not mapped here.
  static std::byte* map(Line& there);
  template <class Change>
  std::uint64_t change(Rank rank, Place place, std::size_t word, Change change);

  Context& context_;
  mutable CallMutex mutex_;
  std::deque<Chunk> chunks_;
  std::map<std::size_t, std::vector<Place>> free_;  // by number of words
  std::map<std::pair<Rank, std::uint32_t>, std::unique_ptr<Line>> lines_;
  static constexpr std::size_t kLately = 4;
  std::array<std::atomic<Line*>, kLately> lately_{};  // by rank; they are found without a lock
  Mailbox* mailbox_ = nullptr;
  Window private_;
  std::map<Rank, std::string> obstacles_;  // of `private_obstacle`
};

}  // namespace sluice::mpi_rma
