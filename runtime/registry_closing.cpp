// SPDX-License-Identifier: Apache-2.0
// How channels close: the registry observes the ends, and does what closing.hpp decides.
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
#include "runtime/window.hpp"

namespace sluice::runtime {
namespace {

using base::Clock;

constexpr auto kLook = std::chrono::milliseconds(1);  // how often a closing looks at what streams have passed

}  // namespace

/// The End of `advance`.
struct Registry::ClosingEnd {
  Registry& registry;
  ChannelEnd& end;

  bool passed() const noexcept { return end.passed(); }
  bool written() const noexcept { return end.written(); }
  bool has_written(const Final& final) const noexcept { return end.has_written(final); }
  bool has_arrived(const Final& final) const noexcept { return end.has_arrived(final); }
  bool settled() { return end.settled(); }
  bool disarmed(bool key_closed) { return end.disarmed(key_closed); }
  void shut() noexcept { end.shut_end(); }
  void let_go() { registry.let_go(end); }
  void close_key() { registry.close_key(end); }
};

void Registry::begin_closing(ChannelEnd& end) {
  if (end.closing.ours) return;
  send_failures();  // before the closing: a peer that reads that first takes it for an ordinary one
  end.closing.ours = end.final();
  closing_.insert(&end);
  open_.erase(end.opening.key);
  --report().ends;
  if (end.announced) announce_closing(end);
}

void Registry::announce_closing(const ChannelEnd& end) { send(peer_of(end), Kind::closing, end.id, *end.closing.ours); }

bool Registry::try_to_close(ChannelEnd& end) {
  ClosingEnd closing{*this, end};
  advance(end.closing, closing);
  return is_closed(end.closing, closing);
}

bool Registry::close(ChannelEnd& end, base::Limit& limit) {
  std::unique_lock lock(mutex_);
  begin_closing(end);
  base::WaitNote note(Clock::now());
  while (!try_to_close(end) && !limit.over()) {
    leave_in_front_of(end);
    const auto now = Clock::now();
    if (note.due(now, base::kNotedAfter)) end.note_closing(note);
    changed_.wait_until(lock, std::min(limit.next(), now + kLook));
    if (ended_) end.closing.let_go();
  }
  if (!try_to_close(end)) return false;
  send_failures();  // if the end has failed while it closed (test: GpuStaging.of_a_gpu_that_has_failed_*)
  forget(end);
  return true;
}

/// Their peers are told at once; the body may still catch, so ends that do not hold this one up stay open.
void Registry::leave_in_front_of(const ChannelEnd& end) {
  if (end.leaves_because().empty()) return;
  for (auto& [id, other] : ends_) {
    if (other != &end && !other->failed() && other->holds_up(end)) other->leave_in_front(end.leaves_because());
  }
}

void Registry::leave(const std::string& why, base::Limit& limit) {
  std::vector<std::shared_ptr<ChannelEnd>> still_used;  // peers or streams may still write into their memory
  std::map<std::string, std::shared_ptr<WindowCore>> windows;
  {
    std::unique_lock lock(mutex_);
    if (ended_) return;
    for (auto& [id, end] : ends_) end->leave(why);
    for (auto& [id, end] : ends_) begin_closing(*end);
    engine_.wake();
    const auto closed = [this](auto& entry) { return try_to_close(*entry.second); };
    while (!(unmappings_.empty() && std::all_of(ends_.begin(), ends_.end(), closed)) && !limit.over())
      changed_.wait_for(lock, kLook);
    for (auto& [id, end] : ends_) {
      if (!try_to_close(*end)) {
        if (auto owned = end->weak_from_this().lock()) still_used.push_back(std::move(owned));
      }
      end->closing.let_go();
    }
    windows.swap(windows_);
    for (auto& [scope, window] : windows) {
      for (auto& [id, end] : std::exchange(window->ends, {})) {
        if (try_to_close(*end)) forget(*end);
      }
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
  end_unmappings();
  std::vector<ChannelEnd*> of_windows;
  std::erase_if(closing_, [&](ChannelEnd* end) {
    if (end->beyond_final()) end->refuse_enqueued();
    begin_to_part(*end);
    if (try_to_close(*end) && end->opening.key.role == Role::window) of_windows.push_back(end);
    return !end->closing.waits() && !end->beyond_final() && !end->counted();
  });
  for (ChannelEnd* const end : of_windows) forget_window_end(*end);
}

/// This end no longer touches the peer's memory. Notifies the peer once all of that memory is unmapped.
void Registry::let_go(ChannelEnd& end) {
  unmap_peer(end);
  if (end.remote_id != 0) send_let_go(peer_of(end), end.remote_id);
}

void Registry::send_let_go(Peer& peer, std::uint64_t remote_id) {
  const auto is = [&](const Unmapping& one) { return one.peer == peer.rank && one.remote_id == remote_id; };
  if (std::any_of(unmappings_.begin(), unmappings_.end(), is)) return;  // sent once the memory is unmapped
  send(peer, Kind::let_go, remote_id);
}

/// A thread of its own unmaps memory whose unmapping waits for a GPU: that GPU may wait for what this rank, its engine
/// or its user, does next (test: Pools.that_are_held_up_hold_up_nobody). The thread uses nothing of this rank.
void Registry::unmap_peer(ChannelEnd& end) {
  backends::Held held = end.forget_peer();
  held.reached.clear();
  std::erase_if(held.mapped, [](const auto& mapping) { return !mapping->waits_for_gpu(); });
  if (held.mapped.empty()) return;
  const auto done = std::make_shared<std::atomic<bool>>(false);
  unmappings_.push_back({end.opening.key.world_peer, end.remote_id, done});
  try {
    const base::SignalsBlocked blocked;
    std::thread([mapped = std::move(held.mapped), done]() mutable {
      mapped.clear();
      done->store(true);
    }).detach();
  } catch (const std::system_error&) {
    done->store(true);  // no more threads: this one has unmapped it
  }
  engine_.wake();
}

void Registry::end_unmappings() {
  const auto ended =
      std::partition(unmappings_.begin(), unmappings_.end(), [](const auto& one) { return !one.done->load(); });
  const std::vector<Unmapping> done(ended, unmappings_.end());
  unmappings_.erase(ended, unmappings_.end());
  for (const Unmapping& one : done) send_let_go(peers_.at(one.peer), one.remote_id);
}

/// The engine first reads the numbers of puts that have arrived. A number left unread would count for the next channel
/// whose landing gets the index of this one (Closing.any_order_works).
void Registry::close_key(ChannelEnd& end) {
  if (engine_.helper() != nullptr) engine_.look_only();
  if (end.close_key()) send(peer_of(end), Kind::gone, end.id);
}

void Registry::forget(ChannelEnd& end) {
  end.drop_landing();
  closing_.erase(&end);
  streams_.erase(&end);
  ends_.erase(end.id);
  by_peer_.erase({end.opening.key.world_peer, end.remote_id});
  // The place in the queue stays: the peer may open its end later, and must then find that this one has closed.
  const auto waiting = waiting_here_.find(end.opening.key);
  if (waiting != waiting_here_.end() && (end.of_window() || peer_of(end).lost)) waiting_here_.erase(waiting);
}

}  // namespace sluice::runtime
