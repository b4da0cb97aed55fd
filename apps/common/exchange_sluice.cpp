// SPDX-License-Identifier: Apache-2.0
#include "apps/common/exchange.hpp"

#include <cstdint>
#include <vector>

namespace apps {
namespace {

constexpr sluice::Tag kHaloTag = 0;

class SluiceExchange : public Exchange {
 public:
  SluiceExchange(sluice::Context& context, const Links& links, sluice::Stream stream)
      : stream_(stream), plan_(context.plan()) {
    sluice::Scope scope = context.scope(links.name);
    const auto options = [&](const Link& link) {
      return sluice::ChannelOptions{.depth = kSlots, .name = links.name, .stream = stream, .contents = link.contents};
    };
    for (const Link& in : links.in) receivers_.push_back(scope.receiver(in.peer, kHaloTag, in.slots, options(in)));
    for (const Link& out : links.out) senders_.push_back(scope.sender(out.peer, kHaloTag, out.slots, options(out)));
    for (sluice::Receiver& receiver : receivers_) plan_.add(receiver);
    for (sluice::Sender& sender : senders_) plan_.add(sender);
    if (!receivers_.empty() || !senders_.empty()) plan_.commit(stream);
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
  sluice::Plan plan_;  // destroyed before its channels
  std::uint64_t epoch_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> make_sluice_exchange(sluice::Context& context, const Links& links, sluice::Stream stream) {
  return std::make_unique<SluiceExchange>(context, links, stream);
}

}  // namespace apps
