// SPDX-License-Identifier: Apache-2.0
// An endpoint: the steps of writes that it holds back.
#pragma once

#include <rdma/fi_endpoint.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/chaos/settings.hpp"
#include "tests/chaos/write.hpp"
#include "tests/layer/object.hpp"

namespace chaos {

class Domain;
class Queue;

using Clock = std::chrono::steady_clock;

class Endpoint : public layer::Part<fid_ep, Domain> {
 public:
  Endpoint(Domain& owner, bool ordered, fid_ep* wrapped, void* context);
  /// Discards the steps that are held back.
  ~Endpoint();

  void bind(Queue& queue, std::uint64_t flags);
  void bind(struct fid& below, std::uint64_t flags);
  int enable();

  /// Begins a write; -FI_EAGAIN while too many are incomplete.
  ssize_t post(Write asked);
  /// Begins a write, however many are incomplete: deferred work that has fired always has room.
  void begin(Write asked);

  /// Runs the steps that are due.
  void turn();
  /// When the next step is due.
  std::optional<Clock::time_point> next() const;
  /// The network below has completed the step with this context. False: the step is not of this endpoint.
  bool complete(void* context, int error);
  bool in_flight() const { return !in_flight_.empty(); }

  fid_ep* const inner;

 private:
  /// A step of a write: reads its source, or writes a piece of it, or notifies the target.
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
  /// False: the network below is full.
  bool run(const Step& step);
  bool send(const Step& step);
  void finish_step(const Step& step);
  void fail(Write& write, int error);
  /// Reports the end of the write to the program, once.
  void complete(Write& write, int error);

  bool ordered_;
  Queue* transmit_queue_ = nullptr;
  fid_av* addresses_ = nullptr;
  std::uint16_t port_ = 0;
  std::vector<std::pair<struct fid*, std::uint64_t>> bound_;
  std::size_t incomplete_ = 0;
  std::multimap<Clock::time_point, Step> held_;
  std::unordered_map<fi_addr_t, Clock::time_point> last_;  // ordered: when the last write to a peer is due
  std::unordered_map<void*, std::unique_ptr<Sent>> in_flight_;
};

/// Fills in the tables of calls that libfabric's inline functions use.
void set_endpoint_ops(Endpoint& endpoint);

/// 0 and the write, if the class that is emulated accepts it, or an error.
int check_write(const Settings& settings, const fi_msg_rma& message, std::uint64_t flags, Write& write);

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context);

}  // namespace chaos
