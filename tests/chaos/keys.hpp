// SPDX-License-Identifier: Apache-2.0
// Which keys are open in the domains of all processes. The network below answers a write to a closed key by breaking
// the connection, with every write on it; a NIC fails that write alone. So `chaos` looks up the key before it writes.
#pragma once

#include <cstdint>
#include <set>

namespace chaos {

/// The keys of a domain, at each port of its endpoints: each is a lock on one byte of a file that all processes can
/// open. The file is empty, and the kernel releases the locks of a process that dies.
class Keys {
 public:
  static constexpr int kBits = 32;  // of a key

  Keys();
  ~Keys();
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  /// 0, or a negative error.
  int open(std::uint64_t key);
  void close(std::uint64_t key);
  int add_port(std::uint16_t port);
  void remove_port(std::uint16_t port);

  /// True if any domain has the key open at this port.
  bool is_open(std::uint16_t port, std::uint64_t key) const;

 private:
  int ours_;
  int looks_;  // another descriptor, because a lock does not conflict with the descriptor that holds it
  std::set<std::uint64_t> keys_;
  std::set<std::uint16_t> ports_;
};

}  // namespace chaos
