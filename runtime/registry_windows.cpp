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
  const auto found = windows_.find(key.scope);
  if (found != windows_.end() && !found->second->closing) return add(found->second->admit(key));
  if (is_scope_of_handle(key.scope)) refuse(key, Code::misuse, kNotOpen);
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

bool Registry::close(WindowCore& window, base::Limit& limit) {
  std::unique_lock lock(mutex_);
  window.closing = true;
  for (auto& [id, end] : window.ends) begin_closing(*end);
  engine_.wake();
  const auto drop_closed = [&] {
    std::vector<ChannelEnd*> ends;
    for (auto& [id, end] : window.ends) {
      if (ended_) end->closing.let_go();
      if (try_to_close(*end)) ends.push_back(end.get());
    }
    for (ChannelEnd* const end : ends) forget_window_end(*end);
    return window.ends.empty();
  };
  constexpr auto kPause = std::chrono::milliseconds(1);
  while (!drop_closed() && !limit.over())
    changed_.wait_until(lock, std::min(limit.next(), base::Clock::now() + kPause));
  if (!drop_closed()) return false;
  std::erase_if(windows_, [&](const auto& one) { return one.second.get() == &window; });
  return true;
}

/// An exception destroys the window: its targets lose it, and streams that wait for its counters go on.
void Registry::leave(WindowCore& window, const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, end] : window.ends) end->leave(why);
  for (auto& [number, counter] : window.counters) counter->leave_destroyed(why);
  window.notice_end->leave_destroyed(why);
}

void Registry::open_alone(WindowCore& window, const std::shared_ptr<CounterEnd>& counter) {
  const std::lock_guard lock(mutex_);
  add_alone(*counter);
  window.counters[counter->opening.key.tag] = counter;
  counter->begin_alone();
  if (window.count_lost) counter->lose(window.count_lost->code, window.count_lost->what, window.count_lost->cause);
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
  const auto window = windows_.find(of_target.opening.key.scope);
  if (window != windows_.end()) window->second->lose_target(of_target.opening, code, what);
}

/// The target has closed and accesses nothing any more, or is lost: earlier, the closing would shut the target.
void Registry::begin_to_part(ChannelEnd& end) {
  const Closing& closing = end.closing;
  const bool parts = closing.theirs && closing.exposed != Exposed::open;
  if (end.opening.key.role == Role::window && (parts || closing.peer_lost)) begin_closing(end);
}

void Registry::forget_window_end(ChannelEnd& end) {
  const auto window = windows_.find(end.opening.key.scope);
  forget(end);
  if (window != windows_.end()) window->second->ends.erase(end.id);
}

}  // namespace sluice::runtime
