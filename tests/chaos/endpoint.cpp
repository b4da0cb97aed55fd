// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/endpoint.hpp"

#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <set>

#include "tests/chaos/counter.hpp"
#include "tests/chaos/domain.hpp"
#include "tests/chaos/endpoint_ops.hpp"
#include "tests/chaos/queue.hpp"

namespace chaos {

Endpoint::Endpoint(Domain& domain, bool ordered, fid_ep* wrapped, void* context)
    : fid_ep{}, inner(wrapped), domain_(domain), ordered_(ordered) {
  fid = {FI_CLASS_EP, context, nullptr};
  set_endpoint_ops(*this);
  domain_.endpoints.push_back(this);
}

Endpoint::~Endpoint() {
  std::erase(domain_.endpoints, this);
  domain_.keys.remove_port(port_);
  fi_close(&inner->fid);  // before what it still reads
}

void Endpoint::bind(Queue& queue, std::uint64_t flags) {
  if (flags & FI_TRANSMIT) transmit_queue_ = &queue;
  bind(queue.inner->fid, flags);
}

void Endpoint::bind(struct fid& below, std::uint64_t flags) {
  if (below.fclass == FI_CLASS_AV) addresses_ = reinterpret_cast<fid_av*>(&below);
  bound_.emplace_back(&below, flags);
}

/// All at once: the network below cannot be polled for an endpoint that is bound and not enabled.
int Endpoint::enable() {
  for (const auto& [below, flags] : bound_) {
    if (const int bad = fi_ep_bind(inner, below, flags)) return bad;
  }
  if (const int bad = fi_enable(inner)) return bad;
  sockaddr_in name{};
  std::size_t bytes = sizeof name;
  if (const int bad = fi_getname(&inner->fid, &name, &bytes)) return bad;
  port_ = name.sin_port;
  return domain_.keys.add_port(port_);
}

ssize_t Endpoint::post(Write asked) {
  if (not_over_ >= domain_.settings.tx_size) return -FI_EAGAIN;
  begin(std::move(asked));
  return 0;
}

void Endpoint::begin(Write asked) {
  const auto write = std::make_shared<Write>(std::move(asked));
  auto from = Clock::now();
  if (write->has(FI_INJECT)) {
    write->copy_source();
    write->over = true;
  } else {
    ++not_over_;
    if (!write->has(FI_DELIVERY_COMPLETE)) {
      from += domain_.delay();
      hold(from, {Step::Kind::read, write});
    }
  }
  hold_pieces(from, write);
  domain_.stir();
}

/// Without order each goes on when it likes; with order all of a write do at once, in any order of pieces.
void Endpoint::hold_pieces(Clock::time_point from, const std::shared_ptr<Write>& write) {
  const std::size_t piece = domain_.settings.piece;
  std::vector<Step> steps;
  for (std::size_t at = 0; at == 0 || at < write->bytes; at += piece)
    steps.push_back({Step::Kind::piece, write, at, std::min(piece, write->bytes - at)});
  std::shuffle(steps.begin(), steps.end(), domain_.random);
  const bool noticed = write->has(FI_REMOTE_CQ_DATA) || domain_.settings.counters;
  write->steps_left = steps.size() + (noticed ? 1 : 0);
  const Step notice = {Step::Kind::notice, write};
  if (!ordered_) {
    for (Step& step : steps) hold(from + domain_.delay(), std::move(step));
    return;  // the notice follows the last of them
  }
  const auto at = in_order(write->peer, from + domain_.delay());
  for (Step& step : steps) hold(at, std::move(step));
  if (noticed) hold(at, notice);
}

Clock::time_point Endpoint::in_order(fi_addr_t peer, Clock::time_point from) {
  auto& last = last_[peer];
  return last = std::max(last, from);
}

void Endpoint::hold(Clock::time_point until, Step step) { held_.emplace(until, std::move(step)); }

std::optional<Clock::time_point> Endpoint::next() const {
  if (held_.empty()) return std::nullopt;
  return held_.begin()->first;
}

void Endpoint::turn() {
  const auto now = Clock::now();
  std::set<fi_addr_t> full;  // nothing passes what the network below has no room for
  for (auto at = held_.begin(); at != held_.end() && at->first <= now;) {
    const fi_addr_t peer = at->second.write->peer;
    if (full.contains(peer) || !run(at->second)) {
      full.insert(peer);
      ++at;
    } else {
      at = held_.erase(at);
    }
  }
}

/// False: to be tried again.
bool Endpoint::run(const Step& step) {
  if (step.kind != Step::Kind::read) return send(step);
  step.write->copy_source();
  end(*step.write, 0);
  return true;
}

/// Whoever says that a key is closed has closed it before, so that it is seen here.
bool Endpoint::reaches(const Write& write) const {
  sockaddr_in name{};
  std::size_t bytes = sizeof name;
  return fi_av_lookup(addresses_, write.peer, &name, &bytes) == 0 &&
         domain_.keys.is_open(name.sin_port, write.target.key);
}

bool Endpoint::send(const Step& step) {
  const Write& write = *step.write;
  if (!write.failed && !reaches(write)) fail(*step.write, FI_EKEYREJECTED);
  if (write.failed) {
    step_over(step);
    return true;
  }
  auto sent = std::make_unique<Sent>();
  sent->step = step;
  const iovec local = {const_cast<std::byte*>(write.source) + step.offset, step.bytes};
  const fi_rma_iov remote = {write.target.addr + step.offset, step.bytes, write.target.key};
  fi_msg_rma message{};
  message.msg_iov = &local;
  message.iov_count = 1;
  message.addr = write.peer;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.context = &sent->context;
  // Whose memory counts finds the counter by its key; none of these has remote data.
  message.data = domain_.settings.counters ? write.target.key : write.data;
  const bool notice = step.kind == Step::Kind::notice;
  const ssize_t bad =
      fi_writemsg(inner, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE | (notice ? FI_REMOTE_CQ_DATA : 0));
  if (bad == -FI_EAGAIN) return false;
  void* const key = &sent->context;
  in_flight_.emplace(key, std::move(sent));
  if (bad) ended(key, static_cast<int>(-bad));
  return true;
}

bool Endpoint::ended(void* context, int error) {
  const auto found = in_flight_.find(context);
  if (found == in_flight_.end()) return false;
  const Step step = std::move(found->second->step);
  in_flight_.erase(found);
  if (error) fail(*step.write, error);
  step_over(step);
  return true;
}

void Endpoint::fail(Write& write, int error) {
  write.failed = true;
  end(write, error);
}

void Endpoint::step_over(const Step& step) {
  Write& write = *step.write;
  --write.steps_left;
  if (write.steps_left == 0) return end(write, 0);
  const bool noticed = write.has(FI_REMOTE_CQ_DATA) || domain_.settings.counters;
  if (!ordered_ && noticed && write.steps_left == 1)
    hold(Clock::now() + domain_.delay(), {Step::Kind::notice, step.write});
}

/// Tells the program, once.
void Endpoint::end(Write& write, int error) {
  if (write.over) return;
  write.over = true;
  --not_over_;
  if (write.completion) write.completion->add(error ? 0 : 1, error ? 1 : 0);
  if (write.has(FI_COMPLETION) || (error && write.context)) transmit_queue_->ended(write.context, error);
}

}  // namespace chaos
