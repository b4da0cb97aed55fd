// SPDX-License-Identifier: Apache-2.0
// The lengths of puts (ChannelOptions::lengths): beside each put goes a second one, of the epoch and its number of
// bytes, into memory of Sluice's at the receiver. It has a word of its own, and the receiver waits for the words of
// both, as it does for those of several rails: so neither has to follow the other, and any kind of put will do. An end
// without lengths has none of this, and its verbs know nothing of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backends/put.hpp"
#include "runtime/engine.hpp"

namespace sluice::runtime {

/// What the second put moves.
struct PutLength {
  base::Word epoch;
  base::Word bytes;
};

/// A PutLength for each slot of the receiver.
class Lengths {
 public:
  explicit Lengths(int depth);
  backends::Slots slots() const noexcept { return slots_; }
  PutLength& of(std::uint64_t epoch) const noexcept { return *reinterpret_cast<PutLength*>(slots_.at(epoch)); }

 private:
  device::Allocation memory_;
  backends::Slots slots_;
};

/// The receiver's side: where the peer's puts land, and beside that their lengths.
class LengthsLanding final : public backends::Landing {
 public:
  /// `bytes`: the landing of the puts. Returns the key of the lengths, too. @throws std::exception
  static std::pair<std::unique_ptr<LengthsLanding>, backends::Key> land(backends::Link& link,
                                                                        std::unique_ptr<backends::Landing> bytes,
                                                                        int depth, const backends::Signal& signal);

  /// Nothing: the length of another epoch is there.
  std::optional<std::size_t> bytes_of(std::uint64_t epoch) const noexcept;

  void decide(const std::string& obstacle) override;
  void reach_from(device::Driver& driver) override { bytes_->reach_from(driver); }
  void take(device::Lane lane, device::Watch& watch, std::uint64_t epoch) override;
  void help(std::uint64_t epoch) noexcept override { bytes_->help(epoch); }
  bool close() override;

 private:
  LengthsLanding(std::unique_ptr<backends::Landing> bytes, Lengths memory);
  void look_at_ways();

  std::unique_ptr<backends::Landing> bytes_;
  Lengths memory_;
  std::unique_ptr<backends::Landing> lengths_;  // before its memory
};

/// The sender's side: a put, and the one of its length, which counts for itself when it has completed.
class LengthsPut final : public backends::Put {
 public:
  /// `depth`: the receiver's. @throws std::exception if the memory of the lengths cannot be reached
  LengthsPut(device::Watch& end, std::unique_ptr<backends::Put> bytes, backends::Link& link, backends::Key key,
             int depth, std::size_t slot_bytes);

  // For the end, in the places where it does the same for the put itself.
  void watch(Engine& engine);
  void forget(Engine& engine);
  void reach(Engine& engine, device::Driver& driver);
  /// The end has failed, or the peer is dead: lengths that have not left move nothing. An end that is only shut needs
  /// them, since its puts have arrived.
  void shut() noexcept { watch_.shut_it(); }
  void forget_refused_rings(Engine& engine) noexcept;
  /// The GPU is lost: what it was given does not complete.
  void give_up() noexcept { given_up_ = true; }

  void enqueue(device::Lane lane, std::uint64_t epoch, backends::Range part) override;
  /// Each epoch by itself, since each has a length.
  void enqueue_all(device::Lane lane, std::uint64_t first, std::uint64_t last) override {
    for (std::uint64_t epoch = first; epoch <= last; ++epoch) enqueue(lane, epoch, {0, slot_bytes_});
  }
  void reach_from(device::Driver& driver) override { bytes_->reach_from(driver); }
  /// A kernel would have to do both.
  std::optional<backends::ByKernel> by_kernel(device::Driver*) override { return std::nullopt; }
  bool landed(std::uint64_t epoch) override;
  bool settled() override;
  backends::Held forget_peer() noexcept override;
  bool disarmed(bool key_closed) override;
  std::string describe() const override;

 private:
  /// Its put counts here, and fails the end.
  class Watch final : public device::Watch {
   public:
    explicit Watch(device::Watch& end) : device::Watch(end.done_parking), end_(end) { traced = end.traced; }
    void shut_it() noexcept { set_shut(); }
    void fail(Code code, const std::string& what) noexcept override { end_.fail(code, what); }
    base::Clock::duration waited(const device::Wait& wait, base::Clock::duration so_far, Timeout limit,
                                 base::WaitNote& note) noexcept override {
      return end_.waited(wait, so_far, limit, note);
    }

   private:
    device::Watch& end_;
  };

  void await_room(device::Lane lane, std::uint64_t epoch);
  void write_length(device::Lane lane, std::uint64_t epoch, std::size_t bytes) const;
  bool completed() const noexcept { return given_up_ || base::reached(watch_.done, last_); }

  device::Watch& end_;
  std::unique_ptr<backends::Put> bytes_;
  Watch watch_;
  Lengths source_;
  std::unique_ptr<backends::Put> lengths_;  // before what it uses
  const std::size_t slot_bytes_;
  device::Helper* helper_ = nullptr;
  std::atomic<std::uint64_t> last_{0};  // that was enqueued with a length
  std::atomic<bool> given_up_{false};
};

}  // namespace sluice::runtime
