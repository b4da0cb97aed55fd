// SPDX-License-Identifier: Apache-2.0
// The public calls.
#include <sluice/error.hpp>
#include <sluice/unr.hpp>

#include <string>
#include <utility>

#include "runtime/handles.hpp"
#include "unr/core.hpp"
#include "unr/messages.hpp"

namespace sluice::unr {
namespace {

constexpr std::size_t kMostCharacters = 4000;  // with what is around it, it fits into the name of a window

/// Message number `peer` of an exchange of all.
std::vector<Piece> block_of(Rank rank, const Slice& memory, int count, int displacement, const Layout& type) {
  if (count < 0 || displacement < 0)
    throw Error(Code::bad_argument, rank, -1, 0, 0, "a count or a displacement is negative");
  if (count == 0) return {};
  return pieces_of(rank, memory.bytes(), static_cast<std::size_t>(displacement) * type.extent,
                   static_cast<std::size_t>(count), type);
}

}  // namespace

Layout Layout::of(std::size_t bytes) { return {{{0, bytes}}, bytes}; }

Layout Layout::strided(std::size_t count, std::size_t bytes, std::size_t apart) {
  Layout layout{{}, count == 0 ? 0 : (count - 1) * apart + bytes};
  for (std::size_t i = 0; i < count; ++i) layout.pieces.push_back({i * apart, bytes});
  return layout;
}

void Signal::wait(Stream stream) {
  SignalCore& signal = detail::not_empty(core_);
  signal.plan.wait(signal, stream);
}
bool Signal::wait_for(Timeout timeout) {
  SignalCore& signal = detail::not_empty(core_);
  return signal.plan.wait_for(signal, timeout);
}
void Signal::reset(Stream stream) {
  SignalCore& signal = detail::not_empty(core_);
  signal.plan.reset(signal, stream);
}
std::uint64_t Signal::epoch() const noexcept { return core_ == nullptr ? 0 : core_->epoch; }
int Signal::events() const noexcept { return core_ == nullptr ? 0 : core_->sends + core_->receives; }

Plan::Plan(Context& context, std::string_view name, const Options& options) {
  if (name.empty() || name.size() > kMostCharacters)
    throw Error(Code::bad_argument, context.rank(), -1, 0, 0,
                "the name of a plan has 1 to " + std::to_string(kMostCharacters) + " characters");
  core_ = std::make_shared<Core>(context, std::string(name), options);
}
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&& other) noexcept {
  if (this == &other) return *this;
  if (core_ != nullptr) core_->leave();
  core_ = std::move(other.core_);
  return *this;
}
Plan::~Plan() {
  if (core_ != nullptr) core_->leave();
}

Core& Plan::in() const { return detail::usable_here(core_); }

Signal Plan::signal(std::string_view name, int events) { return in().add_signal(name, events); }

void Plan::isend(const Slice& source, Rank to, Tag tag, const Signal& sent) {
  isend(source, 0, 1, Layout::of(source.bytes()), to, tag, sent);
}
void Plan::irecv(const Slice& target, Rank from, Tag tag, const Signal& arrived) {
  irecv(target, 0, 1, Layout::of(target.bytes()), from, tag, arrived);
}
void Plan::isend(const Slice& source, std::size_t offset, std::size_t count, const Layout& type, Rank to, Tag tag,
                 const Signal& sent) {
  in().add(true, source, pieces_of(in().rank(), source.bytes(), offset, count, type), to, tag, sent);
}
void Plan::irecv(const Slice& target, std::size_t offset, std::size_t count, const Layout& type, Rank from, Tag tag,
                 const Signal& arrived) {
  in().add(false, target, pieces_of(in().rank(), target.bytes(), offset, count, type), from, tag, arrived);
}
void Plan::sendrecv(const Slice& source, Rank to, Tag send_tag, const Slice& target, Rank from, Tag receive_tag,
                    const Signal& sent, const Signal& arrived) {
  isend(source, to, send_tag, sent);
  irecv(target, from, receive_tag, arrived);
}

void Plan::alltoallv(const Slice& source, std::span<const int> send_counts, std::span<const int> send_displacements,
                     const Layout& send_type, const Slice& target, std::span<const int> receive_counts,
                     std::span<const int> receive_displacements, const Layout& receive_type, const Signal& sent,
                     const Signal& arrived) {
  Core& core = in();
  const auto size = static_cast<std::size_t>(core.size());
  for (const auto& numbers : {send_counts, send_displacements, receive_counts, receive_displacements})
    if (numbers.size() != size)
      throw Error(Code::bad_argument, core.rank(), -1, 0, 0,
                  "an exchange of " + std::to_string(size) + " ranks has " + std::to_string(numbers.size()) +
                      " counts or displacements");
  std::vector<std::vector<Piece>> sends;
  std::vector<std::vector<Piece>> receives;
  for (std::size_t i = 0; i < size; ++i) {
    sends.push_back(block_of(core.rank(), source, send_counts[i], send_displacements[i], send_type));
    receives.push_back(block_of(core.rank(), target, receive_counts[i], receive_displacements[i], receive_type));
  }
  const Key key = core.next_exchange();
  for (std::size_t i = 0; i < size; ++i) {
    const auto peer = static_cast<Rank>(i);
    if (!sends[i].empty()) core.add(true, source, std::move(sends[i]), peer, key, sent);
    if (!receives[i].empty()) core.add(false, target, std::move(receives[i]), peer, key, arrived);
  }
}

void Plan::commit(Stream stream, std::optional<Timeout> timeout) { in().commit(stream, timeout); }
void Plan::start(Stream stream) { in().start(stream); }
std::uint64_t Plan::rounds() const { return in().rounds(); }
std::size_t Plan::puts() const { return in().puts(); }
std::string Plan::describe() const { return in().describe(); }
void Plan::close(std::optional<Timeout> timeout) { in().close(timeout); }

}  // namespace sluice::unr
