// SPDX-License-Identifier: Apache-2.0
// How the two ends of a channel find each other, and the messages of ranks about their ends.
#include "runtime/registry.hpp"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "runtime/engine.hpp"
#include "runtime/kept.hpp"
#include "runtime/report.hpp"
#include "runtime/window.hpp"

namespace sluice::runtime {
namespace {

using base::Clock;

constexpr std::size_t kMaxText = 4096;  // must fit into one packet

constexpr const char* kEnded = "this rank has ended";

constexpr auto kSeenBy = std::chrono::milliseconds(500);  // an arrival, after its bytes

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
  return {peer.rank, std::move(scope), tag, opposite(theirs)};
}

}  // namespace

backends::Signal Registry::take_word(Rank peer, Standing standing) {
  const std::lock_guard lock(mutex_);
  return word_of(peer, standing);
}

backends::Signal Registry::word_of(Rank peer, Standing standing) { return peers_.at(peer).words.take(standing); }

void Registry::give_back_word(Rank peer, const backends::Signal& word) {
  const std::lock_guard lock(mutex_);
  peers_.at(peer).words.give_back(word);
}

void Registry::open(ChannelEnd& end) {
  reclaim();
  const std::lock_guard lock(mutex_);
  const ChannelKey& key = end.opening.key;
  if (ended_) throw error_of(end.opening, Code::misuse, kEnded);
  if (open_.contains(key)) {
    throw error_of(end.opening, Code::misuse,
                   std::string("a duplicate: a ") + (key.role == Role::sender ? "sender" : "receiver") +
                       " with this peer and tag is open already");
  }
  begin_anew();
  failures_.forget_told();
  const auto give_up = [&](Code code, const char* reason) {
    const std::string why = std::string("opening: ") + reason;
    if (end.announced) return end.fail(code, why);
    take_out(end);
    throw error_of(end.opening, code, why);
  };
  try {
    add(end);
  } catch (const Error& reason) {
    give_up(reason.code(), reason.what());
  } catch (const std::exception& reason) {
    give_up(Code::out_of_resources, reason.what());
  }
}

/// Undoes what `add` has done of an end that is not announced.
void Registry::take_out(const ChannelEnd& end) noexcept {
  const auto erase = [&](auto& lists, const auto& key) {
    const auto found = lists.find(key);
    if (found == lists.end()) return;
    std::erase(found->second, end.id);
    if (found->second.empty()) lists.erase(found);
  };
  if (open_.erase(end.opening.key) != 0) --report().ends;
  ends_.erase(end.id);
  erase(waiting_here_, end.opening.key);
  erase(unannounced_, end.opening.key.world_peer);
}

/// Announces the end, at once or when the link to the peer is ready.
void Registry::add(ChannelEnd& end) {
  open_[end.opening.key] = end.id;
  ++report().ends;
  ends_[end.id] = &end;
  waiting_here_[end.opening.key].push_back(end.id);
  Peer& peer = peer_of(end);
  peers_.reach(peer);
  if (peer.lost) return lose(end, peer);
  if (peer.linked) {
    announce(end);
  } else {
    unannounced_[peer.rank].push_back(end.id);
  }
  if (!doom_.empty()) end.fail(Code::aborted, doom_);
  // Its sleep does not look at a socket that was made meanwhile (test:
  // Start.the_end_of_a_thread_rank_is_noticed_by_the_others).
  engine_.wake();
}

/// Prepares where the peer's puts land, and returns the keys: of the slots, and of the lengths of puts. On failure the
/// end fails. The peer gets the keys that there are: later ones rely on the descriptors that came with them.
Registry::Keys Registry::land(Peer& peer, ChannelEnd& end) {
  if (const std::string obstacle = peer.link->obstacle(); !obstacle.empty()) {
    end.fail(Code::transport,
             peer.backend + " does not reach rank " + std::to_string(end.opening.peer) + ": " + obstacle);
    return {};
  }
  Keys keys;
  try {
    std::vector<backends::Signal> more;
    for (std::size_t rail = 1; rail < peer.link->rails(end.target()); ++rail)
      more.push_back(peer.words.take(Standing::alone));
    keys.slots = end.open_landing(*peer.link, std::move(more));
    if (!end.sends() && end.opening.options.lengths)
      keys.lengths = end.land_lengths(*peer.link, peer.words.take(Standing::together));
  } catch (const std::exception& reason) {
    end.fail(Code::out_of_resources, std::string("no memory for its landing: ") + reason.what());
  }
  return keys;
}

/// Announces the end to the peer, and connects it if the peer's end is announced.
void Registry::announce(ChannelEnd& end) {
  const Opening& opening = end.opening;
  Peer& peer = peer_of(end);
  if (peer.link == nullptr) {
    end.closing.let_go();
    return end.fail(Code::unsupported, "no backend that is open here reaches rank " + std::to_string(opening.peer));
  }
  // If it has failed, it is announced all the same: the peer's end that matches it fails too, and the next ones match.
  const Keys keys = land(peer, end);
  Writer writer(Kind::opening);
  writer.put(opening.key.role).text(opening.key.scope).put(opening.key.tag).put(end.id);
  writer.put(static_cast<std::uint64_t>(end.slot_bytes)).put(opening.options.depth);
  writer.text(opening.contents).blob(keys.slots.bytes);
  std::vector<int> descriptors = keys.slots.sent;
  writer.put(keys.lengths.has_value());
  if (keys.lengths) {
    writer.put(descriptors.size()).blob(keys.lengths->bytes);
    descriptors.insert(descriptors.end(), keys.lengths->sent.begin(), keys.lengths->sent.end());
  }
  if (const auto failure = end.failure()) put_failure(writer, end, failure->error().code(), failure->error().what());
  end.announced = true;
  peers_.send(peer, {writer.take(), std::move(descriptors)});
  if (end.closing.ours) announce_closing(end);
  match_oldest(opening.key);
}

/// Connects the oldest end that waits here with the oldest that waits at the peer, if both are announced. Ends are
/// announced in the order of their opening, so no other ends can match.
void Registry::match_oldest(const ChannelKey& key) {
  const auto ours = waiting_here_.find(key);
  const auto theirs = waiting_there_.find(key);
  if (ours == waiting_here_.end() || theirs == waiting_there_.end()) return;
  const std::uint64_t id = ours->second.front();
  ChannelEnd* const end = end_here(id);  // null: closed before the peer opened its end, which knows that
  if (end != nullptr && !end->announced) return;
  RemoteEnd remote = std::move(theirs->second.front());
  theirs->second.pop_front();
  keys_there_.erase({key.world_peer, remote.id});
  if (theirs->second.empty()) waiting_there_.erase(theirs);
  ours->second.pop_front();
  if (ours->second.empty()) waiting_here_.erase(ours);
  if (end != nullptr) connect(*end, std::move(remote));
}

void Registry::connect(ChannelEnd& end, RemoteEnd remote) {
  Peer& peer = peer_of(end);
  by_peer_[{peer.rank, remote.id}] = &end;
  // An end that has settled before it had a peer takes nothing of the peer.
  if (end.closing.told()) send_let_go(peer, remote.id);
  if (remote.final) closing_.insert(&end);
  if (remote.failure) lose_target(end, remote.failure->first, remote.failure->second);
  if (base::enabled(base::LogLevel::trace)) {
    base::log(base::LogLevel::trace, "rank " + std::to_string(end.opening.rank) + " connects with rank " +
                                         std::to_string(end.opening.peer) + ", tag " +
                                         std::to_string(end.opening.key.tag));
  }
  end.connect(*peer.link, std::move(remote));  // last: from here on the user's loop may run, and count allocations
}

void Registry::linked(Peer& peer) {
  const auto waiting = unannounced_.extract(peer.rank);
  if (waiting.empty()) return;
  for (const std::uint64_t id : waiting.mapped()) {
    ChannelEnd* const end = end_here(id);  // null: closed meanwhile
    if (end != nullptr && !end->announced) announce(*end);
  }
}

/// The last puts of a dead peer may have arrived and not been seen yet; if it had closed before, they have arrived.
void Registry::see_all_of(const Peer& peer) {
  if (engine_.helper() == nullptr) return;
  const auto is_behind = [&](const auto& entry) {
    return entry.second->opening.key.world_peer == peer.rank && entry.second->behind();
  };
  const auto deadline = Clock::now() + kSeenBy;
  do {
    engine_.look_only();
    std::this_thread::yield();
  } while (std::any_of(ends_.begin(), ends_.end(), is_behind) && Clock::now() < deadline);
}

void Registry::lost(Peer& peer) {
  if (peer.link != nullptr) peer.link->lost();  // first: what writes to a dead peer may hang in the provider
  for (auto& [id, end] : ends_) {               // at once: others wait for it
    const ChannelKey& key = end->opening.key;
    if (key.world_peer == peer.rank && key.role == Role::window) static_cast<WindowEnd&>(*end).end_turn_of_peer();
  }
  see_all_of(peer);
  for (auto& [id, end] : ends_) {
    if (end->opening.key.world_peer == peer.rank) lose(*end, peer);
  }
  std::erase_if(waiting_there_, [&](const auto& entry) { return entry.first.world_peer == peer.rank; });
  keys_there_.erase(keys_there_.lower_bound({peer.rank, 0}), keys_there_.lower_bound({peer.rank + 1, 0}));
  std::erase_if(waiting_here_, [&](const auto& entry) { return entry.first.world_peer == peer.rank; });
  unannounced_.erase(peer.rank);
}

/// A peer that has aborted says so before it ends.
void Registry::lose(ChannelEnd& end, const Peer& peer) {
  const bool aborted = !peer.last_words.empty();
  const Code code = aborted ? Code::aborted : Code::peer_lost;
  const std::string& why = aborted ? peer.last_words : peer.why_lost;
  if (end.opening.key.role == Role::window) {
    closing_.insert(&end);
    if (!end.closing.theirs) lose_target(end, code, why);
  }
  end.peer_lost(code, why);
}

void Registry::unsent() { engine_.wake(); }

void Registry::said(Peer& peer, Kind kind, Reader& message, std::vector<base::Fd> fds) {
  switch (kind) {
    case Kind::greeting:
    case Kind::path: break;  // handled in peers/
    case Kind::opening: return on_opening(peer, message, std::move(fds));
    case Kind::closing: return on_closing(peer, message);
    case Kind::failure: return on_failure(peer, message);
    case Kind::abort: peer.last_words = "rank " + std::to_string(peer.rank) + " reports: " + message.text(); return;
    case Kind::gone:
      if (ChannelEnd* const end = end_of_peer(peer, message.get<std::uint64_t>())) end->closing.key_closed_there = true;
      return;
    case Kind::way:
      if (ChannelEnd* const end = end_here(message.get<std::uint64_t>())) end->decide(message.text());
      return;
    case Kind::let_go:
      if (ChannelEnd* const end = end_here(message.get<std::uint64_t>())) {
        end->closing.let_go();
        closing_.insert(end);
      }
      return;
    case Kind::refusal:
      if (ChannelEnd* const end = end_here(message.get<std::uint64_t>())) {
        const auto code = message.get<Code>();
        end->peer_failed(code, message.text());
      }
      return;
    case Kind::question: return on_question(peer, message);
    case Kind::answer: return on_answer(message);
  }
}

void Registry::on_opening(Peer& peer, Reader& message, std::vector<base::Fd> fds) {
  const auto role = message.get<Role>();
  std::string scope = message.text();
  const auto tag = message.get<Tag>();
  RemoteEnd remote;
  remote.id = message.get<std::uint64_t>();
  remote.slot_bytes = message.get<std::uint64_t>();
  remote.depth = message.get<int>();
  remote.contents = message.text();
  remote.key.bytes = message.blob();
  if (message.get<bool>()) {
    const auto of_slots = std::min(message.get<std::size_t>(), fds.size());  // the rest are of the lengths
    remote.lengths.emplace().bytes = message.blob();
    const auto first = std::make_move_iterator(fds.begin() + static_cast<std::ptrdiff_t>(of_slots));
    remote.lengths->received.assign(first, std::make_move_iterator(fds.end()));
    fds.resize(of_slots);
  }
  remote.key.received = std::move(fds);
  if (!message.over()) remote.failure = get_failure(message);
  if (peer.link != nullptr && !remote.key.bytes.empty()) peer.link->arrived(remote.key);  // a target has none
  if (peer.link != nullptr && remote.lengths) peer.link->arrived(*remote.lengths);
  const ChannelKey key = as_seen_here(peer, role, std::move(scope), tag);
  keys_there_.insert_or_assign({peer.rank, remote.id}, key);
  waiting_there_[key].push_back(std::move(remote));
  if (role == Role::target) admit(key);
  if (role == Role::sender) admit_line(key);
  match_oldest(key);
}

ChannelEnd* Registry::end_here(std::uint64_t id) const {
  const auto it = ends_.find(id);
  return it == ends_.end() ? nullptr : it->second;
}

ChannelEnd* Registry::end_of_peer(const Peer& peer, std::uint64_t remote_id) const {
  const auto it = by_peer_.find({peer.rank, remote_id});
  return it == by_peer_.end() ? nullptr : it->second;
}

RemoteEnd* Registry::waiting_end(const Peer& peer, std::uint64_t remote_id) {
  const auto key = keys_there_.find({peer.rank, remote_id});
  if (key == keys_there_.end()) return nullptr;
  const auto waiting = waiting_there_.find(key->second);
  if (waiting == waiting_there_.end()) return nullptr;
  const auto is = [&](const auto& end) { return end.id == remote_id; };
  const auto it = std::find_if(waiting->second.begin(), waiting->second.end(), is);
  return it == waiting->second.end() ? nullptr : &*it;
}

void Registry::on_closing(Peer& peer, Reader& message) {
  const auto remote_id = message.get<std::uint64_t>();
  const auto final = message.get<Final>();
  if (ChannelEnd* const end = end_of_peer(peer, remote_id)) {
    closing_.insert(end);
    return end->peer_closed(final);
  }
  if (RemoteEnd* const waiting = waiting_end(peer, remote_id)) {
    waiting->final = final;
    if (final.wanted > 0 && !waiting->failure) return;  // its streams still have work that needs this end
    waiting->key = {};                                  // its memory will never be mapped
    waiting->lengths.reset();
  }
  turn_away(peer, remote_id);
  send_let_go(peer, remote_id);
}

void Registry::on_failure(Peer& peer, Reader& message) {
  const auto remote_id = message.get<std::uint64_t>();
  auto [code, what] = get_failure(message);
  if (ChannelEnd* const end = end_of_peer(peer, remote_id)) {
    lose_target(*end, code, what);
    return end->peer_failed(code, what);
  }
  if (RemoteEnd* const waiting = waiting_end(peer, remote_id)) waiting->failure = {code, std::move(what)};
}

void Registry::fail_all(Code code, const std::string& why) {
  for (auto& [id, end] : ends_) end->fail(code, why);
}

void Registry::abort(const std::string& why) {
  failures_.cause_of(Code::aborted, why, {})->told = true;  // to whoever has called it
  fail_all(Code::aborted, why);
  peers_.say_last_words(why.substr(0, kMaxText));
}

void Registry::doom(const std::string& why) {
  doom_ = why;
  fail_all(Code::aborted, why);
}

void Registry::give_up_starving(const std::string& why) {
  for (auto& [id, end] : ends_) {
    if (Peers::starves(peer_of(*end)) && !end->connected()) end->fail(Code::out_of_resources, why);
  }
  peers_.give_up_starving(why);
}

void Registry::notice_failure(const ChannelEnd& end, Code code, const std::string& what, bool tell_peer) noexcept {
  failures_.notice({end.id, code, what, tell_peer});
  failing_.store(true);
  engine_.wake();
}

void Registry::send_failures() {
  for (const FailureNotice& notice : failures_.take_notices()) {
    const ChannelEnd* const end = end_here(notice.end);
    if (end == nullptr || !end->announced || !notice.tell_peer) continue;
    Writer writer(Kind::failure);
    put_failure(writer.put(end->id), *end, notice.code, notice.what);
    peers_.send(peer_of(*end), {writer.take(), {}});
  }
}

void Registry::send_way(const ChannelEnd& end, const std::string& obstacle) {
  Writer writer(Kind::way);
  writer.put(end.remote_id).text(obstacle.substr(0, kMaxText));
  peers_.send(peer_of(end), {writer.take(), {}});
}

void Registry::repeat_poison() {
  constexpr auto kPoisonEvery = std::chrono::milliseconds(10);
  if (!failing_.load() || Clock::now() < poison_due_) return;
  poison_due_ = Clock::now() + kPoisonEvery;
  failing_.store(false);  // before the scan: an end that fails during it is not forgotten
  bool any = false;
  for (auto& [id, end] : ends_) {
    if (!end->failed()) continue;
    end->poison_again();
    end->forget_refused_rings();
    any = true;
  }
  if (any) failing_.store(true);
}

int Registry::patience() {
  constexpr int kPoisonMs = 10;   // how often to repeat it
  constexpr int kKernelsMs = 10;  // how often to look at what kernels count
  constexpr int kClosingMs = 10;  // how often to check whether a GPU is lost whose work a closing end waits for
  constexpr int kLookMax = 16;
  int patience = -1;
  const auto at_most = [&](int limit) { patience = patience < 0 ? limit : std::min(patience, limit); };
  if (failing_.load()) at_most(kPoisonMs);
  for (const ChannelEnd* const end : streams_) {
    if (end->gpus() != nullptr) at_most(static_cast<int>(end->services().check_every.count()));
    if (end->gpus() != nullptr && end->closing.ours) at_most(kClosingMs);
    if (end->counted()) at_most(kKernelsMs);
  }
  if (!unmappings_.empty()) at_most(1);
  const auto waits = [](const ChannelEnd* end) { return end->beyond_final() || end->closing.waits(); };
  if (std::any_of(closing_.begin(), closing_.end(), waits)) {
    at_most(look_ms_);  // for work of our own streams, which may take long
    look_ms_ = std::min(2 * look_ms_, kLookMax);
  } else {
    look_ms_ = 1;
  }
  return patience;
}

void Registry::serve() {
  send_failures();
  advance_all();
  repeat_poison();
  send_questions();
  const auto now = Clock::now();
  for (ChannelEnd* const end : streams_) end->check_streams(now);
}

}  // namespace sluice::runtime
