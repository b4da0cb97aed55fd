// SPDX-License-Identifier: Apache-2.0
// The messages of one direction to or from one peer: those posted and not yet moved, and the channels that move them.
#pragma once

#include <sluice/context.hpp>
#include <sluice/kokkos/ends.hpp>
#include <sluice/kokkos/queue.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace sluice::kokkos::detail {

/// A posted message. `move` enqueues its packing into a slot, or its unpacking.
struct Posted : sluice::detail::NonCopyable {
  explicit Posted(std::size_t size) : bytes(size) {}
  virtual ~Posted() = default;
  virtual void move(std::byte* slot) = 0;
  /// Releases what `move` holds: a View, for example.
  virtual void forget() noexcept = 0;

  void complete(std::exception_ptr why = nullptr) {
    completed = true;
    failure = std::move(why);
    forget();
  }

  std::size_t bytes;
  bool completed = false;
  std::exception_ptr failure = nullptr;
};

template <class Move>
struct PostedBy final : Posted {
  PostedBy(std::size_t size, Move how) : Posted(size), call(std::move(how)) {}
  void move(std::byte* slot) override { (*call)(slot); }
  void forget() noexcept override { call.reset(); }

  std::optional<Move> call;
};

/// The channels of one scope to a peer (End is Sender) or from it (Receiver), and the messages that wait for them. A
/// message that does not fit into the last channel's slots gets a new channel with larger ones. Both ends see the same
/// sizes in the same order, and so open the same channels without an agreement. Earlier channels stay open, as messages
/// may still be in them; together they are no larger than the last one.
template <class Exec, class End>
class Direction {
 public:
  struct Channel {
    Slice slots;
    End end;
  };
  struct Waiting {
    Channel* channel;
    std::shared_ptr<Posted> message;
  };

  Direction(Context context, const std::string& name, Rank peer, int depth)
      : context_(std::move(context)), name_(name), scope_(context_.scope(name)), peer_(peer), depth_(depth) {}

  /// Appends a message, which `contents()` describes alike at both ends; opens a channel for it if none is large
  /// enough.
  /// @throws Error that failed this direction before, or of opening the channel
  void post(std::shared_ptr<Posted> message, const Queue<Exec>& queue, const std::function<std::string()>& contents) {
    if (failure) std::rethrow_exception(failure);
    if (message->bytes > capacity_) open_channel(message->bytes, queue, contents);
    waiting.push_back({&channels_.back(), std::move(message)});
  }
  End& next_end() { return waiting.front().channel->end; }

  std::deque<Waiting> waiting;
  std::exception_ptr failure = nullptr;

 private:
  static constexpr std::size_t kSmallest = 1024;

  void open_channel(std::size_t bytes, const Queue<Exec>& queue, const std::function<std::string()>& contents) {
    const std::size_t capacity = std::bit_ceil(std::max(bytes, kSmallest));
    Slice slots = context_.allocate(capacity * depth_, kSpaceOf<Exec>, device_of(queue.exec())).all();
    const std::string first = "first message: " + (contents ? contents() : std::to_string(bytes) + " bytes");
    const ChannelOptions options{.depth = depth_, .stream = queue.stream(), .contents = first};
    const auto tag = static_cast<Tag>(channels_.size());
    End end = open_named<End>("set of messages", name_, scope_, peer_, tag, slots, options);
    channels_.push_back({std::move(slots), std::move(end)});
    capacity_ = capacity;
  }

  Context context_;
  std::string name_;
  Scope scope_;
  Rank peer_;
  int depth_;
  std::size_t capacity_ = 0;
  std::deque<Channel> channels_;  // a deque, as `waiting` points into it
};

}  // namespace sluice::kokkos::detail
