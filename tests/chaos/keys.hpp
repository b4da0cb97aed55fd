// SPDX-License-Identifier: Apache-2.0
// Which keys are open, for the domains of all processes to see. The network below answers a write to a key that is not
// by breaking the connection, with all that is under way on it; a NIC fails that write alone, and so do we, who look
// here first.
#pragma once

#include <cstdint>
#include <set>

namespace chaos {

/// The keys of a domain, at each port of its endpoints: a lock on one byte of a file that all processes have. Nothing
/// is in the file, and the kernel takes back the locks of who dies.
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

  /// At a port of any domain.
  bool is_open(std::uint16_t port, std::uint64_t key) const;

 private:
  int ours_;
  int looks_;  // a lock does not stand in the way of the descriptor that holds it
  std::set<std::uint64_t> keys_;
  std::set<std::uint16_t> ports_;
};

}  // namespace chaos
