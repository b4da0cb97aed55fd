// SPDX-License-Identifier: Apache-2.0
#include "peers/wire.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace sluice::runtime {
namespace {

using Length = std::uint32_t;

// Far above what ranks say to each other, and far below what would hurt.
constexpr Length kLongest = 64 << 20;

bool not_now(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

Secret complement(Secret secret) {
  for (std::byte& byte : secret) byte = ~byte;
  return secret;
}

base::Packet closed() {
  base::Packet packet;
  packet.closed = true;
  return packet;
}

}  // namespace

Wire::Wire(base::Fd socket, bool caller, const Secret& say, const Secret& expect)
    : socket_(std::move(socket)), tcp_(true), caller_(caller), say_(say), expect_(expect) {}

Wire Wire::inside(LineEnd line) {
  Wire wire;
  wire.line_ = std::move(line);
  return wire;
}

Wire Wire::here(base::Fd socket) {
  Wire wire;
  wire.socket_ = std::move(socket);
  return wire;
}

Wire Wire::calling(base::Fd socket, const Secret& secret) {
  return {std::move(socket), true, secret, complement(secret)};
}

Wire Wire::called(base::Fd socket, const Secret& secret) {
  return {std::move(socket), false, complement(secret), secret};
}

short Wire::wanted(bool unsent) const noexcept {
  if (open()) return unsent ? POLLOUT : 0;
  return caller_ && said_ < kHand ? POLLOUT : POLLIN;
}

Wire::Sent Wire::send(std::span<const std::byte> bytes, std::span<const int> fds) {
  if (line_) return send_inside(bytes, fds);
  if (!tcp_) return send_here(bytes, fds);
  if (!fds.empty()) throw std::logic_error("descriptors cannot travel to another host");
  if (bytes.empty() || bytes.size() > kLongest) throw std::invalid_argument("a packet of a length that cannot be sent");
  return send_framed(bytes);
}

std::optional<base::Packet> Wire::receive() {
  if (line_) return line_.receive();
  return tcp_ ? receive_framed() : receive_here();
}

bool Wire::hung_up() const {
  if (line_) return line_.hung_up();
  pollfd one{socket_.get(), POLLRDHUP, 0};
  return poll(&one, 1, 0) == 1 && (one.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

Wire::Sent Wire::send_inside(std::span<const std::byte> bytes, std::span<const int> fds) {
  try {
    if (line_.send(bytes, fds)) return Sent::yes;
    error_ = EPIPE;
    return Sent::over;
  } catch (const std::system_error& error) {
    error_ = error.code().value();
    return Sent::starved;
  }
}

Wire::Sent Wire::send_here(std::span<const std::byte> bytes, std::span<const int> fds) {
  try {
    return base::send_packet(socket_, bytes, fds) ? Sent::yes : Sent::later;
  } catch (const std::system_error& error) {
    error_ = error.code().value();
    const bool gone = error_ == EPIPE || error_ == ECONNRESET || error_ == ENOTCONN;
    return gone ? Sent::over : Sent::starved;  // out of memory, or of descriptors under way
  }
}

std::optional<base::Packet> Wire::receive_here() {
  try {
    return base::receive_packet(socket_);
  } catch (const std::system_error& error) {
    if (base::lacks_descriptors(error.code().value())) throw;
    return closed();
  }
}

Wire::Sent Wire::send_framed(std::span<const std::byte> bytes) {
  if (!shake()) return over_ ? Sent::over : Sent::later;
  auto length = static_cast<Length>(bytes.size());
  const std::size_t whole = sizeof length + bytes.size();
  while (sent_ < whole) {
    const std::size_t of_length = std::min(sent_, sizeof length);
    const auto rest = bytes.subspan(sent_ - of_length);
    std::array<iovec, 2> parts = {iovec{reinterpret_cast<std::byte*>(&length) + of_length, sizeof length - of_length},
                                  iovec{const_cast<std::byte*>(rest.data()), rest.size()}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      sent_ += static_cast<std::size_t>(sent);
    } else if (not_now(errno)) {
      return Sent::later;
    } else if (errno == ENOBUFS || errno == ENOMEM) {
      return Sent::starved;
    } else if (errno != EINTR) {
      end(errno);
      return Sent::over;
    }
  }
  sent_ = 0;
  return Sent::yes;
}

std::optional<base::Packet> Wire::receive_framed() {
  Length length = 0;
  if (shake() && fill(sizeof length)) {
    std::memcpy(&length, coming_.data(), sizeof length);
    if (length == 0 || length > kLongest) end(EPROTO);
  }
  if (!over_ && length != 0 && fill(sizeof length + length)) {
    base::Packet packet;
    packet.bytes.assign(coming_.begin() + sizeof length, coming_.end());
    coming_.clear();
    come_ = 0;
    return packet;
  }
  return over_ ? std::optional(closed()) : std::nullopt;
}

/// Who was called says nothing to somebody who does not know the secret.
bool Wire::shake() {
  if (over_) return false;
  if (open()) return true;
  return caller_ ? say() && hear() : hear() && say();
}

bool Wire::say() {
  while (said_ < kHand) {
    const ssize_t sent = ::send(socket_.get(), say_.data() + said_, kHand - said_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) said_ += static_cast<std::size_t>(sent);
    if (sent < 0 && not_now(errno)) return false;
    if (sent < 0 && errno != EINTR) return end(errno), false;
  }
  return true;
}

/// Compares the whole only: who could tell after which byte it was refused could find the secret byte by byte.
bool Wire::hear() {
  while (heard_ < kHand) {
    if (!read_some(std::span(answer_).subspan(heard_), heard_)) return false;
    if (heard_ == kHand && answer_ != expect_) {
      heard_ = 0;
      return end(EPROTO), false;
    }
  }
  return true;
}

bool Wire::fill(std::size_t bytes) {
  if (coming_.size() < bytes) coming_.resize(bytes);
  while (come_ < bytes) {
    if (!read_some(std::span(coming_).first(bytes).subspan(come_), come_)) return false;
  }
  return true;
}

/// At least one byte, added to `count`; false: none now, or the wire is over.
bool Wire::read_some(std::span<std::byte> into, std::size_t& count) {
  for (;;) {
    const ssize_t got = ::recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT);
    if (got > 0) return count += static_cast<std::size_t>(got), true;
    if (got == 0) return end(0), false;
    if (not_now(errno)) return false;
    if (errno != EINTR) return end(errno), false;
  }
}

void Wire::end(int error) noexcept {
  over_ = true;
  error_ = error;
}

}  // namespace sluice::runtime
