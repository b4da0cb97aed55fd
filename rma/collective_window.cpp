// SPDX-License-Identifier: Apache-2.0
#include <sluice/collective_window.hpp>
#include <sluice/context.hpp>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "base/limit.hpp"
#include "base/log.hpp"
#include "rma/epochs.hpp"
#include "rma/first_failure.hpp"
#include "rma/group.hpp"
#include "rma/host_call.hpp"
#include "rma/patience.hpp"
#include "rma/words.hpp"

namespace sluice {

using base::Limit;

namespace {

constexpr std::size_t kMaxName = 4000;  // with the names of its parts around it, it fits into that of a window

std::string_view checked_name(const Context& context, std::string_view name) {
  if (!name.empty() && name.size() <= kMaxName) return name;
  throw Error(Code::bad_argument, context.rank(), -1, 0, 0,
              "the name of a collective window has 1 to " + std::to_string(kMaxName) + " characters");
}

}  // namespace

class CollectiveWindow::Impl {
 public:
  Impl(Context& context, std::string_view name, const Slice& memory, AtomicsOf atomics, std::optional<Timeout> timeout);

  void leave() noexcept;
  void close(std::optional<Timeout> timeout);
  /// @throws Error{Code::misuse} if the window is closed
  void check_open() const {
    if (closing_) [[unlikely]]
      throw group.error(Code::misuse, "the window is closed");
  }
  /// @throws Error{Code::bad_argument} unless all are ranks of the window, and differ
  void check_group(std::span<const Rank> ranks) const;
  /// Notes whether peers are lost.
  void note(const Error& error) noexcept {
    broken_ |= error.code() != Code::timeout && error.code() != Code::misuse && error.code() != Code::bad_argument;
  }
  /// Makes a call of the epochs, and notes its error.
  template <class Work>
  void call(std::optional<Timeout> timeout, Work work);

  void lock(Rank rank, Lock kind, std::optional<Timeout> timeout);
  void unlock(Rank rank, std::optional<Timeout> timeout);
  // The short way. False: nothing has changed, and the long way is to be taken.
  bool lock_now(Rank rank, Lock kind);
  bool unlock_now(Rank rank);

  const base::Origin origin{};
  const rma::Group group;

 private:
  void shut(Limit limit);

  const Timeout timeout_;
  const Memory page_;
  const rma::Words own_;
  Window words_;
  Window memory_;
  bool closing_ = false;
  bool broken_ = false;  // by the loss of a peer, or the end of the job: epochs do not end any more
  bool closed_ = false;

 public:
  rma::Links links;
  rma::Epochs epochs;
};

CollectiveWindow::Impl::Impl(Context& context, std::string_view name, const Slice& memory, AtomicsOf atomics,
                             std::optional<Timeout> timeout)
    : group{context, std::string(name), context.rank(), context.size()}, timeout_(context.timeout()),
      page_(context.allocate(rma::at::kEnd)), own_(page_.all()),
      words_(context.window(group.part("words"), page_.slice(0, rma::at::kSharedEnd))), links(group, own_),
      epochs(group.rank, group.size) {
  own_.word(rma::at::kMinusShared).store(0 - rma::kShared);
  own_.word(rma::at::kMinusExclusive).store(0 - rma::kExclusive);
  if (memory.bytes() != 0) memory_ = context.window(group.part("memory"), memory, 0, atomics);
  const WindowHandle handle = memory.bytes() != 0 ? memory_.handle() : words_.handle(0, 0);
  std::ranges::copy(handle, page_.data() + rma::at::kHandle);
  Limit limit(timeout.value_or(context.connect_timeout()));
  links.fence.connect(limit);
  links.fence.pass(limit, &links.patrol);
}

void CollectiveWindow::Impl::check_group(std::span<const Rank> ranks) const {
  for (const Rank rank : ranks) links.peers.check_rank(rank);
  if (ranks.size() < 2) return;
  std::vector<Rank> sorted(ranks.begin(), ranks.end());
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice != sorted.end())
    throw group.error(Code::bad_argument, "a group names rank " + std::to_string(*twice) + " twice", *twice);
}

template <class Work>
void CollectiveWindow::Impl::call(std::optional<Timeout> timeout, Work work) {
  check_open();
  Limit limit(timeout.value_or(timeout_));
  try {
    rma::HostCall made(links, limit);
    work(made);
  } catch (const Error& error) {
    note(error);
    throw;
  }
}

[[gnu::noinline]] void CollectiveWindow::Impl::lock(Rank rank, Lock kind, std::optional<Timeout> timeout) {
  call(timeout, [&](rma::HostCall& call) {
    links.peers.check_rank(rank);
    epochs.lock(call, rank, kind);
  });
}
[[gnu::noinline]] void CollectiveWindow::Impl::unlock(Rank rank, std::optional<Timeout> timeout) {
  call(timeout, [&](rma::HostCall& call) { epochs.unlock(call, rank); });
}

[[gnu::always_inline]] inline bool CollectiveWindow::Impl::lock_now(Rank rank, Lock kind) {
  rma::Locks* const locks = epochs.locks_now();
  const auto* const words = links.peers.words_now(rank);
  if (closing_ || locks == nullptr || words == nullptr) return false;
  try {
    return locks->lock_now(
        *words, [this] { return links.peers.masters_words_now(); }, rank, kind);
  } catch (const Error& error) {
    note(error);
    throw;
  }
}
[[gnu::always_inline]] inline bool CollectiveWindow::Impl::unlock_now(Rank rank) {
  rma::Locks* const locks = epochs.locks_now();
  const auto* const words = links.peers.words_now(rank);
  const auto masters = [this] { return links.peers.masters_words_now(); };
  if (closing_ || locks == nullptr || words == nullptr || timeout_ != kForever || !locks->is_the_one(rank, masters))
    return false;
  try {
    rma::FirstFailure failure(true);
    failure.of([&] { links.peers.flush_now(rank); });
    failure.of([&] { locks->unlock_now(*words, masters); });
    failure.report();
  } catch (const Error& error) {
    note(error);
    throw;
  }
  return true;
}

void CollectiveWindow::Impl::close(std::optional<Timeout> timeout) {
  if (closed_) return;
  const char* const epoch = closing_ || broken_ ? nullptr : epochs.open(true);
  if (epoch != nullptr) throw group.error(Code::misuse, std::string("close inside an epoch of ") + epoch);
  shut(Limit(timeout.value_or(group.context.connect_timeout())));
}

/// Failures of peers end what waits for them, and the window is closed all the same.
void CollectiveWindow::Impl::shut(Limit limit) {
  if (!closing_) {
    try {
      links.peers.drain_all(limit);  // before a peer closes the words, after which no change can reach them
      links.fence.pass(limit, nullptr);
    } catch (const Error& error) {
      if (error.code() == Code::timeout) throw;
      base::log(base::LogLevel::info, error.what());
    }
  }
  closing_ = true;
  links.close(limit);
  if (memory_.bytes() != 0) rma::in_steps(limit, [this](Timeout step) { memory_.close(step); });
  rma::in_steps(limit, [this](Timeout step) { words_.close(step); });
  closed_ = true;
}

void CollectiveWindow::Impl::leave() noexcept {
  if (closed_ || !origin.here() || std::uncaught_exceptions() > 0) return;
  try {
    shut(Limit(group.context.connect_timeout()));
  } catch (const std::exception& reason) {
    base::log(base::LogLevel::warn, reason.what());
  }
}

CollectiveWindow::CollectiveWindow(Context& context, std::string_view name, const Slice& memory, AtomicsOf atomics,
                                   std::optional<Timeout> timeout)
    : impl_(std::make_unique<Impl>(context, checked_name(context, name), memory, atomics, timeout)) {}
CollectiveWindow::CollectiveWindow(CollectiveWindow&&) noexcept = default;
CollectiveWindow& CollectiveWindow::operator=(CollectiveWindow&& other) noexcept {
  if (this == &other) return *this;
  if (impl_ != nullptr) impl_->leave();
  impl_ = std::move(other.impl_);
  return *this;
}
CollectiveWindow::~CollectiveWindow() {
  if (impl_ != nullptr) impl_->leave();
}

CollectiveWindow::Impl& CollectiveWindow::in() const {
  if (impl_ == nullptr) throw Error(Code::misuse, -1, -1, 0, 0, "a collective window that was moved from");
  return *impl_;
}

Rank CollectiveWindow::rank() const noexcept { return impl_ == nullptr ? -1 : impl_->group.rank; }
int CollectiveWindow::size() const noexcept { return impl_ == nullptr ? 0 : impl_->group.size; }
void CollectiveWindow::close(std::optional<Timeout> timeout) { in().close(timeout); }

Target& CollectiveWindow::target(Rank rank) {
  in().check_open();
  if (Target* const known = in().links.peers.known_memory(rank)) return *known;
  Limit limit(in().group.context.connect_timeout());
  return in().links.peers.memory(rank, limit);
}

void CollectiveWindow::fence(std::optional<Timeout> timeout) {
  in().call(timeout, [this](rma::HostCall& call) { impl_->epochs.fence(call); });
}

void CollectiveWindow::post(std::span<const Rank> origins, std::optional<Timeout> timeout) {
  in().call(timeout, [&](rma::HostCall& call) {
    impl_->check_group(origins);
    impl_->epochs.post(call, origins);
  });
}
void CollectiveWindow::start(std::span<const Rank> targets, std::optional<Timeout> timeout) {
  in().call(timeout, [&](rma::HostCall& call) {
    impl_->check_group(targets);
    impl_->epochs.start(call, targets);
  });
}
void CollectiveWindow::complete(std::optional<Timeout> timeout) {
  in().call(timeout, [this](rma::HostCall& call) { impl_->epochs.complete(call); });
}
void CollectiveWindow::wait(std::optional<Timeout> timeout) {
  in().call(timeout, [this](rma::HostCall& call) { impl_->epochs.wait(call); });
}
bool CollectiveWindow::test() {
  bool completed = false;
  in().call({}, [&](rma::HostCall& call) { completed = impl_->epochs.test(call); });
  return completed;
}

void CollectiveWindow::lock(Rank rank, Lock kind, std::optional<Timeout> timeout) {
  if (impl_ == nullptr || !impl_->lock_now(rank, kind)) in().lock(rank, kind, timeout);
}
void CollectiveWindow::unlock(Rank rank, std::optional<Timeout> timeout) {
  if (impl_ == nullptr || timeout || !impl_->unlock_now(rank)) in().unlock(rank, timeout);
}
void CollectiveWindow::lock_all(std::optional<Timeout> timeout) {
  in().call(timeout, [this](rma::HostCall& call) { impl_->epochs.lock_all(call); });
}
void CollectiveWindow::unlock_all(std::optional<Timeout> timeout) {
  in().call(timeout, [this](rma::HostCall& call) { impl_->epochs.unlock_all(call); });
}

void CollectiveWindow::flush(Rank rank, std::optional<Timeout> timeout) {
  in().call(timeout, [&](rma::HostCall& call) { call.flush(rank); });
}
void CollectiveWindow::flush_all(std::optional<Timeout> timeout) {
  in().call(timeout, [](rma::HostCall& call) { call.flush_all(); });
}

}  // namespace sluice
