// SPDX-License-Identifier: Apache-2.0
#include <sluice/error.hpp>
#include <sluice/memory.hpp>

#include <string>

#include "runtime/block.hpp"

namespace sluice {
namespace {

void check_inside(std::size_t offset, std::size_t length, std::size_t bytes, Rank rank, const char* what) {
  if (offset <= bytes && length <= bytes - offset) return;
  throw Error(Code::bad_argument, rank, -1, 0, 0,
              "a slice of " + std::to_string(length) + " bytes from offset " + std::to_string(offset) +
                  " does not lie inside " + what + " of " + std::to_string(bytes) + " bytes");
}

Rank rank_of(const std::shared_ptr<const detail::Block>& block) { return block == nullptr ? -1 : block->rank; }

}  // namespace

Slice Slice::slice(std::size_t offset, std::size_t length) const {
  check_inside(offset, length, bytes_, rank_of(block_), "a slice");
  return {block_, data_ + offset, length};
}

std::byte* Region::data() const noexcept { return block_ == nullptr ? nullptr : block_->extent.data; }

std::size_t Region::bytes() const noexcept { return block_ == nullptr ? 0 : block_->extent.bytes; }

Slice Region::slice(std::size_t offset, std::size_t length) const {
  check_inside(offset, length, bytes(), rank_of(block_), "a region");
  return detail::SliceAccess::make(block_, data() + offset, length);
}

Slice Region::all() const { return slice(0, bytes()); }

}  // namespace sluice
