// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/exchange.hpp"
#include "apps/common/session.hpp"

#include <sluice/kokkos.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace apps {

/// The exchange of programs without channels on streams: the host waits for the stream, which has packed and copied to
/// the host's memory; exchanges there, in program order; lets the stream copy back; and waits again before that memory
/// may be overwritten.
template <class Space>
class StagedExchange : public Exchange {
 public:
  using Queue = sluice::kokkos::Queue<Space>;

  StagedExchange(Session& session, const Queue& queue, const Links& links)
      : session_(session), queue_(queue), links_(links), staged_(staged(session.context, links)),
        exchange_(session.open_exchange(staged_, sluice::Stream::program_order())) {}

  int acquire() override { return slot_ = exchange_->acquire(); }
  void put() override {
    for (std::size_t i = 0; i < links_.out.size(); ++i) copy<Host, Device>(staged_.out[i], links_.out[i]);
    synchronize();
    exchange_->put();
  }
  void wait() override {
    exchange_->wait();
    for (std::size_t i = 0; i < links_.in.size(); ++i) copy<Device, Host>(links_.in[i], staged_.in[i]);
  }
  void release() override {
    synchronize();
    exchange_->release();
  }
  std::string describe() const override { return "copied through the host's memory; there " + exchange_->describe(); }

 private:
  using Host = Kokkos::HostSpace;
  using Device = typename Space::memory_space;

  /// Links with the same peers in the host's memory.
  static Links staged(sluice::Context& context, Links links) {
    for (auto* side : {&links.out, &links.in})
      for (Link& link : *side) {
        const std::size_t bytes = link.slots.bytes();
        link.slots = context.allocate(bytes, sluice::Space::pinned).slice(0, bytes);
      }
    return links;
  }

  template <class To, class From>
  void copy(const Link& to, const Link& from) {
    using Target = Kokkos::View<std::byte*, To, Kokkos::MemoryUnmanaged>;
    using Source = Kokkos::View<const std::byte*, From, Kokkos::MemoryUnmanaged>;
    queue_.run([exec = queue_.exec(), target = Target(to.slot(slot_), to.bytes()),
                source = Source(from.slot(slot_), from.bytes())] { Kokkos::deep_copy(exec, target, source); });
  }

  void synchronize() { session_.context.synchronize(queue_.stream()); }

  Session& session_;
  Queue queue_;
  Links links_;
  Links staged_;
  std::unique_ptr<Exchange> exchange_;
  int slot_ = 0;
};

/// The exchange that the options name. Only channels can use a stream: other exchanges run in program order, and are
/// staged if the work does not.
template <class Space>
std::unique_ptr<Exchange> open_exchange(Session& session, const sluice::kokkos::Queue<Space>& queue,
                                        const Links& links) {
  const Comm comm = session.options.comm;
  const bool in_program_order = session.options.stream == StreamKind::inline_ && comm != Comm::copies;
  if (comm == Comm::sluice || comm == Comm::none || in_program_order)
    return session.open_exchange(links, queue.stream());
  return std::make_unique<StagedExchange<Space>>(session, queue, links);
}

}  // namespace apps
