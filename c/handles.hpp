// SPDX-License-Identifier: Apache-2.0
// The objects of the handles of C.
#pragma once

#include "c/guard.hpp"

#include <sluice/c/stream.hpp>
#include <sluice/sluice.hpp>

#include <cstddef>
#include <map>
#include <optional>
#include <utility>

struct sluice_context {
  sluice::Context context;
  bool of_body = false;  ///< not the caller's to free
};

struct sluice_memory {
  sluice::Region region;  // a Memory, too: it adds nothing
};

struct sluice_host_stream {
  sluice::HostStream stream;
  const void* maker;  ///< `sluice::c::this_copy` of the copy of the library that made it
};

/// The part that senders, receivers and targets have in common.
struct sluice_channel {
  sluice::ChannelHandle* handle = nullptr;
};

namespace sluice::c {

template <class Handle>
struct End : sluice_channel {
  explicit End(Handle opened) : end(std::move(opened)) { handle = &end; }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() = default;

  Handle end;
};

}  // namespace sluice::c

struct sluice_sender : sluice::c::End<sluice::Sender> {
  using End::End;
};

struct sluice_receiver : sluice::c::End<sluice::Receiver> {
  using End::End;
};

/// Opened by the program, or of a CollectiveWindow, which keeps it.
struct sluice_target : sluice_channel {
  explicit sluice_target(sluice::Target opened) : own(std::move(opened)), target(&*own) { handle = target; }
  explicit sluice_target(sluice::Target* kept) : target(kept) { handle = target; }
  sluice_target(const sluice_target&) = delete;
  sluice_target& operator=(const sluice_target&) = delete;
  ~sluice_target() = default;

  std::optional<sluice::Target> own;
  sluice::Target* target;
};

struct sluice_wait_any {
  sluice::WaitAny wait_any;
};

struct sluice_ticket {
  sluice::WaitAny::Ticket ticket;
};

struct sluice_plan {
  sluice::Plan plan;
};

struct sluice_window {
  sluice::Window window;
};

struct sluice_collective_window {
  sluice::CollectiveWindow window;
  std::map<sluice::Rank, sluice_target> targets;  // handles of its targets, as long as it is open
};

namespace sluice::c {

inline Context& at(sluice_context* context) { return c::at(context, "context").context; }
inline HostStream& at(sluice_host_stream* stream) { return c::at(stream, "host stream").stream; }
inline ChannelHandle& at(const sluice_channel* channel) { return *c::at(channel, "channel").handle; }
inline Sender& at(sluice_sender* sender) { return c::at(sender, "sender").end; }
inline const Sender& at(const sluice_sender* sender) { return c::at(sender, "sender").end; }
inline Receiver& at(sluice_receiver* receiver) { return c::at(receiver, "receiver").end; }
inline const Receiver& at(const sluice_receiver* receiver) { return c::at(receiver, "receiver").end; }
inline Target& at(sluice_target* target) { return *c::at(target, "target").target; }
inline const Target& at(const sluice_target* target) { return *c::at(target, "target").target; }
inline WaitAny& at(sluice_wait_any* wait_any) { return c::at(wait_any, "wait_any").wait_any; }
inline const WaitAny::Ticket& at(const sluice_ticket* ticket) { return c::at(ticket, "ticket").ticket; }
inline Plan& at(sluice_plan* plan) { return c::at(plan, "plan").plan; }
inline const Plan& at(const sluice_plan* plan) { return c::at(plan, "plan").plan; }
inline Window& at(sluice_window* window) { return c::at(window, "window").window; }
inline const Window& at(const sluice_window* window) { return c::at(window, "window").window; }
inline CollectiveWindow& at(sluice_collective_window* window) { return c::at(window, "collective window").window; }

/// A piece of memory. No memory and 0 bytes are the empty slice, for slots without bytes.
Slice slice_of(const sluice_memory* memory, std::size_t offset, std::size_t bytes);

using sluice::stream_of;

/// Identifies this copy of the library: a process may have several, if plug-ins or libraries link the archive.
const void* this_copy() noexcept;

/// True if `sluice_host_stream_create` of this copy has made the stream, and it was not freed. Any thread.
[[gnu::visibility("default")]] bool is_host_stream(const void* handle);

}  // namespace sluice::c
