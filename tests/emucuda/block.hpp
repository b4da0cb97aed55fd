// SPDX-License-Identifier: Apache-2.0
// Physical memory of a device: a memfd, which other processes can open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace emucuda {

/// Describes a block for other processes; it stands behind the block's bytes, in its file.
struct Label {
  std::uint64_t magic;
  std::uint64_t bytes;
  std::int32_t device;         // ordinal, of the machine
  std::uint32_t handle_types;  // what its creator allowed
};

class Block {
 public:
  /// Poisoned memory of a device; null if the machine has no more.
  static std::shared_ptr<Block> create(std::size_t bytes, int device, std::uint32_t handle_types);
  /// The block behind a descriptor, which stays the caller's; null if there is none.
  static std::shared_ptr<Block> from_descriptor(int descriptor);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  int descriptor() const { return descriptor_; }
  const Label& label() const { return label_; }
  /// Identical in all processes.
  std::uint64_t inode() const;
  std::size_t bytes() const { return label_.bytes; }
  /// The whole of it, in this process.
  char* alias() const { return alias_; }

  /// Marks that the allocation has had its turn, for all processes.
  void come_alive() const;
  bool came_alive() const;
  /// This process holds a block of another process until it releases it, or ends.
  void hold() const;
  void let_go() const;
  bool held_by_others() const;

 private:
  Block(int descriptor, const Label& label) : descriptor_(descriptor), label_(label) {}
  bool map();

  int descriptor_;
  Label label_;
  char* alias_ = nullptr;
};

/// How a process names a block to another one: fits into CUDA's handles of 64 bytes.
struct Ticket {
  std::uint64_t magic;
  std::int32_t pid;
  std::int32_t descriptor;
  std::uint64_t inode;  // a descriptor that was closed may be another file by now
};

Ticket ticket_of(const Block& block);
/// Null if the block was freed, or its process has ended.
std::shared_ptr<Block> open_ticket(const Ticket& ticket);
bool from_this_process(const Ticket& ticket);

}  // namespace emucuda
