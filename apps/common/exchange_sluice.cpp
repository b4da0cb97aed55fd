// SPDX-License-Identifier: Apache-2.0
#include "apps/common/exchange.hpp"

#include <vector>

namespace apps {
namespace {

constexpr sluice::Tag kHaloTag = 0;

class SluiceExchange : public Exchange {
 public:
  SluiceExchange(sluice::Context& context, const Halo& halo, const HaloBuffers& buffers, sluice::Stream stream)
      : stream_(stream), plan_(context.plan()) {
    sluice::Scope scope = context.scope("halo");
    const sluice::ChannelOptions options{.depth = kSlots, .name = "halo", .stream = stream};
    const std::size_t count = halo.messages.size();
    for (std::size_t i = 0; i < count; ++i) {
      const int peer = halo.messages[i].peer;
      receivers_.push_back(scope.receiver(peer, kHaloTag, buffers.in_slots(i), options));
      senders_.push_back(scope.sender(peer, kHaloTag, buffers.out_slots(i), options));
    }
    for (sluice::Receiver& receiver : receivers_) plan_.add(receiver);
    for (sluice::Sender& sender : senders_) plan_.add(sender);
    if (count > 0) plan_.commit(stream);
  }

  int acquire() override {
    if (!senders_.empty()) plan_.acquire(stream_);
    return static_cast<int>(++epoch_ % kSlots);
  }
  void put() override {
    if (!senders_.empty()) plan_.start(stream_);
  }
  void wait() override {
    if (!receivers_.empty()) plan_.wait(stream_);
  }
  void release() override {
    if (!receivers_.empty()) plan_.release(stream_);
  }
  std::string describe() const override { return senders_.empty() ? "no neighbours" : plan_.describe(); }

 private:
  sluice::Stream stream_;
  std::vector<sluice::Sender> senders_;
  std::vector<sluice::Receiver> receivers_;
  sluice::Plan plan_;  // goes before its channels
  std::uint64_t epoch_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> make_sluice_exchange(sluice::Context& context, const Halo& halo, const HaloBuffers& buffers,
                                               sluice::Stream stream) {
  return std::make_unique<SluiceExchange>(context, halo, buffers, stream);
}

}  // namespace apps
