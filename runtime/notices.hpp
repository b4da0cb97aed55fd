// SPDX-License-Identifier: Apache-2.0
// Notices with tags: each target that gives some has a line to the owner of the window, which is the ring of that
// source. The owner matches them by source and tag (Belli and Hoefler, "Notified Access", IPDPS 2015).
#pragma once

#include <sluice/window.hpp>

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/channel.hpp"

namespace sluice::runtime {

/// The scope of the lines for notices of the window that has this scope for handles; and the reverse, which is empty
/// for another scope.
std::string scope_of_notices(const std::string& scope_of_handle);
std::string handle_of_notices(const std::string& scope);

/// A notice, as it travels.
struct NoticeRecord {
  static constexpr int kDepth = 64;  ///< of one target, not matched yet
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t tag = 0;
};

/// The target's side, on its lane.
class NoticeSender {
 public:
  /// `scope`: of the window, for those that have a handle. @throws Error
  NoticeSender(ChannelEnd& target, const Opening& of, const std::string& scope);
  /// The stream waits for the credit. @throws Error of the line
  void send(device::Lane lane, const NoticeRecord& record);
  /// Before it is used on the stream of a GPU. @throws Error
  void use_on(Stream stream);
  /// @throws Error if the line has failed
  void check() const;
  /// The order of the notices, as in backends::Put; null also if the line is not connected.
  const void* in_order() const noexcept;

 private:
  /// Calls `work(core)`, with the errors of the target.
  template <class Work>
  void as_target(Work work) const;

  Sender out_;
};

/// The owner's side: an end without a peer. Its epochs are not used.
class NoticeEnd final : public ChannelEnd {
 public:
  NoticeEnd(std::shared_ptr<const Services> services, Opening what);
  ~NoticeEnd() override;
  void begin_alone() { work_alone(); }

  /// For the registry, with its mutex: a target of `source` has failed.
  void lose(Rank source, Code code, const std::string& what);
  /// For the registry, with its mutex: makes the end for the line of a target, whose key this is as seen here.
  ChannelEnd& admit(const Opening& of, const ChannelKey& key);

  // For the owner of the window.
  /// Takes the oldest notices that match: `count`, or those that came within the limit.
  /// @throws the failure of a target that could have given one, if there is none
  std::vector<Notice> match(Rank source, Tag tag, std::size_t count, base::Limit& limit);
  /// Closes the lines. False: not within the limit; the caller may try again.
  bool close_lines(base::Limit& limit);

  bool passed() const noexcept override { return true; }
  void refuse_enqueued() override {}
  backends::Key open_landing(backends::Link&, std::vector<backends::Signal>) override { return {}; }
  base::EndCounts counts() const noexcept override { return {}; }
  std::string state() const override;

 private:
  struct Line {
    Receiver in;
    Rank source = 0;
  };
  struct Loss {
    Rank source = 0;
    Code code{};
    std::string what;
    bool told = false;
  };
  struct Seen {
    Notice notice;
    Line* line = nullptr;
  };

  std::uint64_t waits_for() const noexcept override { return 0; }
  std::pair<base::Lack, std::uint64_t> lacks(std::uint64_t) const noexcept override { return {base::Lack::notice, 0}; }
  void reach_own(device::Driver&) override {}
  backends::AfterTurn poll() override { return backends::AfterTurn::nothing; }

  void call() noexcept;
  void take_fresh();
  void take_from(Line& line);
  std::optional<Notice> take(Rank source, Tag tag);
  void throw_loss(Rank source);
  void drop_used_up();
  std::vector<base::Parking*> places() const;

  std::mutex mutex_;
  std::vector<Line> fresh_;  // lines of targets that the owner has not looked at
  std::vector<Loss> fresh_losses_;
  std::set<Rank> lost_;  // each is reported once
  std::atomic<bool> any_fresh_{false};
  backends::Signal call_;  // where `match` sleeps
  // For the owner's thread alone.
  std::list<Line> lines_;
  std::vector<Loss> losses_;
  std::list<Seen> seen_;  // not matched yet, in the order in which they were seen
};

}  // namespace sluice::runtime
