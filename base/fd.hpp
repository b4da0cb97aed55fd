// SPDX-License-Identifier: Apache-2.0
// File descriptors that close themselves, and packets with descriptors in them over a UNIX socket.
#pragma once

#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::base {

/// Owns one file descriptor. It is never 0, 1 or 2, even if these are closed: lines written to standard error would
/// land in it.
class [[gnu::visibility("default")]] Fd {
 public:
  Fd() noexcept = default;
  /// Takes `fd`, or a copy of it from 3 on, which is close-on-exec. Keeps errno if `fd` is -1; if no descriptor is left
  /// for the copy, the result is empty and errno tells that.
  explicit Fd(int fd) noexcept;
  Fd(Fd && other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();

  int get() const noexcept { return fd_; }
  /// Gives the descriptor up: the caller closes it.
  int release() noexcept { return std::exchange(fd_, -1); }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Opens /dev/null as each of the descriptors 0 to 2 that is closed, for libraries that open descriptors of their own.
/// @throws std::system_error if it cannot.
void fill_standard_descriptors();

/// True for the errno of a call that failed because this process or machine has no descriptor left.
inline bool lacks_descriptors(int error) noexcept { return error == EMFILE || error == ENFILE; }

/// Writes the whole text to a file or a pipe.
/// @throws std::system_error "cannot write to WHERE: No space left on device"
void write_all(int fd, std::string_view text, std::string_view where);

/// Makes room for this many more descriptors: raises the soft limit of this process (`ulimit -Sn`) if it is too low, by
/// no more than `more` and 32 for the program above the open ones. Logs that at info. Any thread.
/// @returns false if the hard limit does not allow `more`.
bool make_room_for_descriptors(std::size_t more);

/// Returns the text of an error: how many open files are needed, with `more`, and how many this process may have.
std::string lack_of_descriptors(std::size_t more);

/// Calls `open`, which returns a descriptor or -1; if no descriptor is left, makes room and calls it once more.
template <class Open>
Fd open_with_room(Open open) {
  Fd fd(open());
  const int error = errno;
  if (fd || error != EMFILE) return fd;
  if (make_room_for_descriptors(1)) return Fd(open());
  errno = error;
  return fd;
}

/// @throws std::system_error of errno
[[noreturn]] void throw_errno(const std::string& what);

/// @throws std::system_error of errno: what was to be opened, or that descriptors are lacking
[[noreturn]] void throw_not_opened(const std::string& what);

/// Wakes a thread that polls its descriptor. Any thread may ring.
class Waker {
 public:
  /// @throws std::system_error
  Waker();
  const Fd& fd() const noexcept { return fd_; }
  void ring() const noexcept;

 private:
  Fd fd_;
};

/// Linux's own limit on the descriptors of one packet (SCM_MAX_FD).
inline constexpr std::size_t kMaxPacketFds = 253;

/// Sends one packet on a connected SOCK_SEQPACKET socket, with copies of `fds`. Never raises SIGPIPE.
/// @returns false if the socket's buffer is full: nothing was sent, try again when it is writable.
/// @throws std::system_error (EPIPE or ECONNRESET: the other end is closed), std::invalid_argument for an empty packet,
/// which the other end could not tell from a closed socket, and for more than kMaxPacketFds descriptors.
bool send_packet(const Fd& socket, std::span<const std::byte> bytes, std::span<const int> fds);

struct Packet {
  std::vector<std::byte> bytes;
  std::vector<Fd> fds;  ///< close-on-exec
  bool closed = false;  ///< the other end is closed, and all of its packets were received
};

/// Receives one whole packet, however long. Never blocks.
/// @returns empty if there is no packet now.
/// @throws std::system_error: with EMFILE if this process has no room for the packet's descriptors; the packet stays.
std::optional<Packet> receive_packet(const Fd& socket);

}  // namespace sluice::base
