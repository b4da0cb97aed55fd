// SPDX-License-Identifier: Apache-2.0
// An endpoint: what it holds back, and when that goes on.
#pragma once

#include <rdma/fi_endpoint.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/chaos/write.hpp"

namespace chaos {

class Domain;
class Queue;

using Clock = std::chrono::steady_clock;

/// Everything with the domain's lock held.
class Endpoint : public fid_ep {
 public:
  using Fid = fid_ep;

  Endpoint(Domain& domain, bool ordered, fid_ep* wrapped, void* context);
  /// What is held back is lost.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  Domain& domain() const { return domain_; }
  void bind(Queue& queue, std::uint64_t flags);
  void bind(struct fid& below, std::uint64_t flags);
  int enable();

  /// Begins a write; -FI_EAGAIN while too many are not over.
  ssize_t post(Write asked);
  /// The same for work that has fired, which always has room.
  void begin(Write asked);

  /// Does what is due.
  void turn();
  std::optional<Clock::time_point> next() const;
  /// What the network below has to say of `context`. False: it is not from here.
  bool ended(void* context, int error);
  bool in_flight() const { return !in_flight_.empty(); }

  fid_ep* const inner;

 private:
  /// A step of a write: its source is read, or a piece of it is written, or the target is told of it.
  struct Step {
    enum class Kind : std::uint8_t { read, piece, notice };
    Kind kind = Kind::piece;
    std::shared_ptr<Write> write;
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  /// A step in the network below, which keeps the address of the context.
  struct Sent {
    fi_context2 context{};
    Step step;
  };

  bool reaches(const Write& write) const;
  void hold(Clock::time_point until, Step step);
  void hold_pieces(Clock::time_point from, const std::shared_ptr<Write>& write);
  Clock::time_point in_order(fi_addr_t peer, Clock::time_point from);
  bool run(const Step& step);
  bool send(const Step& step);
  void step_over(const Step& step);
  void fail(Write& write, int error);
  void end(Write& write, int error);

  Domain& domain_;
  bool ordered_;
  Queue* transmit_queue_ = nullptr;
  fid_av* addresses_ = nullptr;
  std::uint16_t port_ = 0;
  std::vector<std::pair<struct fid*, std::uint64_t>> bound_;
  std::size_t not_over_ = 0;
  std::multimap<Clock::time_point, Step> held_;
  std::unordered_map<fi_addr_t, Clock::time_point> last_;  // ordered: when the last write to a peer goes on
  std::unordered_map<void*, std::unique_ptr<Sent>> in_flight_;
};

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context);

}  // namespace chaos
