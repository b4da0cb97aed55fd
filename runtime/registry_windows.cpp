// SPDX-License-Identifier: Apache-2.0
// How targets find windows. A target is an end with a number of its own as its tag; when it names a window that is
// open, the registry of the owner makes the end that matches it.
#include <algorithm>

#include "runtime/engine.hpp"
#include "runtime/registry.hpp"
#include "runtime/report.hpp"
#include "runtime/window.hpp"

namespace sluice::runtime {

namespace {

constexpr const char* kNotOpen =
    "the handle is of no window that is open there: it was closed, or the handle is not genuine";

}  // namespace

void Registry::open(const std::shared_ptr<WindowCore>& window) {
  const std::lock_guard lock(mutex_);
  if (ended_) throw window->error(Code::misuse, "this rank has ended");
  if (!doom_.empty()) throw window->error(Code::aborted, doom_);
  if (windows_.contains(window->opening.scope))
    throw window->error(Code::misuse, "a window of this name is open already");
  windows_[window->opening.scope] = windows_[window->scope_of_handle] = window;
  add_alone(*window->notice_end);
  window->notice_end->begin_alone();
  std::vector<ChannelKey> waiting;
  for (const auto& [key, ends] : waiting_there_) {
    if (key.role == Role::window && key.scope == window->opening.scope) waiting.push_back(key);
  }
  for (const ChannelKey& key : waiting) add(window->admit(key));
  engine_.wake();
}

/// Makes the end for a target whose opening has arrived, if its window is open. A window with a name may be opened
/// later; one that a handle names was open.
void Registry::admit(const ChannelKey& key) {
  if (const auto place = place_of(key.scope)) return admit_at(key, place->scope, place->offset);
  const auto found = windows_.find(key.scope);
  if (found != windows_.end() && !found->second->closing) return add(found->second->admit(key));
  if (is_scope_of_handle(key.scope)) refuse(key, Code::misuse, kNotOpen);
}

/// A target wants to reach the piece of a window that has the byte at `offset`.
void Registry::admit_at(const ChannelKey& key, const std::string& scope, std::uint64_t offset) {
  const auto found = windows_.find(scope);
  if (found == windows_.end() || found->second->closing)
    return refuse(key, Code::closed, "the owner has closed the window");
  const auto piece = found->second->piece_at(offset);
  if (piece == nullptr) {
    return refuse(key, Code::bad_argument, "no memory of the window is attached at offset " + std::to_string(offset));
  }
  add(found->second->admit(key, piece));
}

/// The window that this end is of; null: it is closed.
WindowCore* Registry::window_of(const ChannelEnd& end) const {
  const std::string& scope = end.opening.key.scope;
  const auto place = place_of(scope);
  const auto found = windows_.find(place ? place->scope : scope);
  return found == windows_.end() ? nullptr : found->second.get();
}

/// A target has opened its line to the notices of a window, or to its agent.
void Registry::admit_line(const ChannelKey& key) {
  if (const std::string handle = handle_of_notices(key.scope); !handle.empty()) {
    const auto window = windows_.find(handle);
    if (window == windows_.end()) return refuse(key, Code::misuse, kNotOpen);
    try {
      return add(window->second->admit_notices(key));
    } catch (const std::exception& reason) {
      return refuse(key, Code::out_of_resources, std::string("no memory for notices there: ") + reason.what());
    }
  }
  if (is_scope_of_handle(key.scope)) join_agent(key);
}

void Registry::join_agent(const ChannelKey& key) {
  const auto found = windows_.find(key.scope);
  if (found == windows_.end()) return refuse(key, Code::misuse, kNotOpen);
  found->second->join_agent(key);
}

void Registry::refuse(const ChannelKey& key, Code code, const std::string& why) {
  Writer message(Kind::refusal);
  message.put(waiting_there_[key].front().id).put(code);
  message.text(why);
  peers_.send(peers_.at(key.world_peer), {message.take(), {}});
  keys_there_.erase({key.world_peer, waiting_there_[key].front().id});
  waiting_there_.erase(key);
}

/// A target that is matched with no end has closed.
void Registry::turn_away(const Peer& peer, std::uint64_t remote_id) {
  const auto found = keys_there_.find({peer.rank, remote_id});
  if (found == keys_there_.end() || found->second.role != Role::window) return;
  const ChannelKey key = found->second;
  waiting_there_.erase(key);
  keys_there_.erase(found);
  const auto here = waiting_here_.find(key);  // made, and not announced since the link is not ready
  if (here == waiting_here_.end()) return;
  if (ChannelEnd* const end = end_here(here->second.front())) {
    end->closing.let_go();
    begin_closing(*end);
  }
}

/// Closes the ends of the window for which `which(end)` is true. False: not within the limit.
template <class Which>
bool Registry::close_ends(WindowCore& window, std::unique_lock<std::mutex>& lock, base::Limit& limit, Which which) {
  for (auto& [id, end] : window.ends) {
    if (which(*end)) begin_closing(*end);
  }
  engine_.wake();
  const auto drop_closed = [&] {
    std::vector<ChannelEnd*> closed;
    bool all = true;
    for (auto& [id, end] : window.ends) {
      if (!which(*end)) continue;
      if (ended_) end->closing.let_go();
      if (try_to_close(*end)) {
        closed.push_back(end.get());
      } else {
        all = false;
      }
    }
    for (ChannelEnd* const end : closed) forget_window_end(*end);
    return all;
  };
  constexpr auto kPause = std::chrono::milliseconds(1);
  while (!drop_closed() && !limit.over())
    changed_.wait_until(lock, std::min(limit.next(), base::Clock::now() + kPause));
  return drop_closed();
}

bool Registry::close(WindowCore& window, base::Limit& limit) {
  std::unique_lock lock(mutex_);
  window.closing = true;
  if (!close_ends(window, lock, limit, [](const WindowEnd&) { return true; })) return false;
  std::erase_if(windows_, [&](const auto& one) { return one.second.get() == &window; });
  window.pieces.clear();
  return true;
}

void Registry::add_piece(const WindowCore& window, const Piece& piece) {
  windows_[piece.scope] = windows_.at(window.scope_of_handle);
}

bool Registry::detach(WindowCore& window, Piece& piece, base::Limit& limit) {
  std::unique_lock lock(mutex_);
  piece.leaves = true;
  if (!close_ends(window, lock, limit, [&](const WindowEnd& end) { return end.piece.get() == &piece; })) return false;
  windows_.erase(piece.scope);
  window.pieces.erase(piece.at);
  return true;
}

/// An exception destroys the window: its targets lose it, and streams that wait for its counters go on.
void Registry::leave(WindowCore& window, const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, end] : window.ends) end->leave(why);
  for (auto& [number, counter] : window.counters) counter->leave_destroyed(why);
  window.notice_end->leave_destroyed(why);
}

CounterEnd& Registry::open_alone(WindowCore& window, const std::shared_ptr<CounterEnd>& counter) {
  const std::lock_guard lock(mutex_);
  const auto found = window.counters.find(counter->opening.key.tag);
  if (found != window.counters.end()) return *found->second;
  add_alone(*counter);
  window.counters[counter->opening.key.tag] = counter;
  counter->begin_alone();
  if (window.count_lost) counter->lose(window.count_lost->code, window.count_lost->what, window.count_lost->cause);
  return *counter;
}

void Registry::add_alone(ChannelEnd& end) {
  if (ended_) throw end.error(Code::misuse, 0, "this rank has ended");
  ends_[end.id] = &end;
  ++report().ends;
  end.closing.let_go();
  if (!doom_.empty()) end.fail(Code::aborted, doom_);
}

/// The target of a peer has failed, for which this end was made.
void Registry::lose_target(const ChannelEnd& of_target, Code code, const std::string& what) {
  if (of_target.opening.key.role != Role::window) return;
  const auto& piece = static_cast<const WindowEnd&>(of_target).piece;
  if (piece != nullptr && piece->leaves) return;  // what the owner has detached
  if (WindowCore* const window = window_of(of_target)) window->lose_target(of_target.opening, code, what);
}

/// The target has closed and accesses nothing any more, or is lost: earlier, the closing would shut the target.
void Registry::begin_to_part(ChannelEnd& end) {
  const Closing& closing = end.closing;
  const bool parts = closing.theirs && closing.exposed != Exposed::open;
  if (end.opening.key.role == Role::window && (parts || closing.peer_lost)) begin_closing(end);
}

void Registry::forget_window_end(ChannelEnd& end) {
  WindowCore* const window = window_of(end);
  forget(end);
  if (window != nullptr) window->ends.erase(end.id);
}

}  // namespace sluice::runtime
