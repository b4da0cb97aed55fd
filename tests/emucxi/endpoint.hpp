// SPDX-License-Identifier: Apache-2.0
// An endpoint: an endpoint of `sockets`, the requests that its operations hold, and their completion counters.
#pragma once

#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "tests/emucxi/work.hpp"
#include "tests/layer/object.hpp"

namespace emucxi {

class Addresses;
class Queue;

/// `users` are regions.
class Endpoint : public layer::Part<fid_ep, Domain> {
 public:
  /// With the domain's lock held.
  Endpoint(Domain& owner, const fi_info& info, void* context);
  ~Endpoint();

  std::uint64_t caps() const { return caps_; }
  std::uint32_t traffic_class() const { return traffic_class_; }
  bool enabled() const { return enabled_; }
  fid_ep* inner() const { return inner_; }

  int bind(Queue& queue, std::uint64_t flags);
  int bind(Counter& counter, std::uint64_t flags);
  int bind(Addresses& addresses);
  int enable();

  bool knows(fi_addr_t peer) const;

  /// Takes one of the requests that a software NIC driver has. Reading the completion queue returns it.
  bool take_request();
  void give_back_request() { --requests_; }

  /// Begins an operation that does not wait for a counter.
  ssize_t begin(std::unique_ptr<Transfer> transfer, std::uint64_t flags);
  std::uint64_t default_flags() const { return default_flags_; }

  /// Passes a transfer to the network: 0, -FI_EAGAIN if the network is full, or an error. Takes the transfer if 0.
  ssize_t send(std::unique_ptr<Transfer>& transfer);
  /// Handles the completions of the network. False: there were none.
  bool poll();
  bool waits_for_network() const { return !in_flight_.empty(); }
  Queue* transmit_queue() const { return transmit_queue_; }

  /// Transfers in flight do not count on it any more.
  void forget(const Counter& counter);

 private:
  int open_inner();
  ssize_t send_rma(Transfer& transfer) const;
  ssize_t send_atomic(Transfer& transfer) const;
  void complete(void* context, int error);

  std::uint64_t caps_;
  std::uint32_t traffic_class_;
  std::uint64_t default_flags_;
  std::size_t tx_size_;
  bool enabled_ = false;
  Addresses* addresses_ = nullptr;
  Queue* transmit_queue_ = nullptr;
  Queue* receive_queue_ = nullptr;
  Counter* writes_ = nullptr;
  Counter* reads_ = nullptr;
  std::size_t requests_ = 0;
  fid_ep* inner_ = nullptr;
  fid_cq* inner_queue_ = nullptr;
  std::unordered_map<void*, std::unique_ptr<Transfer>> in_flight_;
};

/// Fills in the tables of calls that libfabric's inline functions use.
void set_endpoint_ops(Endpoint& endpoint);

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context);

}  // namespace emucxi
