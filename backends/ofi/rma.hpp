// SPDX-License-Identifier: Apache-2.0
// Puts that the engine posts: a write into the peer's memory, and the notice of it.
#pragma once

#include "backends/ofi/station.hpp"

namespace sluice::backends::ofi {

class RmaLanding final : public Landing {
 public:
  RmaLanding(Station& station, const Slots& target, std::span<const Signal> signals);
  ~RmaLanding() override;
  Key key() const override;
  bool direct() const noexcept override { return true; }
  bool closing_awaited() const noexcept override { return station_.manner.notice == Notice::counter; }
  void take(device::Lane, std::uint64_t) override {}
  std::string describe() const override;

 private:
  Station& station_;
  std::vector<Signal> signals_;
  std::vector<std::shared_ptr<Registration>> registered_;
  Place place_;
};

class RmaPut final : public EnginePut, private Owner {
 public:
  RmaPut(Station& station, const Routes& routes, const Slots& source, device::Watch& watch, const Place& place);
  ~RmaPut() override;

  bool post(std::size_t rail, std::uint64_t epoch, Range part) override;
  bool settled() override;
  std::string describe() const override;
  /// What is to be done between posts; returns whether something is left. Who has the mutex calls it.
  bool attend();

 private:
  /// One rail of the put.
  struct Lane {
    Rail* rail = nullptr;
    std::shared_ptr<Registration> source;
    std::shared_ptr<Registration> extra_source;
    Remote slots;
    Remote word;
    std::vector<Operation> operations;                                 // by epoch mod depth
    std::unique_ptr<WordWrite> extra = std::make_unique<WordWrite>();  // of the word, or of a flush
    std::uint64_t word_due = 0;   // ordered: the epoch whose word is still to be written
    std::vector<bool> early;      // by epoch mod depth: delivered before an earlier one, or ended after a failure
    std::uint64_t delivered = 0;  // and every epoch up to this one
    std::uint64_t writing = 0;    // the word that is on its way
    std::uint64_t written = 0;
    bool flush_due = false;

    bool owns(const Operation& operation) const noexcept {
      const auto* const first = operations.data();
      return &operation == extra.get() || (&operation >= first && &operation < first + operations.size());
    }
  };

  void ended(Operation& operation, const std::string& why_not) override;
  bool failed(void* context, const std::string& why) override;
  bool post_with_number(Lane& lane, std::uint64_t epoch, Range part);
  bool post_then_word(Lane& lane, std::uint64_t epoch, Range part);
  bool post_counted(Lane& lane, std::uint64_t epoch, Range part);
  bool post_delivered(Lane& lane, std::uint64_t epoch, Range part);
  Posted write(Lane& lane, std::uint64_t epoch, Range part, std::optional<std::uint64_t> number, bool delivered);
  Posted write_word(Lane& lane, std::uint64_t epoch, bool delivered);
  void arrived(Lane& lane, std::uint64_t epoch);
  Range share(std::size_t rail, Range part) const noexcept;
  bool write_words();
  void abandon(Lane& lane);
  void suspect(const std::string& why);
  void flush(Lane& lane);
  /// Unordered, and the signal is a second write.
  bool has_words_to_follow() const noexcept { return place_.notice == Notice::word && !station_.manner.ordered; }

  Station& station_;
  Slots source_;
  Place place_;
  std::vector<Lane> lanes_;
  std::string broken_;  // why a write failed, until it is known whether the peer is alive
  base::Clock::time_point verdict_{};
  std::uint64_t flushed_ = 0;   // all epochs up to this one are over at the peer
  std::uint64_t flushing_ = 0;  // what a flush under way will make of it
  std::size_t flushes_left_ = 0;
};

}  // namespace sluice::backends::ofi
