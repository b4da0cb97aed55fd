// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/mailbox.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "base/words.hpp"
#include "rma/rest.hpp"

namespace sluice::mpi_rma {
namespace {

/// About a microsecond, in which a system call would have copied.
constexpr int kLooks = 40;
/// An owner that begins to wait is noticed after so many accesses.
constexpr unsigned int kMostLeftOut = 63;
constexpr std::chrono::microseconds kNap{20};

/// Places for one mailbox of each job; the next few are made when these are full, and stay.
struct Places {
  std::array<std::atomic<Mailbox*>, 8> some{};
  std::atomic<Places*> next{nullptr};
};
Places g_mailboxes;

/// Calls `each(place)` until it returns true, for places that there are.
bool any_place(auto each) {
  for (Places* places = &g_mailboxes; places != nullptr; places = places->next.load(std::memory_order_acquire))
    if (std::ranges::any_of(places->some, each)) return true;
  return false;
}

void add_places() {
  auto more = std::make_unique<Places>();
  Places* next = g_mailboxes.next.load();
  do more->next = next;
  while (!g_mailboxes.next.compare_exchange_weak(next, more.get()));
  static_cast<void>(more.release());
}

}  // namespace

void Mailbox::serve() noexcept {
  if (state_.load(std::memory_order_relaxed) != kReady) return;
  std::uint64_t ready = kReady;
  if (!state_.compare_exchange_strong(ready, kTaken, std::memory_order_acquire, std::memory_order_relaxed)) return;
  auto* const at = reinterpret_cast<std::byte*>(at_);
  if (kind_ == Kind::put) {
    std::memcpy(at, data_, bytes_);
  } else {
    std::memcpy(data_, at, bytes_);
  }
  state_.store(kDone, std::memory_order_release);
}

bool Mailbox::post(const Request& wanted) noexcept {
  std::uint64_t expected = kFree;
  if (!state_.compare_exchange_strong(expected, kClaimed, std::memory_order_acquire)) return false;
  at_ = wanted.at;
  kind_ = wanted.kind;
  bytes_ = static_cast<std::uint32_t>(wanted.bytes);
  if (kind_ == Kind::put) std::memcpy(data_, wanted.data, wanted.bytes);
  state_.store(kReady, std::memory_order_release);
  return true;
}

bool Mailbox::withdraw() noexcept {
  std::uint64_t expected = kReady;
  return state_.compare_exchange_strong(expected, kFree);
}

void Mailbox::finish(const Request& wanted) noexcept {
  if (wanted.kind == Kind::get) std::memcpy(wanted.data, data_, wanted.bytes);
  state_.store(kFree, std::memory_order_release);
}

bool RemoteMailbox::served_soon() const noexcept {
  for (int i = 0; i < kLooks; ++i) {
    if (box_->done()) return true;
    serve_mailboxes();  // the owner may wait for this rank in the same way
    base::pause();
  }
  return false;
}

void RemoteMailbox::await(const std::function<void()>& check) const {
  rma::Rest rest(0);
  while (!box_->done()) {
    serve_mailboxes();
    if (rest.spin_or_yield(base::kYielding)) continue;
    check();
    std::this_thread::sleep_for(kNap);
  }
}

bool RemoteMailbox::request(const Mailbox::Request& wanted, const std::function<void()>& check) {
  if (box_ == nullptr || wanted.bytes > Mailbox::kMost) return false;
  if (left_out_ > 0) {
    --left_out_;
    return false;
  }
  if (!box_->post(wanted)) return false;
  if (!served_soon()) {
    if (box_->withdraw()) {
      in_vain_ = std::min(2 * in_vain_ + 1, kMostLeftOut);
      left_out_ = in_vain_;
      return false;
    }
    await(check);
  }
  box_->finish(wanted);
  in_vain_ = 0;
  return true;
}

void add_mailbox(Mailbox& own) {
  const auto takes = [&own](auto& place) {
    Mailbox* none = nullptr;
    return place.compare_exchange_strong(none, &own);
  };
  while (!any_place(takes)) add_places();
}

void remove_mailbox(Mailbox& own) noexcept {
  any_place([&own](auto& place) {
    Mailbox* known = &own;
    return place.compare_exchange_strong(known, nullptr);
  });
}

void serve_mailboxes() noexcept {
  any_place([](auto& place) {
    if (Mailbox* const own = place.load(std::memory_order_acquire)) own->serve();
    return false;
  });
}

}  // namespace sluice::mpi_rma
