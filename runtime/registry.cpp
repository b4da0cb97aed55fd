// SPDX-License-Identifier: Apache-2.0
// How the two ends of a channel find each other, and how they part.
#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/signals.hpp"
#include "runtime/report.hpp"
#include "runtime/world.hpp"

namespace sluice::runtime {
namespace {

using base::Clock;

constexpr auto kLook = std::chrono::milliseconds(1);  // how often a closing looks at what streams have passed

constexpr std::size_t kMaxText = 4096;  // must fit into one packet

constexpr auto kSeenBy = std::chrono::milliseconds(500);  // an arrival, once it has come

Error error_of(const Opening& opening, Code code, const std::string& what) {
  return {code, opening.rank, opening.peer, opening.key.tag, 0, what};
}

void put_failure(Writer& writer, const ChannelEnd& end, Code code, const std::string& what) {
  writer.put(code);
  writer.text("rank " + std::to_string(end.opening.rank) + " reports: " + what.substr(0, kMaxText));
}

std::pair<Code, std::string> get_failure(Reader& message) {
  const auto code = message.get<Code>();
  return {code, message.text()};
}

ChannelKey as_seen_here(const Peer& peer, Role theirs, std::string scope, Tag tag) {
  return {peer.rank, std::move(scope), tag, theirs == Role::sender ? Role::receiver : Role::sender};
}

}  // namespace

void World::open_end(const std::shared_ptr<ChannelEnd>& end) {
  reclaim();
  const std::lock_guard lock(mutex_);
  const ChannelKey& key = end->opening.key;
  if (ended_) throw error_of(end->opening, Code::misuse, "this rank has ended");
  if (open_.contains(key)) {
    throw error_of(end->opening, Code::misuse,
                   std::string("a duplicate: a ") + (key.role == Role::sender ? "sender" : "receiver") +
                       " with this peer and tag is open already");
  }
  begin_anew();
  open_[key] = end->id;
  ++report().ends;
  ends_[end->id] = end.get();
  waiting_here_[key].push_back(end->id);
  Peer& peer = peers_.at(key.world_peer);
  peers_.reach(peer);
  if (peer.lost) return end->peer_lost(peer.why_lost);
  if (peer.linked) announce(*end);
  if (launcher_lost_) end->fail(Code::aborted, kLauncherLost);
  // Its sleep does not look at a socket that was made meanwhile (test:
  // Start.the_end_of_a_thread_rank_is_noticed_by_the_others).
  engine_.wake();
}

/// Prepares the memory that the peer's puts land in, and returns its key. If that fails, the end fails, and the key is
/// empty.
backends::Key World::land(Peer& peer, ChannelEnd& end) {
  if (const std::string obstacle = peer.link->obstacle(); !obstacle.empty()) {
    end.fail(Code::transport,
             peer.backend + " does not reach rank " + std::to_string(end.opening.peer) + ": " + obstacle);
    return {};
  }
  try {
    std::vector<backends::Signal> more;
    for (std::size_t rail = 1; rail < peer.link->rails(end.target()); ++rail)
      more.push_back(peer.words.take(Standing::alone));
    return end.land(*peer.link, std::move(more));
  } catch (const std::exception& reason) {
    end.fail(Code::out_of_resources, std::string("no memory for its landing: ") + reason.what());
    return {};
  }
}

/// Tells the peer of this end, and matches it if the peer has told of its own.
void World::announce(ChannelEnd& end) {
  const Opening& opening = end.opening;
  Peer& peer = peers_.at(opening.key.world_peer);
  if (peer.link == nullptr) {
    end.peer_let_go();  // nor does the peer ever touch this end
    return end.fail(Code::unsupported, "no backend that is open here reaches rank " + std::to_string(opening.peer));
  }
  // If it has failed, it is announced all the same: the peer's end that matches it fails too, and the next ones match.
  const backends::Key key = land(peer, end);
  Writer writer(Kind::opening);
  writer.put(opening.key.role).text(opening.key.scope).put(opening.key.tag).put(end.id);
  writer.put(static_cast<std::uint64_t>(end.slot_bytes)).put(opening.options.depth);
  writer.text(opening.contents).blob(key.bytes);
  if (const auto failure = end.failure()) put_failure(writer, end, failure->first, failure->second);
  peers_.send(peer, {writer.take(), key.sent});
  end.announced = true;
  if (end.closing) announce_closing(end);
  const auto theirs = waiting_there_.find(opening.key);
  auto& ours = waiting_here_[opening.key];
  // Ends are announced in the order of their opening, so the oldest that waits here is this one whenever one waits
  // there.
  if (theirs == waiting_there_.end() || theirs->second.empty() || ours.empty() || ours.front() != end.id) return;
  RemoteEnd remote = std::move(theirs->second.front());
  theirs->second.pop_front();
  ours.pop_front();
  match(end, std::move(remote));
}

void World::match(ChannelEnd& end, RemoteEnd remote) {
  const ChannelKey& key = end.opening.key;
  if (waiting_here_[key].empty()) waiting_here_.erase(key);
  if (waiting_there_[key].empty()) waiting_there_.erase(key);
  Peer& peer = peers_.at(key.world_peer);
  end.peer_told = remote.final && (remote.final->wanted == 0 || remote.failure);
  if (base::enabled(base::LogLevel::trace)) {
    base::log(base::LogLevel::trace, "rank " + std::to_string(end.opening.rank) + " connects with rank " +
                                         std::to_string(end.opening.peer) + ", tag " + std::to_string(key.tag));
  }
  end.connect(*peer.link, std::move(remote));  // last: from here on the user's loop may run, and count allocations
}

void World::linked(Peer& peer) {
  std::vector<ChannelEnd*> waiting;
  for (auto& [id, end] : ends_) {
    if (end->opening.key.world_peer == peer.rank && !end->announced) waiting.push_back(end);
  }
  for (ChannelEnd* end : waiting) announce(*end);
}

/// What a peer that is gone sent last may have arrived, and not been seen yet; if it has closed before, it has arrived.
void World::see_all_of(const Peer& peer) {
  if (engine_.helper() == nullptr) return;
  const auto is_behind = [&](const auto& entry) {
    return entry.second->opening.key.world_peer == peer.rank && entry.second->behind();
  };
  const auto deadline = Clock::now() + kSeenBy;
  do {
    engine_.look();
    std::this_thread::yield();
  } while (std::any_of(ends_.begin(), ends_.end(), is_behind) && Clock::now() < deadline);
}

void World::lost(Peer& peer) {
  if (peer.link != nullptr) peer.link->lost();  // first: what writes to a dead peer may hang in the provider
  see_all_of(peer);
  for (auto& [id, end] : ends_) {
    if (end->opening.key.world_peer == peer.rank) end->peer_lost(peer.why_lost);
  }
  std::erase_if(waiting_there_, [&](const auto& entry) { return entry.first.world_peer == peer.rank; });
  std::erase_if(waiting_here_, [&](const auto& entry) { return entry.first.world_peer == peer.rank; });
}

void World::said(Peer& peer, Kind kind, Reader& message, std::vector<base::Fd> fds) {
  switch (kind) {
    case Kind::greeting:
    case Kind::path: break;  // heard by the peers themselves
    case Kind::opening: return on_opening(peer, message, std::move(fds));
    case Kind::closing: return on_closing(peer, message);
    case Kind::failure: return on_failure(peer, message);
    case Kind::gone:
      if (ChannelEnd* const end = end_of_peer(peer, message.get<std::uint64_t>())) end->peer_gone();
      return;
    case Kind::way:
      if (const auto it = ends_.find(message.get<std::uint64_t>()); it != ends_.end())
        it->second->decide(message.text());
      return;
    case Kind::let_go:
      if (const auto it = ends_.find(message.get<std::uint64_t>()); it != ends_.end()) it->second->peer_let_go();
      return;
  }
}

void World::on_opening(Peer& peer, Reader& message, std::vector<base::Fd> fds) {
  const auto role = message.get<Role>();
  std::string scope = message.text();
  const auto tag = message.get<Tag>();
  RemoteEnd remote;
  remote.id = message.get<std::uint64_t>();
  remote.slot_bytes = message.get<std::uint64_t>();
  remote.depth = message.get<int>();
  remote.contents = message.text();
  remote.key.bytes = message.blob();
  remote.key.received = std::move(fds);
  if (!message.over()) remote.failure = get_failure(message);
  if (peer.link != nullptr) peer.link->arrived(remote.key);
  const ChannelKey key = as_seen_here(peer, role, std::move(scope), tag);
  auto& theirs = waiting_there_[key];
  theirs.push_back(std::move(remote));
  const auto ours = waiting_here_.find(key);
  if (ours == waiting_here_.end() || ours->second.empty()) return;
  const std::uint64_t id = ours->second.front();
  const auto it = ends_.find(id);
  if (it != ends_.end() && !it->second->announced) return;  // matched when it is
  RemoteEnd first = std::move(theirs.front());
  theirs.pop_front();
  std::erase(ours->second, id);
  if (it != ends_.end()) {
    match(*it->second, std::move(first));
  } else {
    // Closed before the peer opened its end; the peer was told so.
    if (ours->second.empty()) waiting_here_.erase(ours);
    if (theirs.empty()) waiting_there_.erase(key);
  }
}

ChannelEnd* World::end_of_peer(const Peer& peer, std::uint64_t remote_id) {
  for (auto& [id, end] : ends_) {
    if (end->opening.key.world_peer == peer.rank && end->remote_id == remote_id) return end;
  }
  return nullptr;
}

RemoteEnd* World::waiting_end(const Peer& peer, std::uint64_t remote_id) {
  for (auto& [key, waiting] : waiting_there_) {
    if (key.world_peer != peer.rank) continue;
    const auto it = std::find_if(waiting.begin(), waiting.end(), [&](const auto& end) { return end.id == remote_id; });
    if (it != waiting.end()) return &*it;
  }
  return nullptr;
}

void World::on_closing(Peer& peer, Reader& message) {
  const auto remote_id = message.get<std::uint64_t>();
  const auto final = message.get<Final>();
  if (ChannelEnd* end = end_of_peer(peer, remote_id)) return end->peer_closed(final);
  if (RemoteEnd* waiting = waiting_end(peer, remote_id)) {
    waiting->final = final;
    if (final.wanted > 0 && !waiting->failure) return;  // its streams still have work that needs this side
    waiting->key = {};                                  // nothing of it will ever be mapped
  }
  say_let_go(peer, remote_id);
}

void World::on_failure(Peer& peer, Reader& message) {
  const auto remote_id = message.get<std::uint64_t>();
  auto [code, what] = get_failure(message);
  if (ChannelEnd* end = end_of_peer(peer, remote_id)) return end->peer_failed(code, what);
  if (RemoteEnd* waiting = waiting_end(peer, remote_id)) waiting->failure = {code, std::move(what)};
}

void World::send_failures() {
  std::vector<Notice> notices;
  {
    const std::lock_guard lock(failures_mutex_);
    notices.swap(notices_);
  }
  for (const auto& notice : notices) {
    const auto it = ends_.find(notice.end);
    if (it == ends_.end() || !it->second->announced) continue;
    if (notice.tell_peer) announce_failure(*it->second, notice.code, notice.what);
  }
}

void World::tell_way(const ChannelEnd& end, const std::string& obstacle) {
  peers_.send(peers_.at(end.opening.key.world_peer),
              {Writer(Kind::way).put(end.remote_id).text(obstacle.substr(0, kMaxText)).take(), {}});
}

void World::announce_failure(const ChannelEnd& end, Code code, const std::string& what) {
  Writer writer(Kind::failure);
  put_failure(writer.put(end.id), end, code, what);
  peers_.send(peers_.at(end.opening.key.world_peer), {writer.take(), {}});
}

void World::let_go() {
  end_partings();
  for (auto& [id, end] : ends_) {
    if (end->beyond_final()) end->refuse_enqueued();
    if (end->closed_by_peer && !end->peer_told && end->let_go()) tell_let_go(*end);
    if (end->owes_key()) close_key(*end);
  }
}

void World::tell_let_go(ChannelEnd& end) {
  part(end);
  say_let_go(peers_.at(end.opening.key.world_peer), end.remote_id);
  end.peer_told = true;
}

/// As soon as nothing of its memory is held here.
void World::say_let_go(Peer& peer, std::uint64_t remote_id) {
  const auto is = [&](const Parting& one) { return one.peer == peer.rank && one.remote_id == remote_id; };
  const auto parting = std::find_if(partings_.begin(), partings_.end(), is);
  if (parting != partings_.end()) {
    parting->told = true;
    return;
  }
  peers_.send(peer, {Writer(Kind::let_go).put(remote_id).take(), {}});
}

/// What must wait for a GPU is let go of by a thread of its own, which knows nothing of this world: the GPU may wait
/// for what this rank, its engine or its user, does next (test: Pools.that_are_held_up_hold_up_nobody).
void World::part(ChannelEnd& end) {
  backends::Held held = end.forget_peer();
  held.reached.clear();
  std::erase_if(held.mapped, [](const auto& mapping) { return !mapping->waits_for_gpu(); });
  if (held.mapped.empty()) return;
  const auto over = std::make_shared<std::atomic<bool>>(false);
  partings_.push_back({end.opening.key.world_peer, end.remote_id, false, over});
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

void World::end_partings() {
  std::erase_if(partings_, [this](const Parting& one) {
    if (!one.over->load()) return false;
    if (one.told) peers_.send(peers_.at(one.peer), {Writer(Kind::let_go).put(one.remote_id).take(), {}});
    return true;
  });
}

void World::announce_closing(const ChannelEnd& end) {
  Writer writer(Kind::closing);
  writer.put(end.id).put(*end.closing);
  peers_.send(peers_.at(end.opening.key.world_peer), {writer.take(), {}});
}

void World::begin_closing(ChannelEnd& end) {
  if (end.closing) return;
  send_failures();  // before the closing: a peer that hears of that first takes it for an ordinary one
  end.closing = end.final();
  open_.erase(end.opening.key);
  --report().ends;
  if (end.announced) announce_closing(end);
}

bool World::close(ChannelEnd& end, base::Limit& limit) {
  std::unique_lock lock(mutex_);
  begin_closing(end);
  while (!over(end) && !limit.over()) {
    changed_.wait_until(lock, std::min(limit.next(), Clock::now() + kLook));
    if (ended_) end.peer_let_go();
  }
  if (!over(end)) return false;
  send_failures();  // of an end that has failed while it closed (test: GpuStaging.of_a_gpu_that_has_failed_*)
  unregister(end);
  return true;
}

bool World::over(ChannelEnd& end) {
  close_key(end);
  if (!end.peer_told && end.leaves_armed()) tell_let_go(end);
  return end.over();
}

/// Closes the key once the peer needs it no more, without a wait for the peer's own key: both may be closing. The
/// engine first reads the numbers of puts that have arrived. A number left unread would count for the next channel
/// whose landing gets the index of this one (Closing.any_order_works).
void World::close_key(ChannelEnd& end) {
  if (!end.parted()) return;
  if (end.owes_key() && engine_.helper() != nullptr) engine_.look();
  if (end.close_key()) peers_.send(peers_.at(end.opening.key.world_peer), {Writer(Kind::gone).put(end.id).take(), {}});
}

void World::unregister(ChannelEnd& end) {
  // The peer may have closed while this end was: its engine has not been told yet, and nobody would later.
  if (end.closed_by_peer && !end.peer_told) tell_let_go(end);
  // Its handle may live on, and a peer that closes later is told at once that nothing touches its memory.
  part(end);
  ends_.erase(end.id);
  // The peer may look for this end later, and must find that it is over: its place in the queue stays.
  const auto waiting = waiting_here_.find(end.opening.key);
  if (waiting == waiting_here_.end()) return;
  if (peers_.at(end.opening.key.world_peer).lost) waiting_here_.erase(waiting);
}

namespace {

/// Ends that are in use after their handle was destroyed. Streams may use them to the end of the process.
struct Kept {
  std::mutex mutex;
  std::vector<std::shared_ptr<ChannelEnd>> until_closed;
  std::vector<std::shared_ptr<ChannelEnd>> for_ever;
};
base::OnePerProcess<Kept> g_kept;

}  // namespace

void World::keep(std::shared_ptr<ChannelEnd> end) {
  const std::lock_guard lock(g_kept->mutex);
  g_kept->until_closed.push_back(std::move(end));
}

void World::reclaim() {
  std::vector<std::shared_ptr<ChannelEnd>> waiting;
  {
    const std::lock_guard lock(g_kept->mutex);
    waiting.swap(g_kept->until_closed);
  }
  std::erase_if(waiting, [](const auto& end) {
    base::Limit at_once(Timeout::zero());
    return end->close_within(at_once);
  });
  const std::lock_guard lock(g_kept->mutex);
  auto& kept_on = g_kept->until_closed;
  kept_on.insert(kept_on.end(), std::make_move_iterator(waiting.begin()), std::make_move_iterator(waiting.end()));
}

void World::keep_for_ever(std::shared_ptr<ChannelEnd> end) {
  const std::lock_guard lock(g_kept->mutex);
  g_kept->for_ever.push_back(std::move(end));
}

}  // namespace sluice::runtime
