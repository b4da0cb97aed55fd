// SPDX-License-Identifier: Apache-2.0
// Ranges of segments in a WaitAny.
#include <memory>
#include <optional>
#include <utility>

#include "runtime/wait_any.hpp"
#include "segments/receiver.hpp"

namespace sluice {

namespace {

class AwaitedRange final : public detail::Awaited {
 public:
  AwaitedRange(std::shared_ptr<segments::ReceiverEnd> of, const segments::Range& range)
      : receiver_(std::move(of)), watched_(receiver_->watch(range)) {}
  runtime::ChannelEnd& end() const noexcept override { return receiver_->main(); }
  bool ready() noexcept override { return receiver_->ready(*watched_); }
  void add_places(std::vector<base::Parking*>& places) const override { receiver_->add_places(places); }
  std::optional<WaitAny::Arrival> take(std::size_t index, const void*) override {
    using Found = segments::ReceiverEnd::Found;
    const Found found = receiver_->report(*watched_);
    if (found == Found::nothing) return std::nullopt;
    if (found == Found::closed) return WaitAny::Arrival{index, {}, {}};
    return WaitAny::Arrival{index, receiver_->memory.slice(watched_->range.offset, watched_->range.count), {}};
  }
  void release(device::Lane, const void*) override { receiver_->release(watched_->range); }
  void lend_to_kernels(device::Driver& driver, int gpu) override { receiver_->lend_to_kernels(driver, gpu); }

 private:
  const std::shared_ptr<segments::ReceiverEnd> receiver_;
  const std::shared_ptr<segments::Watched> watched_;
};

}  // namespace

std::size_t WaitAny::add(SegmentReceiver& receiver, std::size_t offset, std::size_t count) {
  segments::ReceiverEnd& end = detail::usable_here(receiver.end_);
  end.check_open();
  return detail::WaitAnyAccess::core(core_).add(
      std::make_unique<AwaitedRange>(receiver.end_, end.range(offset, count)));
}

}  // namespace sluice
