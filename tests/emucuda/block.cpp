// SPDX-License-Identifier: Apache-2.0
#include "tests/emucuda/block.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace emucuda {
namespace {

constexpr std::uint64_t kMagic = 0x6164756375656d65;
constexpr int kPoison = 0xDB;
constexpr std::size_t kPage = 4096;

/// The label has the last page of the file.
std::size_t label_offset(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::uint64_t inode_of(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

/// The kernel takes it back when the last descriptor of this opening of the file is closed.
void lock(int descriptor, short type) {
  struct flock whole {};
  whole.l_type = type;
  ::fcntl(descriptor, F_OFD_SETLK, &whole);
}

}  // namespace

std::shared_ptr<Block> Block::create(std::size_t bytes, int device, std::uint32_t handle_types) {
  const int descriptor = ::memfd_create("emucuda", MFD_CLOEXEC);
  if (descriptor < 0) return nullptr;
  const Label label{kMagic, bytes, device, handle_types};
  std::shared_ptr<Block> block(new Block(descriptor, label));
  const auto offset = static_cast<off_t>(label_offset(bytes));
  if (::ftruncate(descriptor, offset + static_cast<off_t>(kPage)) != 0) return nullptr;
  if (::pwrite(descriptor, &label, sizeof(label), offset) != sizeof(label) || !block->map()) return nullptr;
  std::memset(block->alias_, kPoison, bytes);
  return block;
}

std::shared_ptr<Block> Block::from_descriptor(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || status.st_size < static_cast<off_t>(kPage)) return nullptr;
  Label label{};
  const auto offset = status.st_size - static_cast<off_t>(kPage);
  if (::pread(descriptor, &label, sizeof(label), offset) != sizeof(label) || label.magic != kMagic) return nullptr;
  const int own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return nullptr;
  std::shared_ptr<Block> block(new Block(own, label));
  return block->map() ? block : nullptr;
}

std::uint64_t Block::inode() const { return inode_of(descriptor_); }

/// One byte behind the label.
void Block::come_alive() const {
  const char yes = 1;
  static_cast<void>(::pwrite(descriptor_, &yes, 1, static_cast<off_t>(label_offset(bytes()) + sizeof(Label))));
}

bool Block::came_alive() const {
  char yes = 0;
  return ::pread(descriptor_, &yes, 1, static_cast<off_t>(label_offset(bytes()) + sizeof(Label))) == 1 && yes == 1;
}

void Block::hold() const { lock(descriptor_, F_RDLCK); }
void Block::let_go() const { lock(descriptor_, F_UNLCK); }

bool Block::held_by_others() const {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  return ::fcntl(descriptor_, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

bool Block::map() {
  void* memory = ::mmap(nullptr, label_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (memory == MAP_FAILED) return false;
  alias_ = static_cast<char*>(memory);
  return true;
}

Block::~Block() {
  if (alias_) ::munmap(alias_, label_.bytes);
  ::close(descriptor_);
}

Ticket ticket_of(const Block& block) { return {kMagic, ::getpid(), block.descriptor(), block.inode()}; }

std::shared_ptr<Block> open_ticket(const Ticket& ticket) {
  if (ticket.magic != kMagic) return nullptr;
  const std::string path = "/proc/" + std::to_string(ticket.pid) + "/fd/" + std::to_string(ticket.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  auto block = inode_of(descriptor) == ticket.inode ? Block::from_descriptor(descriptor) : nullptr;
  ::close(descriptor);
  return block;
}

bool from_this_process(const Ticket& ticket) { return ticket.magic == kMagic && ticket.pid == ::getpid(); }

}  // namespace emucuda
