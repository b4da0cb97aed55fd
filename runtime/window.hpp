// SPDX-License-Identifier: Apache-2.0
// The owner's side of windows: memory that peers reach at will.
#pragma once

#include <sluice/window.hpp>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/agent.hpp"
#include "runtime/channel.hpp"
#include "runtime/counter.hpp"
#include "runtime/notices.hpp"

namespace sluice::runtime {

/// 128 random bits.
using WindowId = std::array<std::byte, 16>;

/// Memory that was attached to a window. A target reaches it by an end of its own, which it opens by an offset.
struct Piece {
  std::uint64_t at = 0;  ///< offset in the window
  Slice memory;
  std::string scope;    ///< of the lines of its targets
  bool leaves = false;  ///< it is being detached; with the registry's mutex
  device::GpuId gpu{};  ///< if it is memory of a GPU
};

/// The end that an owner has for one target of a peer. Its memory is that of the window, or of a piece; it has no
/// verbs. It closes by itself when the peer closes its target, or dies.
class WindowEnd final : public ChannelEnd {
 public:
  /// `counters`: their words, which the peer raises. `turns`: the lock of the window; null: it has none. `piece`: null:
  /// of the window itself.
  WindowEnd(std::shared_ptr<const Services> services, Opening what, CounterWords counters, base::Word* turns,
            std::shared_ptr<const Piece> of_piece)
      : ChannelEnd(std::move(services), std::move(what)), piece(std::move(of_piece)), counters_(std::move(counters)),
        turns_(turns) {}

  const std::shared_ptr<const Piece> piece;

  /// The peer has died: no thread of it runs any more.
  void end_turn_of_peer() noexcept {
    if (turns_ != nullptr) backends::Turns::end_that_of(*turns_, opening.key.world_peer);
  }

  backends::Key open_landing(backends::Link& link, std::vector<backends::Signal> more) override;
  bool passed() const noexcept override { return true; }
  void refuse_enqueued() override {}
  base::EndCounts counts() const noexcept override { return {}; }
  std::string state() const override { return connected() ? "connected" : "not connected"; }

 private:
  std::uint64_t waits_for() const noexcept override { return 0; }
  std::pair<base::Lack, std::uint64_t> lacks(std::uint64_t epoch) const noexcept override {
    return {base::Lack::completion, epoch};
  }
  void reach_own(device::Driver&) override {}
  std::unique_ptr<backends::Put> prepare(backends::Link&, RemoteEnd&) override { return nullptr; }
  backends::AfterTurn poll() override { return backends::AfterTurn::nothing; }

  const CounterWords counters_;
  base::Word* const turns_;
};

/// A window as its owner opened it.
struct WindowOpening {
  std::string scope;  ///< that targets name: of its name, in the scope of its context
  std::string name;
  Rank rank = 0;            ///< of its owner, in its context
  std::vector<Rank> ranks;  ///< of the job, by rank of its context; empty: the same
  Slice memory;
  std::uint32_t counters = 0;
  AtomicsOf atomics{};
  std::uint64_t job = 0;  ///< tells handles of this job from those of others
};

/// Facts of a window for its targets. The owner sends them as the contents of its end.
struct WindowFacts {
  bool by_agent = false;  ///< an agent carries out the atomics
  bool of_gpu = false;    ///< memory of a GPU, in which kernels carry out the atomics
  bool in_turns = false;  ///< processors do, one rank at a time; the lock is behind the counters
  std::uint32_t counters = 0;
  std::uint64_t at = 0;  ///< offset of the piece
  device::GpuId gpu{};   ///< the GPU that has the memory
  std::string scope;     ///< of the lines: to the agent, and for notices
};
std::string text_of(const WindowFacts& facts);
WindowFacts facts_of(std::string_view text);

/// A window: memory, and the scopes that targets name.
class WindowCore {
 public:
  WindowCore(std::shared_ptr<const Services> services, WindowOpening what);

  const WindowOpening opening;
  const WindowId id;
  const std::string scope_of_handle;  ///< that targets name which were opened by a handle
  const base::Origin origin{};

  void close(std::optional<Timeout> timeout);
  bool close_within(base::Limit& limit);
  bool closed() const noexcept { return closed_; }
  /// @throws Error{Code::bad_argument} for bytes that are not inside
  WindowHandle handle(std::size_t offset, std::size_t bytes) const;
  std::string describe() const;
  AtomicsBy atomics() const noexcept;
  Error error(Code code, const std::string& what) const;
  /// Attaches memory at an offset; nothing: at the next that is free. Returns the offset. @throws Error
  std::uint64_t attach(std::optional<std::uint64_t> at, Slice memory);
  void detach(std::uint64_t at, std::optional<Timeout> timeout);
  /// @throws Error{Code::bad_argument} if the window has no counter of this number; {Code::misuse} once closed
  CounterEnd& counter(std::uint32_t number);
  /// @throws Error{Code::misuse} once closed
  NoticeEnd& notices();
  const Services& services() const noexcept { return *services_; }

  // For the registry, with its mutex.
  /// Makes the end for a target of a peer; `piece`: of these bytes.
  ChannelEnd& admit(const ChannelKey& key, const std::shared_ptr<const Piece>& piece = nullptr);
  /// The piece that has this byte; null: there is none.
  std::shared_ptr<const Piece> piece_at(std::uint64_t offset) const;
  /// A target has opened its line to the agent.
  void join_agent(const ChannelKey& key);
  /// A target, for which the end `of` was made, has failed: what it was to count, or to give notice of, never comes.
  void lose_target(const Opening& of, Code code, const std::string& what);
  /// Makes the end for the line of a target that gives notices.
  ChannelEnd& admit_notices(const ChannelKey& key);
  std::map<std::uint64_t, std::shared_ptr<WindowEnd>> ends;       ///< by number
  std::map<std::uint32_t, std::shared_ptr<CounterEnd>> counters;  ///< those that the owner has used
  std::map<std::uint64_t, std::shared_ptr<Piece>> pieces;         ///< by offset
  std::shared_ptr<NoticeEnd> notice_end;
  struct Loss {
    Code code{};
    std::string what;
    std::shared_ptr<Cause> cause;
  };
  std::optional<Loss> count_lost;  ///< why counters fail
  bool closing = false;            ///< by its user

 private:
  Opening opening_for(const ChannelKey& key, const Piece* piece = nullptr) const;
  bool all_map(const Slice& memory) const noexcept;
  AtomicsBy atomics_in(const Slice& memory) const noexcept;
  base::Word* turns() const noexcept;
  WindowFacts facts(const Piece* piece) const;
  void need_agent();
  std::uint64_t place_for(std::optional<std::uint64_t> at, std::uint64_t bytes) const;
  Opening opening_alone(std::uint32_t number, Role role) const;
  std::string what_holds_up() const;

  const std::shared_ptr<const Services> services_;
  const device::GpuId gpu_;  // if it is memory of a GPU
  const CounterWords counter_words_;
  const std::unique_ptr<std::atomic<CounterEnd*>[]> used_counters_;  // those of `counters`, for any thread
  std::unique_ptr<Agent> agent_;                                     // null: every rank maps the memory
  std::uint64_t attached_ = 0;  // how many pieces, those among them that were detached
  bool closed_ = false;
};

/// The scope of the window with this id, which is no name's.
std::string scope_of(const WindowId& id);
bool is_scope_of_handle(std::string_view scope);
/// The scope by which a target opens the piece that has the byte at `offset` of a window.
std::string scope_at(std::string_view scope_of_handle, std::uint64_t offset);
/// Of such a scope; nothing: it is another one.
struct PlaceInWindow {
  std::string scope;
  std::uint64_t offset = 0;
};
std::optional<PlaceInWindow> place_of(std::string_view scope);
bool is_scope_of_place(std::string_view scope) noexcept;

/// Why a window cannot be made of this memory; empty: it can.
std::string why_no_window(const Slice& memory);

/// A block of a window.
struct Block {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// The content of a WindowHandle.
struct BlockOfWindow {
  Rank world_rank = 0;
  std::string scope;
  Block block;
};

/// Reads a WindowHandle; or the text of the error.
std::variant<BlockOfWindow, std::string> read_handle(std::span<const std::byte> plain, std::uint64_t job);

}  // namespace sluice::runtime
