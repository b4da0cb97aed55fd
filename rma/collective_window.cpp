// SPDX-License-Identifier: Apache-2.0
#include <sluice/collective_window.hpp>
#include <sluice/context.hpp>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "base/fork.hpp"
#include "base/limit.hpp"
#include "base/log.hpp"
#include "rma/barrier.hpp"
#include "rma/group.hpp"
#include "rma/locks.hpp"
#include "rma/patience.hpp"
#include "rma/peers.hpp"
#include "rma/posts.hpp"
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
  Impl(Context& context, std::string_view name, const Slice& memory, std::optional<Timeout> timeout);

  void leave() noexcept;
  void close(std::optional<Timeout> timeout);
  /// @throws Error{Code::misuse} inside an epoch, or if the window is closed
  void check_outside(const char* verb, bool of_posts) const;
  void check_open() const;
  /// Calls `call(limit)` and notes whether peers are lost.
  template <class Call>
  void within(std::optional<Timeout> timeout, Call call);
  Limit connect_limit() const { return Limit(group.context.connect_timeout()); }
  void fence(std::optional<Timeout> timeout);

  const base::Origin origin{};
  const rma::Group group;

 private:
  void shut(Limit limit);

  const Memory page_;
  const rma::Words own_;
  Window words_;
  Window memory_;
  bool closing_ = false;
  bool broken_ = false;  // by the loss of a peer, or the end of the job: epochs do not end any more
  bool closed_ = false;
  rma::Patrol patrol_;
  rma::Barrier barrier_;

 public:
  rma::Peers peers;
  rma::Posts posts;
  rma::Locks locks;
};

CollectiveWindow::Impl::Impl(Context& context, std::string_view name, const Slice& memory,
                             std::optional<Timeout> timeout)
    : group{context, std::string(name), context.rank(), context.size()}, page_(context.allocate(rma::at::kEnd)),
      own_(page_.all()), words_(context.window(group.part("words"), page_.slice(0, rma::at::kSharedEnd))),
      patrol_(group), barrier_(group), peers(group, own_), posts(group, own_, peers, patrol_),
      locks(group, peers, patrol_) {
  own_.word(rma::at::kMinusShared).store(0 - rma::kShared);
  own_.word(rma::at::kMinusExclusive).store(0 - rma::kExclusive);
  if (memory.bytes() != 0) memory_ = context.window(group.part("memory"), memory);
  const WindowHandle handle = memory.bytes() != 0 ? memory_.handle() : words_.handle(0, 0);
  std::ranges::copy(handle, page_.data() + rma::at::kHandle);
  Limit limit(timeout.value_or(context.connect_timeout()));
  patrol_.watch(barrier_.any());
  barrier_.connect(limit);
  barrier_.pass(limit, &patrol_);
}

void CollectiveWindow::Impl::check_open() const {
  if (closing_) throw group.error(Code::misuse, "the window is closed");
}

void CollectiveWindow::Impl::check_outside(const char* verb, bool of_posts) const {
  check_open();
  const char* const epoch = posts.started()              ? "start"
                            : locks.any()                ? "lock"
                            : of_posts && posts.posted() ? "post"
                                                         : nullptr;
  if (epoch != nullptr) throw group.error(Code::misuse, std::string(verb) + " inside an epoch of " + epoch);
}

template <class Call>
void CollectiveWindow::Impl::within(std::optional<Timeout> timeout, Call call) {
  check_open();
  Limit limit(timeout.value_or(group.context.timeout()));
  try {
    call(limit);
  } catch (const Error& error) {
    broken_ |= error.code() != Code::timeout && error.code() != Code::misuse && error.code() != Code::bad_argument;
    throw;
  }
}

void CollectiveWindow::Impl::fence(std::optional<Timeout> timeout) {
  check_outside("fence", true);
  within(timeout, [this](Limit& limit) {
    peers.flush_all(limit);
    barrier_.pass(limit, &patrol_);
  });
}

void CollectiveWindow::Impl::close(std::optional<Timeout> timeout) {
  if (closed_) return;
  if (!closing_ && !broken_) check_outside("close", true);
  shut(Limit(timeout.value_or(group.context.connect_timeout())));
}

/// Failures of peers end what waits for them, and the window is closed all the same.
void CollectiveWindow::Impl::shut(Limit limit) {
  if (!closing_) {
    try {
      peers.flush_all(limit);
      barrier_.pass(limit, nullptr);
    } catch (const Error& error) {
      if (error.code() == Code::timeout) throw;
      base::log(base::LogLevel::info, error.what());
    }
  }
  closing_ = true;
  peers.close(limit);
  posts.close(limit);
  barrier_.close(limit);
  if (memory_.bytes() != 0) memory_.close(limit.left());
  words_.close(limit.left());
  closed_ = true;
}

void CollectiveWindow::Impl::leave() noexcept {
  if (closed_ || !origin.here() || std::uncaught_exceptions() > 0) return;
  try {
    shut(connect_limit());
  } catch (const std::exception& reason) {
    base::log(base::LogLevel::warn, reason.what());
  }
}

CollectiveWindow::CollectiveWindow(Context& context, std::string_view name, Slice memory,
                                   std::optional<Timeout> timeout)
    : impl_(std::make_unique<Impl>(context, checked_name(context, name), memory, timeout)) {}
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
  Limit limit = in().connect_limit();
  return in().peers.memory(rank, limit);
}

void CollectiveWindow::fence(std::optional<Timeout> timeout) { in().fence(timeout); }

void CollectiveWindow::post(std::span<const Rank> origins, std::optional<Timeout> timeout) {
  Impl& impl = in();
  impl.within(timeout, [&](Limit& limit) { impl.posts.post(origins, limit); });
}
void CollectiveWindow::start(std::span<const Rank> targets, std::optional<Timeout> timeout) {
  Impl& impl = in();
  impl.check_outside("start", false);
  impl.within(timeout, [&](Limit& limit) { impl.posts.start(targets, limit); });
}
void CollectiveWindow::complete(std::optional<Timeout> timeout) {
  Impl& impl = in();
  impl.within(timeout, [&](Limit& limit) { impl.posts.complete(limit); });
}
void CollectiveWindow::wait(std::optional<Timeout> timeout) {
  Impl& impl = in();
  impl.within(timeout, [&](Limit& limit) { impl.posts.wait(limit); });
}
bool CollectiveWindow::test() {
  Impl& impl = in();
  bool completed = false;
  impl.within({}, [&](Limit&) { completed = impl.posts.test(); });
  return completed;
}

void CollectiveWindow::lock(Rank rank, Lock kind, std::optional<Timeout> timeout) {
  Impl& impl = in();
  impl.within(timeout, [&](Limit& limit) {
    if (impl.posts.started()) throw impl.group.error(Code::misuse, "lock inside an epoch of start", rank);
    impl.locks.lock(rank, kind, limit);
  });
}
void CollectiveWindow::unlock(Rank rank, std::optional<Timeout> timeout) {
  Impl& impl = in();
  impl.within(timeout, [&](Limit& limit) { impl.locks.unlock(rank, limit); });
}
void CollectiveWindow::lock_all(std::optional<Timeout> timeout) {
  Impl& impl = in();
  impl.check_outside("lock_all", false);
  impl.within(timeout, [&](Limit& limit) { impl.locks.lock_all(limit); });
}
void CollectiveWindow::unlock_all(std::optional<Timeout> timeout) {
  Impl& impl = in();
  impl.within(timeout, [&](Limit& limit) { impl.locks.unlock_all(limit); });
}

void CollectiveWindow::flush(Rank rank, std::optional<Timeout> timeout) {
  Impl& impl = in();
  impl.within(timeout, [&](Limit& limit) { impl.peers.flush(rank, limit); });
}
void CollectiveWindow::flush_all(std::optional<Timeout> timeout) {
  Impl& impl = in();
  impl.within(timeout, [&](Limit& limit) { impl.peers.flush_all(limit); });
}

}  // namespace sluice
