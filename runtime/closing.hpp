// SPDX-License-Identifier: Apache-2.0
// How a channel closes. Each end writes into the memory of the other, a sender its puts and a receiver its credits, so
// closing is two half-closes, as in TCP. This file decides; the registry observes and acts (README.md draws it).
#pragma once

#include <cstdint>
#include <optional>

namespace sluice::runtime {

/// The last epochs of an end, which it announces when its user closes it.
struct Final {
  std::uint64_t wanted = 0;    ///< a sender's last put, a receiver's last wait
  std::uint64_t credited = 0;  ///< a sender's last put, a receiver's last release
};

/// The writes of this end into the memory of its peer.
enum class Writing : std::uint8_t {
  active,
  shut,     ///< no write begins any more; some may be under way
  settled,  ///< all writes are visible at the peer, and `let_go` was sent; unfired armed puts may remain
  released  ///< nothing of this end can write there any more
};

/// The memory of this end, which the peer writes into.
enum class Exposed : std::uint8_t {
  open,
  quiet,  ///< the peer has settled
  closed  ///< and its key no longer opens this memory
};

enum class Event : std::uint8_t {
  finished,  ///< no more writes are needed: this end is closed and its work has completed, or the closed peer has all
  visible,   ///< every write is visible at the peer
  disarmed,  ///< this end is closed, and no armed put remains
  let_go,    ///< the peer has settled, or is dead
  arrived    ///< what the peer wrote before that has arrived
};

enum class Action : std::uint8_t {
  none,
  shut,      ///< make later writes move nothing
  let_go,    ///< give up what is mapped of the peer, and tell it
  close_key  ///< end the peer's access, and tell it where it may have armed puts
};

template <class State>
struct Step {
  State state;
  Action action = Action::none;
};

constexpr Step<Writing> step(Writing state, Event event) noexcept {
  if (state == Writing::active && event == Event::finished) return {Writing::shut, Action::shut};
  if (state == Writing::shut && event == Event::visible) return {Writing::settled, Action::let_go};
  if (state == Writing::settled && event == Event::disarmed) return {Writing::released};
  return {state};
}

constexpr Step<Exposed> step(Exposed state, Event event) noexcept {
  if (state == Exposed::open && event == Event::let_go) return {Exposed::quiet};
  if (state == Exposed::quiet && event == Event::arrived) return {Exposed::closed, Action::close_key};
  return {state};
}

/// The closing of one end.
struct Closing {
  std::optional<Final> ours;    ///< this end is closed by its user
  std::optional<Final> theirs;  ///< the peer's end is
  Writing writing = Writing::active;
  Exposed exposed = Exposed::open;
  bool key_closed_there = false;  ///< the peer has closed its key
  bool peer_lost = false;

  /// The peer writes nothing more here.
  void let_go() noexcept { exposed = step(exposed, Event::let_go).state; }
  /// A dead peer needs no writes, and has none under way.
  void lose_peer() noexcept {
    peer_lost = true;
    let_go();
  }
  /// `let_go` was sent to the peer.
  bool told() const noexcept { return writing >= Writing::settled; }
  /// A next step depends on work that nobody reports.
  bool waits() const noexcept {
    const Writing last = ours ? Writing::released : theirs ? Writing::settled : Writing::active;
    return writing < last || exposed == Exposed::quiet;
  }
  bool over() const noexcept { return ours && writing == Writing::released && exposed == Exposed::closed; }
};

/// Takes every step that `end` is ready for. An End says:
///   passed()            all its enqueued work has completed
///   written()           of that, what writes into the peer's memory
///   has_written(final)  the writes that a peer closed with `final` still needs have completed
///   has_arrived(final)  what the peer has written, closed with `final`, has arrived here
///   settled()           every completed write is visible at the peer; called again until it returns true
///   disarmed(closed)    no armed put remains; one can be disposed of once the peer has closed its key. Asked once this
///                       end is closed, and all its work has completed
/// and does: shut(), let_go(), close_key().
template <class End>
void advance(Closing& closing, End& end) {
  const auto take = [&](auto& half, Event event) {
    const auto next = step(half, event);
    half = next.state;
    switch (next.action) {
      case Action::none: break;
      case Action::shut: return end.shut();
      case Action::let_go: return end.let_go();
      case Action::close_key: return end.close_key();
    }
  };
  const bool all_done = closing.ours && end.passed();
  if (closing.writing == Writing::active && (all_done || (closing.theirs && end.has_written(*closing.theirs))))
    take(closing.writing, Event::finished);
  if (closing.writing == Writing::shut && end.written() && (closing.peer_lost || end.settled()))
    take(closing.writing, Event::visible);
  if (closing.writing == Writing::settled &&
      (closing.peer_lost || (all_done && end.disarmed(closing.key_closed_there))))
    take(closing.writing, Event::disarmed);
  const bool needs_all = closing.theirs && !closing.ours;
  if (closing.exposed == Exposed::quiet && end.passed() && (!needs_all || end.has_arrived(*closing.theirs)))
    take(closing.exposed, Event::arrived);
}

/// Once nothing uses the end any more: its memory may be freed.
template <class End>
bool is_closed(const Closing& closing, const End& end) {
  return closing.over() && end.passed();
}

}  // namespace sluice::runtime
