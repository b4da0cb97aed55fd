// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/notifications.hpp"

#include <sluice/mpi_rma.h>
#include <sluice/error.hpp>

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "rma/first_failure.hpp"
#include "rma/mpi/pause.hpp"
#include "rma/mpi/refused.hpp"
#include "rma/mpi/rma_window.hpp"

namespace sluice::mpi_rma {
namespace {

constexpr std::uint32_t kMostOfARank = Window::kMostCounters;
constexpr std::size_t kBytes = 8;       // of a window: it must have some
constexpr unsigned kQuickLooks = 1000;  // about 30 us: a peer that runs has answered by then

// A word: the number of the window above the number of counters; or kRefused and a class.
constexpr int kCountBits = 16;
constexpr std::uint64_t kRefused = std::uint64_t{1} << 63;
static_assert(kMostOfARank < (1U << kCountBits));

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> numbers{0};
  return ++numbers;
}

/// The words of all ranks.
std::vector<Counters> of_all(const RmaWindow& window) {
  std::vector<Counters> all;
  for (const Part& part : window.parts)
    all.push_back(
        Counters::of_word(window.job->control.read(part.rank, part.place, RmaWindow::kCountersWord, 1).front()));
  return all;
}

/// @throws Refused if one of the ranks could not make its counters
void check_all(const std::vector<Counters>& all) {
  const auto refusing = std::ranges::find_if(all, [](const Counters& one) { return one.refused != 0; });
  if (refusing == all.end()) return;
  throw Refused(refusing->refused,
                "MPI_Win_set_num_notify: rank " + std::to_string(refusing - all.begin()) + " cannot have its number");
}

}  // namespace

Counters Counters::of_word(std::uint64_t word) {
  if ((word & kRefused) != 0) return {.refused = static_cast<int>(word & ~kRefused)};
  return {static_cast<std::uint32_t>(word & ((1U << kCountBits) - 1)), word >> kCountBits, 0};
}

std::uint64_t Counters::word() const {
  return refused != 0 ? kRefused | static_cast<std::uint64_t>(refused) : window << kCountBits | count;
}

std::string Counters::name() const { return "mpi-rma counters " + std::to_string(window); }

int notification_error() {
#ifdef SLUICE_MPI_HAS_NOTIFY
  return MPI_ERR_RMA_NOTIFICATION;
#else
  static const int made = [] {
    int error_class = MPI_ERR_OTHER;
    PMPI_Add_error_class(&error_class);
    PMPI_Add_error_string(error_class, "MPI_ERR_RMA_NOTIFICATION: the rank has no such notification counter");
    return error_class;
  }();
  return made;
#endif
}

Notifications::Notifications(MPI_Info info) {
  if (info == MPI_INFO_NULL) return;
  std::array<char, MPI_MAX_INFO_VAL + 1> value{};
  int found = 0;
  PMPI_Info_get(info, kPromise, MPI_MAX_INFO_VAL, value.data(), &found);
  if (found == 0) return;
  const std::string_view text(value.data());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), promised_);
  malformed_ = error != std::errc() || end != text.data() + text.size() || promised_ < 0;
  if (malformed_) promised_ = 0;
}

int Notifications::most() const {
  constexpr int kMost = kMostOfARank;
  return promised_ == 0 ? kMost : std::min(promised_, kMost);
}

Counters Notifications::make(Context& context, std::uint32_t count, Window& into) const {
  if (count == 0) return {};
  const Counters made{count, next_number(), 0};
  into = context.window(made.name(), context.allocate(kBytes).all(), count);
  return made;
}

Counters Notifications::begin(Context& context) {
  if (malformed_) return {.refused = MPI_ERR_INFO_VALUE};
  const Counters made = make(context, std::min(static_cast<std::uint32_t>(promised_), kMostOfARank), window_);
  taken_.assign(made.count, 0);
  return made;
}

/// Makes new counters of this rank, for `set`; or returns the class of the error.
Counters Notifications::offer(RmaWindow& window, int number, Window& into) const {
  if (number < 0 || number > most()) return {.refused = MPI_ERR_ARG};
  try {
    window.epochs->check_idle();
    window.areas->close_counters();
    const Counters& now = window.parts[static_cast<std::size_t>(window.rank)].counters;
    return make(window.job->context, std::max(now.count, static_cast<std::uint32_t>(number)), into);
  } catch (const Refused& refused) {
    return {.refused = refused.error_class()};
  } catch (const Error& error) {
    return {.refused = error.code() == Code::out_of_resources ? MPI_ERR_NO_MEM : MPI_ERR_OTHER};
  } catch (...) {
    return {.refused = MPI_ERR_NO_MEM};
  }
}

/// No peer knows the new counters before all ranks have made theirs, so a failed call has changed nothing.
void Notifications::set(RmaWindow& window, Epochs::Lock& lock, int number) {
  Window made;
  const Part& own = window.parts[static_cast<std::size_t>(window.rank)];
  std::atomic_ref(window.job->control.own(own.place)[RmaWindow::kCountersWord])
      .store(offer(window, number, made).word());
  std::vector<Counters> all;
  rma::FirstFailure failure(false);
  failure.of([&] { window.epochs->barrier(lock); });
  failure.of([&] { all = of_all(window); });
  failure.of([&] { window.epochs->barrier(lock); });  // the words may be written again
  failure.report();
  check_all(all);
  for (std::size_t i = 0; i < all.size(); ++i) window.parts[i].counters = all[i];
  window_ = std::move(made);
  taken_.assign(all[static_cast<std::size_t>(window.rank)].count, 0);
}

void Notifications::check(const RmaWindow& window, int rank, int index) {
  const std::uint32_t count = window.parts[static_cast<std::size_t>(rank)].counters.count;
  if (index >= 0 && static_cast<std::uint32_t>(index) < count) return;
  throw Refused(notification_error(), "notification counter " + std::to_string(index) + " of rank " +
                                          std::to_string(rank) + ", which has " + std::to_string(count));
}

std::uint64_t Notifications::value(const RmaWindow& window, int index) {
  check(window, window.rank, index);
  const std::uint64_t now = window_.count(static_cast<std::uint32_t>(index));
  seen_.resize(window.parts[static_cast<std::size_t>(window.rank)].counters.count);
  const bool news = std::exchange(seen_[static_cast<std::size_t>(index)], now) != now;
  looks_ = news ? 0 : looks_ + 1;
  return now;
}

void Notifications::rest(const Ranks& ranks, unsigned looks) {
  if (looks <= kQuickLooks) return;  // else others may need the core, and messages need MPI's progress
  if (looks % 4 == 0) progress(ranks);
  sched_yield();
}

std::uint64_t Notifications::reset(const RmaWindow& window, int index) {
  check(window, window.rank, index);
  const std::uint64_t taken = window_.fetch_and_zero(static_cast<std::uint32_t>(index));
  taken_[static_cast<std::size_t>(index)] += taken;
  return taken;
}

void Notifications::wait(RmaWindow& window, Epochs::Lock& lock, int index, std::uint64_t value, Stream stream) {
  check(window, window.rank, index);
  const auto counter = static_cast<std::uint32_t>(index);
  if (stream.kind() != Stream::Kind::program_order) {
    lock.unlock();  // a full stream may have a callable in front that calls this window
    const std::lock_guard enqueuing(enqueuing_);
    return window_.wait(stream, counter, value);
  }
  const std::uint64_t taken_before = taken_[counter];
  const auto counted = [&] { return window_.count(counter) + taken_[counter] - taken_before; };
  Pause pause(*window.ranks, "for a notification, in SLUICE_Win_wait_notify_enqueue");
  while (counted() < value) {
    lock.unlock();
    try {
      pause();
    } catch (...) {
      lock.lock();
      throw;
    }
    lock.lock();
  }
}

void Notifications::close(std::optional<Timeout> timeout) {
  if (window_.bytes() != 0) window_.close(timeout);
}

}  // namespace sluice::mpi_rma
