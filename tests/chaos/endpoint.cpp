// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/endpoint.hpp"

#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <set>

#include "tests/chaos/counter.hpp"
#include "tests/chaos/domain.hpp"
#include "tests/chaos/queue.hpp"
#include "tests/layer/message.hpp"

namespace chaos {

Endpoint::Endpoint(Domain& owner, bool ordered, fid_ep* wrapped, void* context)
    : Part({.fid = {FI_CLASS_EP, context, nullptr}}, owner), inner(wrapped), ordered_(ordered) {
  set_endpoint_ops(*this);
  domain.endpoints.push_back(this);
}

Endpoint::~Endpoint() {
  std::erase(domain.endpoints, this);
  domain.keys.remove_port(port_);
  fi_close(&inner->fid);  // before the memory that it still reads is freed
}

void Endpoint::bind(Queue& queue, std::uint64_t flags) {
  if (flags & FI_TRANSMIT) transmit_queue_ = &queue;
  bind(queue.inner->fid, flags);
}

void Endpoint::bind(struct fid& below, std::uint64_t flags) {
  if (below.fclass == FI_CLASS_AV) addresses_ = reinterpret_cast<fid_av*>(&below);
  bound_.emplace_back(&below, flags);
}

/// Binds and enables at once: the network below cannot be polled for an endpoint that is bound and not enabled.
int Endpoint::enable() {
  for (const auto& [below, flags] : bound_) {
    if (const int bad = fi_ep_bind(inner, below, flags)) return bad;
  }
  if (const int bad = fi_enable(inner)) return bad;
  sockaddr_in name{};
  std::size_t bytes = sizeof name;
  if (const int bad = fi_getname(&inner->fid, &name, &bytes)) return bad;
  port_ = name.sin_port;
  return domain.keys.add_port(port_);
}

ssize_t Endpoint::post(Write asked) {
  if (incomplete_ >= domain.settings.tx_size) return -FI_EAGAIN;
  begin(std::move(asked));
  return 0;
}

void Endpoint::begin(Write asked) {
  const auto write = std::make_shared<Write>(std::move(asked));
  auto from = Clock::now();
  if (write->has(FI_INJECT)) {
    write->copy_source();
    write->completed = true;
  } else {
    ++incomplete_;
    if (!write->has(FI_DELIVERY_COMPLETE)) {
      from += domain.delay();
      hold(from, {Step::Kind::read, write});
    }
  }
  hold_pieces(from, write);
  domain.stir();
}

/// Without order each piece has a delay of its own; with order all pieces of a write are due at once, shuffled.
void Endpoint::hold_pieces(Clock::time_point from, const std::shared_ptr<Write>& write) {
  const std::size_t piece = domain.settings.piece;
  std::vector<Step> steps;
  for (std::size_t at = 0; at == 0 || at < write->bytes; at += piece)
    steps.push_back({Step::Kind::piece, write, at, std::min(piece, write->bytes - at)});
  std::shuffle(steps.begin(), steps.end(), domain.random);
  const bool noticed = write->has(FI_REMOTE_CQ_DATA) || domain.settings.counters;
  write->steps_left = steps.size() + (noticed ? 1 : 0);
  const Step notice = {Step::Kind::notice, write};
  if (!ordered_) {
    for (Step& step : steps) hold(from + domain.delay(), std::move(step));
    return;  // `finish_step` of the last piece holds the notice
  }
  const auto at = in_order(write->peer, from + domain.delay());
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
  std::set<fi_addr_t> full;  // peers for which the network below has no room: later steps must not overtake
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

bool Endpoint::run(const Step& step) {
  if (step.kind != Step::Kind::read) return send(step);
  step.write->copy_source();
  complete(*step.write, 0);
  return true;
}

/// A program announces that it has closed a key only afterwards, so that this check finds the key closed.
bool Endpoint::reaches(const Write& write) const {
  sockaddr_in name{};
  std::size_t bytes = sizeof name;
  return fi_av_lookup(addresses_, write.peer, &name, &bytes) == 0 &&
         domain.keys.is_open(name.sin_port, write.target.key);
}

bool Endpoint::send(const Step& step) {
  const Write& write = *step.write;
  if (!write.failed && !reaches(write)) fail(*step.write, FI_EKEYREJECTED);
  if (write.failed) {
    finish_step(step);
    return true;
  }
  auto sent = std::make_unique<Sent>();
  sent->step = step;
  const iovec local = {const_cast<std::byte*>(write.source) + step.offset, step.bytes};
  const fi_rma_iov remote = {write.target.addr + step.offset, step.bytes, write.target.key};
  // With counters no write has remote data; the target finds the counter by the key.
  const std::uint64_t data = domain.settings.counters ? write.target.key : write.data;
  const fi_msg_rma message = layer::message(local, remote, write.peer, &sent->context, data);
  const bool notice = step.kind == Step::Kind::notice;
  const ssize_t bad =
      fi_writemsg(inner, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE | (notice ? FI_REMOTE_CQ_DATA : 0));
  if (bad == -FI_EAGAIN) return false;
  void* const key = &sent->context;
  in_flight_.emplace(key, std::move(sent));
  if (bad) complete(key, static_cast<int>(-bad));
  return true;
}

bool Endpoint::complete(void* context, int error) {
  const auto found = in_flight_.find(context);
  if (found == in_flight_.end()) return false;
  const Step step = std::move(found->second->step);
  in_flight_.erase(found);
  if (error) fail(*step.write, error);
  finish_step(step);
  return true;
}

void Endpoint::fail(Write& write, int error) {
  write.failed = true;
  complete(write, error);
}

void Endpoint::finish_step(const Step& step) {
  Write& write = *step.write;
  --write.steps_left;
  if (write.steps_left == 0) return complete(write, 0);
  const bool noticed = write.has(FI_REMOTE_CQ_DATA) || domain.settings.counters;
  if (!ordered_ && noticed && write.steps_left == 1)
    hold(Clock::now() + domain.delay(), {Step::Kind::notice, step.write});
}

void Endpoint::complete(Write& write, int error) {
  if (write.completed) return;
  write.completed = true;
  --incomplete_;
  if (write.completion) write.completion->add(error ? 0 : 1, error ? 1 : 0);
  if (write.has(FI_COMPLETION) || (error && write.context)) transmit_queue_->complete(write.context, error);
}

}  // namespace chaos
