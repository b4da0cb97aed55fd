// SPDX-License-Identifier: Apache-2.0
#include "base/waits.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>

#include "base/fork.hpp"

namespace sluice::base {
namespace {

/// The page of this process. Only its threads write it, one at a time.
struct WaitBoard {
  std::mutex mutex;
  WaitPage* page = nullptr;       ///< null: no wait was noted yet
  std::unique_ptr<WaitPage> own;  ///< if it is shared with no other process
  std::atomic<bool> shared{false};
};

OnePerProcess<WaitBoard> g_waits;
thread_local int g_rank_of_thread = -1;

std::atomic_ref<std::uint64_t> version_of(WaitPage::Row& row) noexcept { return std::atomic_ref(row.version); }

WaitRecord record_of(const WaitPage::Row& row) noexcept {
  WaitRecord record;
  std::memcpy(&record, row.record.data(), sizeof record);
  return record;
}

/// A reader in another process that sees part of this finds another version after it than before, or an odd one.
template <class Change>
void change(WaitPage::Row& row, Change to) noexcept {
  const std::uint64_t version = version_of(row).load(std::memory_order_relaxed);
  version_of(row).store(version + 1, std::memory_order_relaxed);
  order_stores();
  to();
  version_of(row).store(version + 2, std::memory_order_seq_cst);
}

void write_record(WaitPage::Row& row, const WaitRecord& record) noexcept {
  change(row, [&] { std::memcpy(row.record.data(), &record, sizeof record); });
}

template <class Change>
void change_waits_of(const void* end, Change to) noexcept {
  const std::lock_guard lock(g_waits->mutex);
  if (g_waits->page == nullptr) return;
  WaitPage& page = *g_waits->page;
  for (std::uint32_t i = 0; i < page.rows_touched.load(std::memory_order_relaxed); ++i) {
    WaitPage::Row& row = page.rows.at(i);
    if (row.used == 0) continue;
    WaitRecord record = record_of(row);
    if (record.end != end) continue;
    to(record);
    write_record(row, record);
  }
}

/// Nothing: there is no wait, or it could not be read in one piece.
std::optional<WaitRecord> read_row(const WaitPage::Row& from) noexcept {
  constexpr int kTries = 100;  // the writer may have died meanwhile
  auto& row = const_cast<WaitPage::Row&>(from);
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t before = version_of(row).load(std::memory_order_seq_cst);
    const bool used = row.used != 0;
    const WaitRecord record = record_of(row);
    // Added to, so that the reads before it are not made after it.
    if (before % 2 == 0 && version_of(row).fetch_add(0, std::memory_order_acq_rel) == before)
      return used ? std::optional(record) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

void share_waits(WaitPage& page) {
  const std::lock_guard lock(g_waits->mutex);
  g_waits->page = &page;
  g_waits->shared.store(true);
}

bool waits_are_shared() noexcept { return g_waits->shared.load(); }

std::vector<WaitRecord> waits_in(const WaitPage& page) {
  std::vector<WaitRecord> waits;
  const std::size_t touched = std::min<std::size_t>(page.rows_touched.load(), WaitPage::kRows);
  for (std::size_t i = 0; i < touched; ++i) {
    if (const auto record = read_row(page.rows.at(i))) waits.push_back(*record);
  }
  return waits;
}

std::vector<WaitRecord> waits_here() {
  const std::lock_guard lock(g_waits->mutex);
  return g_waits->page == nullptr ? std::vector<WaitRecord>() : waits_in(*g_waits->page);
}

void note_answer(const void* end, const EndCounts& counts) noexcept {
  change_waits_of(end, [&](WaitRecord& record) {
    record.counts = counts;
    record.answered = true;
  });
}

void note_openings(const void* end, std::string_view openings, bool reached) noexcept {
  change_waits_of(end, [&](WaitRecord& record) {
    record.text = openings;
    record.reached = reached;
    record.answered = true;
  });
}

int rank_of_thread() noexcept { return g_rank_of_thread; }
int set_rank_of_thread(int rank) noexcept { return std::exchange(g_rank_of_thread, rank); }

void WaitNote::write(WaitRecord record) noexcept {
  const std::lock_guard lock(g_waits->mutex);
  if (g_waits->page == nullptr) {
    g_waits->own.reset(new (std::nothrow) WaitPage());
    g_waits->page = g_waits->own.get();
  }
  if (g_waits->page == nullptr) return;
  WaitPage& page = *g_waits->page;
  record.stream = stream_;
  record.since = since_;
  if (begun()) {
    const WaitRecord before = record_of(page.rows[row_]);
    if (before.end == record.end && before.lack == record.lack && before.epoch == record.epoch) {
      record.answered = before.answered;
      record.counts = before.counts;
      record.text = before.text;
      record.reached = before.reached;
    }
    return write_record(page.rows[row_], record);
  }
  const auto touched = page.rows_touched.load(std::memory_order_relaxed);
  const auto* const end = page.rows.begin() + touched;
  const auto* const unused =
      std::find_if(page.rows.cbegin(), end, [](const WaitPage::Row& row) { return row.used == 0; });
  const auto row = static_cast<std::size_t>(unused - page.rows.cbegin());
  if (row == WaitPage::kRows) return;
  row_ = row;
  change(page.rows[row_], [&] {
    std::memcpy(page.rows[row_].record.data(), &record, sizeof record);
    page.rows[row_].used = 1;
  });
  if (row == touched) page.rows_touched.store(touched + 1);
}

bool WaitNote::due(Clock::time_point now, Clock::duration first) noexcept {
  constexpr Clock::duration kRarest = std::chrono::seconds(5);
  if (now < next(first)) return false;
  next_ = now + std::clamp(now - since_, first, std::max(first, kRarest));
  return true;
}

void WaitNote::set_polled(Clock::time_point when) const noexcept {
  const std::lock_guard lock(g_waits->mutex);
  if (!begun() || g_waits->page == nullptr) return;
  WaitPage::Row& row = g_waits->page->rows[row_];
  WaitRecord record = record_of(row);
  record.polled = when;
  write_record(row, record);
}

void WaitNote::give_back() noexcept {
  const std::lock_guard lock(g_waits->mutex);
  const std::size_t number = std::exchange(row_, kNone);
  if (g_waits->page == nullptr) return;  // in a child of fork
  WaitPage::Row& row = g_waits->page->rows.at(number);
  change(row, [&] { row.used = 0; });
}

}  // namespace sluice::base
