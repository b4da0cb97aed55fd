// SPDX-License-Identifier: Apache-2.0
// Transports and links whose puts are stores into memory that both ends see: nothing is under way when a verb returns,
// and nothing has to be polled.
#pragma once

#include <utility>

#include "backends/transport.hpp"

namespace sluice::backends {

class OnHostTransport : public Transport {
 public:
  std::shared_ptr<const void> pin(const device::Extent&) override { return nullptr; }
  void try_out(device::Driver&) override {}
  AfterTurn poll() override { return AfterTurn::nothing; }
  int rest(std::vector<pollfd>&) override { return kNoLimit; }

 protected:
  OnHostTransport(Blob address, Maps which) : Transport(std::move(address), which) {}
};

class OnHostLink : public Link {
 public:
  std::size_t rails(const Slots&) const override { return 1; }
  void arrived(Key&) override {}
  void lost() override {}
};

}  // namespace sluice::backends
