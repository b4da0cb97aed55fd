// SPDX-License-Identifier: Apache-2.0
// How the ends of a channel part: what closing.hpp decides is observed and done here.
#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "base/fork.hpp"
#include "base/threads.hpp"
#include "runtime/engine.hpp"
#include "runtime/kept.hpp"
#include "runtime/registry.hpp"
#include "runtime/report.hpp"

namespace sluice::runtime {
namespace {

using base::Clock;

constexpr auto kLook = std::chrono::milliseconds(1);  // how often a closing looks at what streams have passed

}  // namespace

/// The End of `advance`.
class Registry::ClosingEnd {
 public:
  ClosingEnd(Registry& registry, ChannelEnd& end) : registry_(registry), end_(end) {}

  bool passed() const noexcept { return end_.passed(); }
  bool written() const noexcept { return end_.written(); }
  bool has_written(const Final& final) const noexcept { return end_.has_written(final); }
  bool has_arrived(const Final& final) const noexcept { return end_.has_arrived(final); }
  bool settled() { return end_.settled(); }
  bool disarmed(bool key_closed) { return end_.disarmed(key_closed); }
  void shut() noexcept { end_.shut_end(); }
  void let_go() { registry_.let_go(end_); }
  void close_key() { registry_.close_key(end_); }

 private:
  Registry& registry_;
  ChannelEnd& end_;
};

void Registry::begin_closing(ChannelEnd& end) {
  if (end.closing.ours) return;
  send_failures();  // before the closing: a peer that hears of that first takes it for an ordinary one
  end.closing.ours = end.final();
  closing_.insert(&end);
  open_.erase(end.opening.key);
  --report().ends;
  if (end.announced) announce_closing(end);
}

void Registry::announce_closing(const ChannelEnd& end) {
  Writer writer(Kind::closing);
  tell(peers_.at(end.opening.key.world_peer), writer.put(end.id).put(*end.closing.ours));
}

bool Registry::is_over(ChannelEnd& end) {
  ClosingEnd closing(*this, end);
  advance(end.closing, closing);
  return is_closed(end.closing, closing);
}

bool Registry::close(ChannelEnd& end, base::Limit& limit) {
  std::unique_lock lock(mutex_);
  begin_closing(end);
  while (!is_over(end) && !limit.over()) {
    changed_.wait_until(lock, std::min(limit.next(), Clock::now() + kLook));
    if (ended_) end.closing.let_go();
  }
  if (!is_over(end)) return false;
  send_failures();  // of an end that has failed while it closed (test: GpuStaging.of_a_gpu_that_has_failed_*)
  forget(end);
  return true;
}

void Registry::leave(const std::string& why, base::Limit& limit) {
  std::vector<std::shared_ptr<ChannelEnd>> still_used;  // somebody may yet write into their memory
  {
    std::unique_lock lock(mutex_);
    if (ended_) return;
    for (auto& [id, end] : ends_) end->leave(why);
    for (auto& [id, end] : ends_) begin_closing(*end);
    engine_.wake();
    const auto is_over_here = [this](auto& entry) { return is_over(*entry.second); };
    while (!(partings_.empty() && std::all_of(ends_.begin(), ends_.end(), is_over_here)) && !limit.over())
      changed_.wait_for(lock, kLook);
    for (auto& [id, end] : ends_) {
      if (!is_over(*end)) still_used.push_back(end->weak_from_this().lock());
      end->closing.let_go();
    }
    ended_ = true;
    changed_.notify_all();
  }
  for (auto& end : still_used) keep_for_ever(std::move(end));
}

void Registry::look_again(ChannelEnd& end) {
  const std::lock_guard lock(mutex_);
  if (ends_.contains(end.id)) closing_.insert(&end);
  engine_.wake();
}

void Registry::advance_all() {
  end_partings();
  std::erase_if(closing_, [this](ChannelEnd* end) {
    if (end->beyond_final()) end->refuse_enqueued();
    is_over(*end);
    return !end->closing.waits() && !end->beyond_final() && !end->counted();
  });
}

/// Nothing of this end touches the peer's memory any more. The peer is told as soon as nothing of it is held here.
void Registry::let_go(ChannelEnd& end) {
  part(end);
  if (end.remote_id != 0) tell_let_go(peer_of(end), end.remote_id);
}

void Registry::tell_let_go(Peer& peer, std::uint64_t remote_id) {
  const auto is = [&](const Parting& one) { return one.peer == peer.rank && one.remote_id == remote_id; };
  if (std::any_of(partings_.begin(), partings_.end(), is)) return;  // told when that is over
  Writer writer(Kind::let_go);
  tell(peer, writer.put(remote_id));
}

/// What must wait for a GPU is let go of by a thread of its own, which knows nothing of this rank: the GPU may wait for
/// what this rank, its engine or its user, does next (test: Pools.that_are_held_up_hold_up_nobody).
void Registry::part(ChannelEnd& end) {
  backends::Held held = end.forget_peer();
  held.reached.clear();
  std::erase_if(held.mapped, [](const auto& mapping) { return !mapping->waits_for_gpu(); });
  if (held.mapped.empty()) return;
  const auto over = std::make_shared<std::atomic<bool>>(false);
  partings_.push_back({end.opening.key.world_peer, end.remote_id, over});
  try {
    const base::SignalsBlocked blocked;
    std::thread([mapped = std::move(held.mapped), over]() mutable {
      mapped.clear();
      over->store(true);
    }).detach();
  } catch (const std::system_error&) {
    over->store(true);  // no more threads: this one has let go of it
  }
  engine_.wake();
}

void Registry::end_partings() {
  const auto ended =
      std::partition(partings_.begin(), partings_.end(), [](const auto& one) { return !one.over->load(); });
  const std::vector<Parting> over(ended, partings_.end());
  partings_.erase(ended, partings_.end());
  for (const Parting& one : over) tell_let_go(peers_.at(one.peer), one.remote_id);
}

/// The engine first reads the numbers of puts that have arrived. A number left unread would count for the next channel
/// whose landing gets the index of this one (Closing.any_order_works).
void Registry::close_key(ChannelEnd& end) {
  if (engine_.helper() != nullptr) engine_.look();
  if (!end.close_key()) return;
  Writer writer(Kind::gone);
  tell(peer_of(end), writer.put(end.id));
}

void Registry::forget(ChannelEnd& end) {
  end.drop_landing();
  closing_.erase(&end);
  streams_.erase(&end);
  ends_.erase(end.id);
  by_peer_.erase({end.opening.key.world_peer, end.remote_id});
  // The peer may look for this end later, and must find that it is over: its place in the queue stays.
  const auto waiting = waiting_here_.find(end.opening.key);
  if (waiting != waiting_here_.end() && peer_of(end).lost) waiting_here_.erase(waiting);
}

}  // namespace sluice::runtime
