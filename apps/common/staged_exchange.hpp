// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/app_stream.hpp"
#include "apps/common/exchange.hpp"
#include "apps/common/session.hpp"

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace apps {

/// What programs do without channels on their streams: the host waits for the stream, which has packed and copied to
/// the host's memory; exchanges there, in program order; has the stream copy back; and waits again before it lets that
/// memory be overwritten.
template <class Space>
class StagedExchange : public Exchange {
 public:
  StagedExchange(Session& session, AppStream& stream, const Space& space)
      : session_(session), stream_(stream), space_(space),
        staging_(session.context, session.halo, session.cell_bytes, sluice::Space::pinned),
        exchange_(session.open_exchange(staging_, sluice::Stream::program_order())) {}

  int acquire() override { return slot_ = exchange_->acquire(); }
  void put() override {
    for (std::size_t i = 0; i < session_.halo.messages.size(); ++i)
      copy<Host, Device>(staging_.out(i, slot_), session_.buffers.out(i, slot_),
                         staging_.out_slots(i).bytes() / kSlots);
    synchronize();
    exchange_->put();
  }
  void wait() override {
    exchange_->wait();
    for (std::size_t i = 0; i < session_.halo.messages.size(); ++i)
      copy<Device, Host>(session_.buffers.in(i, slot_), staging_.in(i, slot_), staging_.in_slots(i).bytes() / kSlots);
  }
  void release() override {
    synchronize();
    exchange_->release();
  }
  std::string describe() const override { return "copied through the host's memory; there " + exchange_->describe(); }

 private:
  using Host = Kokkos::HostSpace;
  using Device = typename Space::memory_space;

  template <class To, class From>
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    using Target = Kokkos::View<std::byte*, To, Kokkos::MemoryUnmanaged>;
    using Source = Kokkos::View<const std::byte*, From, Kokkos::MemoryUnmanaged>;
    stream_.run([this, to, from, bytes] { Kokkos::deep_copy(space_, Target(to, bytes), Source(from, bytes)); });
  }

  void synchronize() { session_.context.synchronize(stream_.handle()); }

  Session& session_;
  AppStream& stream_;
  Space space_;
  HaloBuffers staging_;
  std::unique_ptr<Exchange> exchange_;
  int slot_ = 0;
};

/// What the options ask for. Channels alone know streams: all else is in program order, and staged where the work is
/// not.
template <class Space>
std::unique_ptr<Exchange> open_exchange(Session& session, AppStream& stream, const Space& space) {
  const Comm comm = session.options.comm;
  const bool in_program_order = session.options.stream == StreamKind::inline_ && comm != Comm::copies;
  if (comm == Comm::sluice || comm == Comm::none || in_program_order)
    return session.open_exchange(session.buffers, stream.handle());
  return std::make_unique<StagedExchange<Space>>(session, stream, space);
}

}  // namespace apps
