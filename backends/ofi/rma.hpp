// SPDX-License-Identifier: Apache-2.0
// Puts that the engine posts: a write into the peer's memory, and the notice of it.
#pragma once

#include <list>

#include "backends/ofi/stage.hpp"
#include "backends/ofi/station.hpp"

namespace sluice::backends::ofi {

/// The number of a write of so many bytes is a write of its own, behind it.
bool number_goes_behind(const Manner& manner, std::size_t bytes) noexcept;

/// by_number.cpp and by_word.cpp have the parts of a put that depend on its notice.
class RmaPut final : public EnginePut, private Mover {
 public:
  /// A credit whose number travels with another write: it moves no bytes, and is for the same endpoint of the peer.
  /// With the station's mutex.
  class Rider {
   public:
    /// There is none.
    Rider() = default;
    /// One that is due and may travel with a write `to` the peer, if there is one. `but`: not this one.
    static Rider of(const Station& station, Destination& there, const Remote& to, const RmaPut* but = nullptr);

    bool is_there() const noexcept { return epoch_ != 0; }
    std::uint64_t number(const Manner& manner) const noexcept;
    /// It has left with this operation.
    void posted(Operation& with) const noexcept;
    /// The operation has failed, and so has the credit that left with it.
    static void suspect(const Destination& there, const Operation& with, const std::string& why);

   private:
    Rider(RmaPut* credit, std::uint64_t epoch) : credit_(credit), epoch_(epoch) {}

    RmaPut* credit_ = nullptr;
    std::uint64_t epoch_ = 0;
  };

  RmaPut(Station& station, Destination& there, const Slots& source, device::Watch& watch, const Target& place);
  ~RmaPut() override;

  bool post(std::size_t rail, std::uint64_t epoch, Range part) override;
  bool at_rest(std::size_t rail) override;
  bool landed(std::uint64_t epoch) override;
  bool settled() override;
  bool cumulative() const noexcept override;
  void heard() noexcept override;
  const void* in_order() const noexcept override {
    return station_.manner.ordered && lanes_.size() == 1 ? lanes_.front().route : nullptr;
  }
  std::string describe() const override;

 private:
  /// The part of an epoch, behind a header if the target is staged. `range`: a rail's share of that, or a piece of it.
  struct Message {
    std::uint64_t epoch = 0;
    Range part;
    Range range;
  };

  using Operations = std::vector<std::unique_ptr<Operation>>;

  /// One rail of the put.
  struct Lane {
    std::size_t number = 0;  // of the rail, among those of the put
    const Route* route = nullptr;
    Rail* rail = nullptr;
    std::shared_ptr<Registration> source;
    std::shared_ptr<Stage> stage;  // null: the provider reads the source itself
    std::shared_ptr<Registration> word_source;
    Remote word;
    Remote flushes;
    std::size_t piece_bytes = 0;  // at most, in one write
    Operations pieces;            // of an epoch, all but the last
    Message cut;                  // the rest of it, behind the pieces posted so far
    Operations operations;        // by epoch mod depth
    std::unique_ptr<Operation> word_write;
    std::uint64_t signal_due = 0;  // ordered: the epoch whose data went ahead of its signal
    std::vector<bool> early;       // by epoch mod depth: delivered before an earlier one, or ended after a failure
    std::uint64_t delivered = 0;   // epochs up to this one
    std::uint64_t writing = 0;     // the word that is on its way
    std::uint64_t written = 0;
    Refusals refused;
    std::unique_ptr<Operation> flush_write;
    bool flush_due = false;
    Refusals flush_refused;

    Operation& of(std::uint64_t epoch) const noexcept { return *operations[epoch % operations.size()]; }
  };

  static device::Extent extent_of(std::uint64_t& word) noexcept {
    return {reinterpret_cast<std::byte*>(&word), sizeof word, nullptr};
  }
  void ended(Operation& operation, const std::string& why_not) override;
  bool attend() override;
  bool rests() const override;
  bool uses(const Route& route) const noexcept override;
  std::size_t bytes_under_way() const override;
  void open(std::size_t number);
  bool post_pieces(Lane& lane, Message& message);
  bool post_last(Lane& lane, const Message& message);
  bool post_ahead(Lane& lane, const Message& message);
  void followed(Lane& lane, std::uint64_t epoch);
  Posted write(Lane& lane, const Message& message, std::optional<std::uint64_t> number, bool delivered,
               Operation& operation);
  void fill(Stage& stage, std::byte* room, const Message& message);
  Range share(std::size_t rail, std::size_t bytes) const noexcept;
  void give_up(Lane& lane);
  void orphan(const Lane& lane, std::unique_ptr<Operation>& operation);
  void orphan_posted(Lane& lane);
  std::unique_ptr<Operation> new_operation(const Lane& lane, bool piece = false);

  // by_number.cpp
  bool post_with_number(Lane& lane, const Message& message);
  bool may_ride(const Remote& to) const;
  bool is_due() const noexcept;

  // by_word.cpp
  bool has_words_to_follow() const noexcept { return place_.notice == Notice::word && !station_.manner.ordered; }
  bool post_then_word(Lane& lane, const Message& message);
  bool post_delivered(Lane& lane, const Message& message);
  Posted write_word(Lane& lane, std::uint64_t epoch, bool delivered);
  void arrived(Lane& lane, std::uint64_t epoch);
  bool write_words();
  void abandon_words(Lane& lane);

  // flush.cpp
  bool ask_landed(std::uint64_t epoch);
  bool post_flushes();
  bool post_flush(Lane& lane);
  void end_flush(const std::string& why_not);

  Slots source_;
  Target place_;
  std::vector<Lane> lanes_;
  std::uint64_t landed_ = 0;    // epochs up to this one have landed, as flushes have shown
  std::uint64_t flushing_ = 0;  // the same, once the flushes under way have completed
  std::uint64_t asked_ = 0;     // the same, as callers want to know it
  std::size_t flushes_left_ = 0;
  std::string flush_failure_;
  bool draining_ = false;               // a flush that fails fails the channel
  bool gave_up_ = false;                // nothing of it is under way any more, since the peer was lost
  bool due_ = false;                    // a credit whose bell was rung: it may ride
  std::list<RmaPut*> due_place_{this};  // list node of this put, here while it is not due: no turn allocates
  const std::list<RmaPut*>::iterator due_at_ = due_place_.begin();
};

}  // namespace sluice::backends::ofi
