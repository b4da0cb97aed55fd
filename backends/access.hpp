// SPDX-License-Identifier: Apache-2.0
// The kinds of access that backends share. A MappedAccess is carried out by the stream itself; an EngineAccess is
// posted by the engine when its bell was rung.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "backends/put.hpp"

namespace sluice::backends {

/// @throws std::invalid_argument for memory whose words would not be aligned.
void check_offered(const device::Extent& memory);

/// Which requests an access takes.
struct Bounds {
  std::size_t offered = 0;                                        ///< bytes of the peer's memory
  std::size_t at_once = std::numeric_limits<std::size_t>::max();  ///< most bytes of one request
  std::string no_atomics{};                                       ///< why there are none; empty: there are
};

/// Returns whether the request may be carried out. If not, the watch has failed with the reason.
bool taken(const Request& request, const Bounds& bounds, device::Watch& watch);

/// Bytes of a number.
constexpr std::size_t size_of(Number number) noexcept {
  return number == Number::int32 || number == Number::uint32 || number == Number::float32 ? 4 : 8;
}

/// Carries out an atomic on memory that is mapped here: the word, or the numbers, at `at`.
void change(std::byte* at, const Request& request) noexcept;

/// Fails a watch that was shut before a request was carried out: the peer has closed the memory.
void fail_shut(device::Watch& watch) noexcept;

/// Carried out by the stream.
class StreamAccess : public Access {
 public:
  StreamAccess(Bounds bounds, device::Watch& watch, std::string text)
      : Access(Fired::by_stream, std::move(text)), watch_(watch), bounds_(std::move(bounds)) {}

  void enqueue(device::Lane lane, std::uint64_t epoch, const Request& request) final;

 protected:
  device::Watch& watch_;

 private:
  virtual void carry_out(device::Lane lane, const Request& request) = 0;

  Bounds bounds_;
};

/// Copies, and the processor's own atomics, on memory that is mapped here.
class MappedAccess final : public StreamAccess {
 public:
  /// `offered` is the peer's, as mapped here.
  MappedAccess(const device::Extent& offered, device::Watch& watch, Mapped mapped, std::string text)
      : StreamAccess({offered.bytes}, watch, std::move(text)), offered_(offered), mapped_(std::move(mapped)) {}

  Mapped forget_peer() noexcept override { return std::exchange(mapped_, {}); }

 private:
  void carry_out(device::Lane lane, const Request& request) override;

  device::Extent offered_;
  Mapped mapped_;
};

/// Posted by the engine when its bell was rung.
class EngineAccess : public Access, public Posting {
 public:
  EngineAccess(Bounds bounds, int depth, device::Watch& watch, const std::string& text)
      : Access(Fired::by_engine, text, this), Posting(watch, depth, 1), bounds_(std::move(bounds)),
        requests_(static_cast<std::size_t>(depth)) {}

  void enqueue(device::Lane lane, std::uint64_t epoch, const Request& request) final;
  Mapped forget_peer() noexcept final { return {}; }
  Doorbell& bell() noexcept { return bell_; }
  bool awaited() const noexcept final { return bell_.awaited(); }

 private:
  /// Starts to carry the request out. False: busy, to be called again next turn. Ends with `over`, now or in `poll`.
  virtual bool post(std::uint64_t epoch, const Request& request) = 0;
  std::uint64_t rung() const noexcept final { return bell_.word.value.load(std::memory_order_acquire); }
  bool post_share(std::size_t, std::uint64_t epoch) final { return post(epoch, requests_[epoch % requests_.size()]); }
  void left_out(std::uint64_t) noexcept final { fail_shut(watch_); }
  bool at_rest(std::size_t) final { return true; }

  Bounds bounds_;
  std::vector<Request> requests_;  // of the outstanding epochs: written before the ring, read after it
  Doorbell bell_;
};

}  // namespace sluice::backends
