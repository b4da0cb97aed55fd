// SPDX-License-Identifier: Apache-2.0
#include "dialects/messages/transfer.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "device/copy_anywhere.hpp"
#include "dialects/common/background.hpp"
#include "dialects/common/outcome.hpp"
#include "dialects/messages/lane.hpp"

namespace sluice::stream_mpi {
namespace {

Layout::Copy* copy_of(bool on_gpu) { return on_gpu ? &device::copy_anywhere : &Layout::copy_on_host; }

}  // namespace

Transfer::Transfer(std::shared_ptr<Lane> lane, Layout layout, int peer, int tag)
    : lane_(std::move(lane)), layout_(std::move(layout)), peer_(peer), tag_(tag) {}

void Transfer::add(const std::shared_ptr<Transfer>& message) {
  if (message->lane_ != nullptr) message->lane_->add(message);
}

void Transfer::start() {
  started_.store(true, std::memory_order_release);
  if (lane_ == nullptr) return complete_.store(true, std::memory_order_release);
  lane_->progress();
  if (!complete()) Background::notice();
}

void Transfer::abandon(const char* why) {
  if (lane_ != nullptr && !complete()) lane_->fail(std::make_exception_ptr(Refused(MPI_ERR_OTHER, why)));
}

void Transfer::cancel() { fail(std::make_exception_ptr(Refused(MPI_ERR_OTHER, "a message that was never started"))); }

void Transfer::check() const {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void Transfer::describe(MPI_Status* status) const {
  if (status == MPI_STATUS_IGNORE) return;
  // These change the struct alone, and so the thread of a stream may call them at any thread level.
  PMPI_Status_set_elements_x(status, MPI_BYTE, static_cast<MPI_Count>(parts.bytes));
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = peer_;
  status->MPI_TAG = peer_ == MPI_PROC_NULL ? MPI_ANY_TAG : tag_;
}

void Transfer::look_for_gpu_memory() { on_gpu_ = layout_.any_begins_in(&device::in_gpu_memory); }

void Transfer::begin(Direction direction) {
  if (parts.at != nullptr) return;
  if (layout_.contiguous() && !on_gpu_) {
    parts.at = layout_.data();
  } else {
    packed_.resize(layout_.bytes());
    parts.at = packed_.data();
    if (direction == Direction::send) layout_.pack(parts.at, copy_of(on_gpu_));
  }
  if (direction == Direction::send) parts.bytes = layout_.bytes();
}

void Transfer::end(Direction direction) {
  if (direction == Direction::receive) {
    if (!packed_.empty()) layout_.unpack(packed_.data(), std::min(parts.bytes, packed_.size()), copy_of(on_gpu_));
    if (parts.bytes > layout_.bytes())
      failure_ = std::make_exception_ptr(
          Refused(MPI_ERR_TRUNCATE, "a message of " + std::to_string(parts.bytes) + " bytes from rank " +
                                        std::to_string(peer_) + " with the tag " + std::to_string(tag_) +
                                        ", for a buffer of " + std::to_string(layout_.bytes())));
    parts.bytes = std::min(parts.bytes, layout_.bytes());
  }
  packed_ = {};
  complete_.store(true, std::memory_order_release);
}

void Transfer::fail(std::exception_ptr failure) noexcept {
  parts.bytes = 0;
  failure_ = std::move(failure);
  complete_.store(true, std::memory_order_release);
}

}  // namespace sluice::stream_mpi
