// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/mailbox.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
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

/// One for each job.
std::array<std::atomic<Mailbox*>, 8> g_mailboxes;

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

void add_mailbox(Mailbox& own) noexcept {
  for (auto& place : g_mailboxes) {
    Mailbox* none = nullptr;
    if (place.compare_exchange_strong(none, &own)) return;
  }
}

void remove_mailbox(Mailbox& own) noexcept {
  for (auto& place : g_mailboxes) {
    Mailbox* known = &own;
    place.compare_exchange_strong(known, nullptr);
  }
}

void serve_mailboxes() noexcept {
  for (auto& place : g_mailboxes)
    if (Mailbox* const own = place.load(std::memory_order_acquire)) own->serve();
}

}  // namespace sluice::mpi_rma
