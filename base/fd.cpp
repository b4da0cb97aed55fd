// SPDX-License-Identifier: Apache-2.0
#include "base/fd.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "base/log.hpp"

namespace sluice::base {

namespace {

// Room for the descriptors of one packet, with the kernel's alignment.
struct alignas(cmsghdr) ControlBuffer {
  std::array<std::byte, CMSG_SPACE(kMaxPacketFds * sizeof(int))> bytes;
};

void attach(msghdr& message, ControlBuffer& control, std::span<const int> fds) {
  control.bytes.fill(std::byte{0});
  message.msg_control = control.bytes.data();
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
}

std::vector<Fd> detach(msghdr& message) {
  std::vector<Fd> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    std::array<int, kMaxPacketFds> raw{};
    const std::size_t bytes = header->cmsg_len - CMSG_LEN(0);
    std::memcpy(raw.data(), CMSG_DATA(header), bytes);
    for (const int fd : std::span(raw).first(bytes / sizeof(int))) fds.emplace_back(fd);
  }
  return fds;
}

ssize_t receive(const Fd& socket, msghdr& message, int flags) {
  for (;;) {
    const ssize_t bytes = recvmsg(socket.get(), &message, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    // ECONNRESET comes once, before the packets that the other end had sent: the next call gets those, or the end.
    if (bytes >= 0 || (errno != EINTR && errno != ECONNRESET)) return bytes;
  }
}

// Returns the length of the next packet, which stays in the queue, and copies of its descriptors; 0: the other end is
// closed; -1 with errno.
ssize_t peek(const Fd& socket, std::vector<Fd>& fds) {
  std::byte ignored{};
  iovec part{&ignored, 1};
  ControlBuffer control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  const ssize_t length = receive(socket, message, MSG_PEEK | MSG_TRUNC);
  if (length <= 0) return length;
  fds = detach(message);
  if ((message.msg_flags & MSG_CTRUNC) == 0) return length;
  fds.clear();
  errno = EMFILE;  // the kernel drops descriptors that do not fit, without an error
  return -1;
}

// The first descriptor without a fixed meaning.
constexpr int kFirst = STDERR_FILENO + 1;

// Room for descriptors that the program and its libraries open.
constexpr std::size_t kSpare = 32;

/// Returns the lowest limit that leaves `more` numbers free: the limit is on numbers, not on the count of open files.
/// Numbers from the hard limit `most` on are not looked at.
rlim_t limit_for(std::size_t more, rlim_t most) noexcept {
  if (more > most) return more;
  rlim_t number = 0;
  for (; more > 0 && number < most; ++number) more -= ::fcntl(static_cast<int>(number), F_GETFD) < 0 ? 1 : 0;
  return number + more;
}

}  // namespace

Fd::Fd(int fd) noexcept : fd_(fd) {
  if (fd < 0 || fd >= kFirst) return;
  fd_ = ::fcntl(fd, F_DUPFD_CLOEXEC, kFirst);
  const int error = errno == EINVAL ? EMFILE : errno;  // EINVAL: the limit is below the first
  ::close(fd);
  errno = error;
}

void fill_standard_descriptors() {
  for (int fd = 0; fd < kFirst; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // Opens the lowest free descriptor: this one.
    if (::open("/dev/null", O_RDWR) < 0) throw_errno("cannot open /dev/null in place of a closed standard descriptor");
  }
}

bool make_room_for_descriptors(std::size_t more) {
  rlimit now{};
  if (::getrlimit(RLIMIT_NOFILE, &now) != 0) return false;
  const rlim_t need = limit_for(more, now.rlim_max);
  if (need > now.rlim_max) return false;
  if (need <= now.rlim_cur) return true;
  const rlimit raised{std::min(limit_for(more + kSpare, now.rlim_max), now.rlim_max), now.rlim_max};
  if (::prlimit(0, RLIMIT_NOFILE, &raised, &now) != 0) return false;
  if (now.rlim_cur > raised.rlim_cur) return ::setrlimit(RLIMIT_NOFILE, &now) == 0;  // another thread had raised it
  log(LogLevel::info, "raised the limit on open files (ulimit -Sn) from " + std::to_string(now.rlim_cur) + " to " +
                          std::to_string(raised.rlim_cur));
  return true;
}

std::string lack_of_descriptors(std::size_t more) {
  rlimit now{};
  ::getrlimit(RLIMIT_NOFILE, &now);
  const rlim_t need = limit_for(more, now.rlim_max);
  if (need <= now.rlim_max) return "this machine has no open file left for this process (fs.file-max)";
  return "this process needs " + std::to_string(need) + " open files, and may have no more than " +
         std::to_string(now.rlim_max) + " (ulimit -Hn)";
}

void throw_errno(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

void throw_not_opened(const std::string& what) {
  const int error = errno;
  throw std::system_error(error, std::generic_category(), lacks_descriptors(error) ? lack_of_descriptors(1) : what);
}

Waker::Waker() : fd_(open_with_room([] { return ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); })) {
  if (!fd_) throw_not_opened("eventfd");
}

void Waker::ring() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto rung = ::write(fd_.get(), &one, sizeof one);
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

void write_all(int fd, std::string_view text, std::string_view where) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) throw_errno("cannot write to " + std::string(where));
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
}

bool send_packet(const Fd& socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  if (bytes.empty()) throw std::invalid_argument("a packet cannot be empty");
  if (fds.size() > kMaxPacketFds) throw std::invalid_argument("too many descriptors for one packet");
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ControlBuffer control;
  if (!fds.empty()) attach(message, control, fds);
  for (;;) {
    if (sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    if (errno == EAGAIN) return false;
    if (errno != EINTR) throw_errno("cannot send to a peer");
  }
}

std::optional<Packet> receive_packet(const Fd& socket) {
  Packet packet;
  const ssize_t length = peek(socket, packet.fds);
  if (length < 0 && errno == EAGAIN) return std::nullopt;
  if (length < 0) throw_errno("cannot receive from a peer");
  packet.closed = length == 0;
  if (packet.closed) return packet;

  packet.bytes.resize(static_cast<std::size_t>(length));
  iovec part{packet.bytes.data(), packet.bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (receive(socket, message, 0) < 0) throw_errno("cannot receive from a peer");
  return packet;
}

}  // namespace sluice::base
