// SPDX-License-Identifier: Apache-2.0
// The public handles.
#include <sluice/segments.hpp>

#include <new>
#include <utility>

#include "segments/receiver.hpp"
#include "segments/sender.hpp"

namespace sluice {

using detail::usable_here;

namespace {

/// @throws Error{Code::misuse} if it is empty or closed; the failure of the channel
template <class Pointer>
auto& open_end(const Pointer& end) {
  usable_here(end).check_open();
  return *end;
}

/// For destructors.
template <class Pointer>
void let_go(Pointer& end) noexcept {
  if (end != nullptr && !end->leave()) static_cast<void>(new (std::nothrow) Pointer(std::move(end)));  // for ever
}

constexpr Timeout kLookOnce = Timeout::zero();

}  // namespace

// ---- the sender

SegmentSender::SegmentSender(Context& context, Rank peer, Tag tag, const Slice& source)
    : end_(base::make_here<segments::SenderEnd>(context, peer, tag, source)) {}
SegmentSender& SegmentSender::operator=(SegmentSender&& other) noexcept {
  if (this == &other) return *this;
  let_go(end_);
  end_ = std::move(other.end_);
  return *this;
}
SegmentSender::~SegmentSender() { let_go(end_); }

void SegmentSender::i_put(std::size_t offset, std::size_t count, std::optional<Timeout> timeout) {
  auto& end = open_end(end_);
  const segments::Range range = end.range(offset, count);
  base::Limit limit = end.limit(timeout);
  if (!end.put(range, limit)) end.throw_timeout("put", range, timeout);
}
void SegmentSender::i_put(Stream stream, std::size_t offset, std::size_t count) {
  if (stream.kind() == Stream::Kind::program_order) return i_put(offset, count);
  auto& end = open_end(end_);
  const segments::Range range = end.range(offset, count);
  end.run(stream, "put", range, [&end, range](base::Limit& limit) { return end.put(range, limit); });
}
bool SegmentSender::try_put(std::size_t offset, std::size_t count) {
  auto& end = open_end(end_);
  base::Limit limit(kLookOnce);
  return end.put(end.range(offset, count), limit);
}

void SegmentSender::wait(std::size_t offset, std::size_t count, std::optional<Timeout> timeout) {
  auto& end = open_end(end_);
  const segments::Range range = end.range(offset, count);
  base::Limit limit = end.limit(timeout);
  if (!end.await_sent(range, limit)) end.throw_timeout("wait for the source of", range, timeout);
}
void SegmentSender::wait(Stream stream, std::size_t offset, std::size_t count) {
  if (stream.kind() == Stream::Kind::program_order) return wait(offset, count);
  auto& end = open_end(end_);
  const segments::Range range = end.range(offset, count);
  end.run(stream, "wait for the source of", range,
          [&end, range](base::Limit& limit) { return end.await_sent(range, limit); });
}
bool SegmentSender::test(std::size_t offset, std::size_t count) {
  auto& end = open_end(end_);
  base::Limit limit(kLookOnce);
  return end.await_sent(end.range(offset, count), limit);
}

void SegmentSender::wait_connected(std::optional<Timeout> timeout) { open_end(end_).wait_connected(timeout); }
void SegmentSender::close(std::optional<Timeout> timeout) { usable_here(end_).close(timeout); }
std::size_t SegmentSender::bytes() const noexcept { return end_ == nullptr ? 0 : end_->memory.bytes(); }
Rank SegmentSender::peer() const noexcept { return end_ == nullptr ? -1 : end_->peer; }
Tag SegmentSender::tag() const noexcept { return end_ == nullptr ? 0 : end_->tag; }
std::string SegmentSender::describe() const { return usable_here(end_).describe(); }

// ---- the receiver

SegmentReceiver::SegmentReceiver(Context& context, Rank peer, Tag tag, const Slice& target)
    : end_(base::make_here<segments::ReceiverEnd>(context, peer, tag, target)) {}
SegmentReceiver& SegmentReceiver::operator=(SegmentReceiver&& other) noexcept {
  if (this == &other) return *this;
  let_go(end_);
  end_ = std::move(other.end_);
  return *this;
}
SegmentReceiver::~SegmentReceiver() { let_go(end_); }

std::optional<Slice> SegmentReceiver::wait_for(std::size_t offset, std::size_t count, Timeout timeout) {
  auto& end = open_end(end_);
  base::Limit limit(timeout);
  if (!end.await_arrived(end.range(offset, count), limit)) return std::nullopt;
  return end.memory.slice(offset, count);
}
Slice SegmentReceiver::wait(std::size_t offset, std::size_t count, std::optional<Timeout> timeout) {
  auto& end = open_end(end_);
  const segments::Range range = end.range(offset, count);
  base::Limit limit = end.limit(timeout);
  if (!end.await_arrived(range, limit)) end.throw_timeout("wait for", range, timeout);
  return end.memory.slice(offset, count);
}
std::optional<Slice> SegmentReceiver::test(std::size_t offset, std::size_t count) {
  return wait_for(offset, count, kLookOnce);
}
Slice SegmentReceiver::wait(Stream stream, std::size_t offset, std::size_t count) {
  if (stream.kind() == Stream::Kind::program_order) return wait(offset, count);
  auto& end = open_end(end_);
  const segments::Range range = end.range(offset, count);
  end.run(stream, "wait for", range, [&end, range](base::Limit& limit) { return end.await_arrived(range, limit); });
  return end.memory.slice(offset, count);
}

void SegmentReceiver::release(std::size_t offset, std::size_t count) {
  auto& end = open_end(end_);
  end.release(end.range(offset, count));
}
void SegmentReceiver::release(Stream stream, std::size_t offset, std::size_t count) {
  if (stream.kind() == Stream::Kind::program_order) return release(offset, count);
  auto& end = open_end(end_);
  const segments::Range range = end.range(offset, count);
  end.run(stream, "release", range, [&end, range](base::Limit&) {
    end.release(range);
    return true;
  });
}

void SegmentReceiver::wait_connected(std::optional<Timeout> timeout) { open_end(end_).wait_connected(timeout); }
void SegmentReceiver::close(std::optional<Timeout> timeout) { usable_here(end_).close(timeout); }
std::size_t SegmentReceiver::bytes() const noexcept { return end_ == nullptr ? 0 : end_->memory.bytes(); }
Rank SegmentReceiver::peer() const noexcept { return end_ == nullptr ? -1 : end_->peer; }
Tag SegmentReceiver::tag() const noexcept { return end_ == nullptr ? 0 : end_->tag; }
std::string SegmentReceiver::describe() const { return usable_here(end_).describe(); }

}  // namespace sluice
