// SPDX-License-Identifier: Apache-2.0
// Mailboxes carry small puts and gets to the owner of the memory, which makes them while it waits in a call of MPI's.
// That moves a few cache lines, whereas a copy by the kernel is a system call. Mapped memory needs neither.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace sluice::mpi_rma {

/// Holds one request to the owner of memory, in words that its peers map. While it has one, other origins use the
/// kernel's copy. Words of 0 are a free mailbox. Any thread of any rank.
///
/// An origin posts a request. From there either the owner takes it, and is done with it, or the origin withdraws it;
/// both by compare-and-swap, so only one of them does.
class Mailbox {
 public:
  static constexpr std::size_t kMost = 40;  ///< bytes of an access
  enum class Kind : std::uint32_t { put, get };
  struct Request {
    Kind kind;
    std::uint64_t at;  ///< address in the owner's process
    std::byte* data;   ///< of the origin: what is put, or where it goes
    std::size_t bytes;
  };

  /// For the owner: carries out the request, if there is one.
  void serve() noexcept;

  // For an origin.
  /// False: another request is there.
  bool post(const Request& wanted) noexcept;
  bool done() const noexcept { return state_.load(std::memory_order_acquire) == kDone; }
  /// Frees the mailbox. False: the owner has taken the request.
  bool withdraw() noexcept;
  /// Frees the mailbox, once the request is done.
  void finish(const Request& wanted) noexcept;

 private:
  enum State : std::uint64_t { kFree, kClaimed, kReady, kTaken, kDone };

  std::atomic<std::uint64_t> state_{kFree};
  std::uint64_t at_ = 0;
  Kind kind_ = Kind::put;
  std::uint32_t bytes_ = 0;
  std::byte data_[kMost]{};
};
static_assert(sizeof(Mailbox) == 64, "one cache line");
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// An origin's use of the mailbox of an owner. One thread at a time.
class RemoteMailbox {
 public:
  /// Null: there is none.
  explicit RemoteMailbox(Mailbox* box = nullptr) : box_(box) {}

  /// True once the owner has carried out the request. False: nothing was done, since the owner does not look at its
  /// mailbox, or another request is there. After some in vain, the next ones are not tried.
  /// `check`: throws if the owner has died. It is called while the owner, which has taken the request, is late.
  bool request(const Mailbox::Request& wanted, const std::function<void()>& check);

 private:
  bool served_soon() const noexcept;
  void await(const std::function<void()>& check) const;

  Mailbox* box_;
  unsigned int in_vain_ = 0;  // how many requests to leave out after the next one in vain
  unsigned int left_out_ = 0;
};

// The mailboxes of this process, which waits of this library and of MPI serve.

void add_mailbox(Mailbox& own);
void remove_mailbox(Mailbox& own) noexcept;
void serve_mailboxes() noexcept;

}  // namespace sluice::mpi_rma
