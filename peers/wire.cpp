// SPDX-License-Identifier: Apache-2.0
#include "peers/wire.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace sluice::runtime {
namespace {

using WireLength = std::uint32_t;

// Far above the messages of ranks, and far below what would exhaust memory.
constexpr WireLength kLongest = 64 << 20;

Secret complement(Secret secret) {
  for (std::byte& byte : secret) byte = ~byte;
  return secret;
}

}  // namespace

bool closed_by_peer(int error) noexcept {
  return error == 0 || error == EPIPE || error == ECONNRESET || error == ENOTCONN;
}

int milliseconds_until(Clock::time_point then) {
  if (then == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(then - Clock::now()).count();
  return static_cast<int>(std::clamp<decltype(left)>(left, 0, 60'000));
}

short poll_one(const base::Fd& fd, short wanted, Clock::time_point deadline) {
  pollfd one{fd.get(), wanted, 0};
  return ::poll(&one, 1, milliseconds_until(deadline)) == 1 ? one.revents : short{0};
}

Wire::Wire(base::Fd socket, const Secret& secret, bool caller)
    : socket_(std::move(socket)), tcp_(true), caller_(caller), say_(caller ? secret : complement(secret)),
      expect_(caller ? complement(secret) : secret) {}

short Wire::wanted(bool unsent) const noexcept {
  if (open()) return unsent ? POLLOUT : 0;
  return caller_ && secret_sent_ < say_.size() ? POLLOUT : POLLIN;
}

Wire::Sent Wire::send(std::span<const std::byte> bytes, std::span<const int> fds) {
  if (tcp_) {
    if (!fds.empty()) throw std::logic_error("descriptors cannot travel to another host");
    return send_framed(bytes);
  }
  try {
    if (!line_) return base::send_packet(socket_, bytes, fds) ? Sent::yes : Sent::later;
    if (line_.send(bytes, fds)) return Sent::yes;
    error_ = EPIPE;
  } catch (const std::system_error& error) {
    error_ = error.code().value();
  }
  return closed_by_peer(error_) ? Sent::closed : Sent::starved;
}

std::optional<base::Packet> Wire::receive() {
  if (line_) return line_.receive();
  if (tcp_) return receive_framed();
  try {
    return base::receive_packet(socket_);
  } catch (const std::system_error& error) {
    if (base::lacks_descriptors(error.code().value())) throw;
    return base::Packet{{}, {}, true};
  }
}

bool Wire::hung_up() const {
  if (line_) return line_.hung_up();
  return (poll_one(socket_, POLLRDHUP) & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

Wire::Sent Wire::send_framed(std::span<const std::byte> bytes) {
  if (bytes.empty() || bytes.size() > kLongest) throw std::invalid_argument("a packet of a length that cannot be sent");
  if (!shake_hands()) return ended_ ? Sent::closed : Sent::later;
  const auto length = static_cast<WireLength>(bytes.size());
  const Sent sent = send_rest(std::as_bytes(std::span(&length, 1)), bytes, sent_);
  if (sent == Sent::yes) sent_ = 0;
  return sent;
}

/// Sends both parts but for their first `sent` bytes, which have been sent; adds to `sent`.
Wire::Sent Wire::send_rest(std::span<const std::byte> head, std::span<const std::byte> body, std::size_t& sent) {
  while (sent < head.size() + body.size()) {
    const auto first = head.subspan(std::min(sent, head.size()));
    const auto second = body.subspan(sent - (head.size() - first.size()));
    std::array<iovec, 2> parts = {iovec{const_cast<std::byte*>(first.data()), first.size()},
                                  iovec{const_cast<std::byte*>(second.data()), second.size()}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t count = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      return Sent::later;
    } else if (errno == ENOBUFS || errno == ENOMEM) {
      return Sent::starved;
    } else if (errno != EINTR) {
      end(errno);
      return Sent::closed;
    }
  }
  return Sent::yes;
}

std::optional<base::Packet> Wire::receive_framed() {
  WireLength length = 0;
  if (shake_hands() && receive_up_to(sizeof length)) {
    std::memcpy(&length, incoming_.data(), sizeof length);
    if (length == 0 || length > kLongest) end(EPROTO);
  }
  if (!ended_ && length != 0 && receive_up_to(sizeof length + length)) {
    base::Packet packet{{incoming_.begin() + sizeof length, incoming_.end()}, {}, false};
    incoming_.clear();
    received_ = 0;
    return packet;
  }
  return ended_ ? std::optional(base::Packet{{}, {}, true}) : std::nullopt;
}

/// The called end sends nothing to a caller that does not know the secret. Returns true when the handshake is complete.
bool Wire::shake_hands() {
  if (ended_ || (!caller_ && !check_secret())) return false;
  return send_rest(say_, {}, secret_sent_) == Sent::yes && check_secret();
}

/// Compares all bytes at once: a caller that could tell which byte was wrong could find the secret byte by byte.
bool Wire::check_secret() {
  if (proved_ || !receive_up_to(expect_.size())) return proved_;
  proved_ = std::ranges::equal(incoming_, expect_);
  incoming_.clear();
  received_ = 0;
  if (!proved_) end(EPROTO);
  return proved_;
}

/// Receives until `incoming_` has so many bytes. Returns false if more bytes must arrive first, or the wire is closed.
bool Wire::receive_up_to(std::size_t bytes) {
  if (incoming_.size() < bytes) incoming_.resize(bytes);
  while (received_ < bytes) {
    const ssize_t got = ::recv(socket_.get(), incoming_.data() + received_, bytes - received_, MSG_DONTWAIT);
    if (got > 0) received_ += static_cast<std::size_t>(got);
    if (got == 0) return end(0), false;
    if (got < 0 && errno == EAGAIN) return false;
    if (got < 0 && errno != EINTR) return end(errno), false;
  }
  return true;
}

void Wire::end(int error) noexcept {
  ended_ = true;
  error_ = error;
}

Clock::time_point prepare_pending(const std::vector<PendingConnection>& all, std::vector<pollfd>& sockets) {
  auto next = Clock::time_point::max();
  for (const PendingConnection& one : all) {
    if (one.wire.socket()) sockets.push_back({one.wire.socket().get(), POLLIN, 0});
    if (!one.wire.open()) next = std::min(next, one.until);
  }
  return next;
}

}  // namespace sluice::runtime
