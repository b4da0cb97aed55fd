// SPDX-License-Identifier: Apache-2.0
// The owner's side of windows: memory that peers reach at will.
#pragma once

#include <sluice/window.hpp>

#include <array>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/agent.hpp"
#include "runtime/channel.hpp"

namespace sluice::runtime {

/// 128 random bits.
using WindowId = std::array<std::byte, 16>;

/// The end that an owner has for one target of a peer. Its memory is that of the window; it has no verbs. It closes by
/// itself when the peer closes its target, or dies.
class WindowEnd final : public ChannelEnd {
 public:
  using ChannelEnd::ChannelEnd;

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
};

/// A window as its owner opened it.
struct WindowOpening {
  std::string scope;  ///< that targets name: of its name, in the scope of its context
  std::string name;
  Rank rank = 0;            ///< of its owner, in its context
  std::vector<Rank> ranks;  ///< of the job, by rank of its context; empty: the same
  Slice memory;
  std::uint64_t job = 0;  ///< tells handles of this job from those of others
};

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
  Error error(Code code, const std::string& what) const;
  const Services& services() const noexcept { return *services_; }

  // For the registry, with its mutex.
  /// Makes the end for a target of a peer.
  ChannelEnd& admit(const ChannelKey& key);
  /// A target has opened its line to the agent.
  void join_agent(const ChannelKey& key);
  std::map<std::uint64_t, std::shared_ptr<WindowEnd>> ends;  ///< by number
  bool closing = false;                                      ///< by its user

 private:
  Opening opening_for(const ChannelKey& key) const;
  std::string users() const;

  const std::shared_ptr<const Services> services_;
  std::unique_ptr<Agent> agent_;  // null: processors carry atomics out, since every rank maps the memory
  bool closed_ = false;
};

/// How the atomics of a window are carried out. The owner sends it to a target as the contents of its end.
struct Atomics {
  bool by_agent = false;
  std::string scope;  ///< of the agent
};
std::string text_of(const Atomics& atomics);
Atomics atomics_of(std::string_view text);

/// The scope of the window with this id, which is no name's.
std::string scope_of(const WindowId& id);
bool is_scope_of_handle(std::string_view scope);

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
