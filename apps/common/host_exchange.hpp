// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/session.hpp"

#include <memory>
#include <utility>

namespace apps {

/// An exchange in program order of memory that a host stream packs and unpacks: the host waits for the stream first.
class SynchronisedExchange : public Exchange {
 public:
  SynchronisedExchange(sluice::Context context, std::unique_ptr<Exchange> exchange, sluice::Stream stream)
      : context_(std::move(context)), exchange_(std::move(exchange)), stream_(stream) {}

  int acquire() override { return exchange_->acquire(); }
  void put() override {
    context_.synchronize(stream_);
    exchange_->put();
  }
  void wait() override { exchange_->wait(); }
  void release() override {
    context_.synchronize(stream_);
    exchange_->release();
  }
  std::string describe() const override { return exchange_->describe(); }

 private:
  sluice::Context context_;
  std::unique_ptr<Exchange> exchange_;
  sluice::Stream stream_;
};

/// The exchange that the options name, of messages in the host's memory.
inline std::unique_ptr<Exchange> open_host_exchange(Session& session, const Links& links, sluice::Stream stream) {
  const Comm comm = session.options.comm;
  if (comm == Comm::sluice || stream == sluice::Stream::program_order()) return session.open_exchange(links, stream);
  auto inner = session.open_exchange(links, sluice::Stream::program_order());
  return std::make_unique<SynchronisedExchange>(session.context, std::move(inner), stream);
}

}  // namespace apps
