// SPDX-License-Identifier: Apache-2.0
// Parameters of a conformance test: its ranks, streams and memory, and the size of its
// slots.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/payload.hpp"
#include "tests/gpu_stream.hpp"
#include "tests/peers.hpp"

namespace sluice::test {

/// A backend and what its ranks are. A new backend joins the suite with a row of `grounds()`.
struct Ground {
  std::string name;     ///< in the names of tests
  std::string backend;  ///< Options::backends
  bool processes = false;
  bool polled = false;   ///< nothing tells its engine when to look, so it looks often
  bool slow = false;     ///< a hop takes milliseconds: fewer of them
  bool arms = false;     ///< its puts are a NIC's, while there are trigger entries
  bool network = false;  ///< opening and closing takes milliseconds
};

/// The backends proper, of the networks those that the filter of this run names; the wrapped ones (tests/faults); and
/// all, with those on other ranks than they are made for.
const std::vector<Ground>& grounds();
const std::vector<Ground>& wrapped_grounds();
const std::vector<Ground>& all_grounds();

struct Case {
  Ground ground = {};
  bool host = false;  ///< a HostStream; else program order
  bool cuda = false;  ///< with `host`: a stream of a GPU instead
  /// Work on a channel whose peer has not opened its end is left to the stream; else the host waits.
  bool opens_later() const { return host && !cuda; }
  bool user = false;  ///< malloc'ed memory; else Sluice's
  int ranks = 2;
  int depth = 1;
  std::size_t bytes = 64;  ///< per slot

  std::string name() const;
  Peers peers() const;
  /// How often to do something that is done `usual` times where a hop is quick.
  std::uint64_t times(std::uint64_t usual) const { return ground.slow ? std::min<std::uint64_t>(usual, 100) : usual; }
};

std::ostream& operator<<(std::ostream& out, const Case& one);

/// For INSTANTIATE_IN_ITS_RANKS.
struct CaseName {
  std::string operator()(const testing::TestParamInfo<Case>& info) const { return info.param.name(); }
};

/// Grounds x {program order, host stream, and, if the filter of this run names it, CUDA's stream}, with the defaults.
std::vector<Case> stream_cases();
/// Those x {Sluice's memory, malloc'ed}.
std::vector<Case> memory_cases();
/// For each case one with each of `depths`, and one with each of `sizes`.
std::vector<Case> with_depths(const std::vector<Case>& cases, const std::vector<int>& depths);
std::vector<Case> inline_only(std::vector<Case> cases);
/// The case with a host stream.
Case on_host(Case one);
std::vector<Case> with_sizes(const std::vector<Case>& cases, const std::vector<std::size_t>& sizes);
std::vector<Case> with_ranks(const std::vector<Case>& cases, const std::vector<int>& ranks);
/// These cases on each of these grounds.
std::vector<Case> on(const std::vector<Ground>& grounds, const std::vector<Case>& cases);

/// Empty: ranks may be killed over this ground in this run of the program. Else why not, as ./dev lists it.
std::string why_not_kill(const Ground& ground);

/// True if the filter of this run of the program may match tests named Full.
bool wants_full();
/// For INSTANTIATE_IN_ITS_RANKS(Full, ...): the cases that `make` returns, which are thousands. Runs of other tests,
/// which would spend more time on naming them than on their test, have none.
template <class F>
auto full_cases(F make) {
  return testing::ValuesIn(wants_full() ? make() : decltype(make())());
}

/// The stream of a case in one rank.
class Order {
 public:
  explicit Order(const Case& one) {
    if (one.cuda) {
      gpu_.emplace();
    } else if (one.host) {
      host_.emplace();
    }
  }

  Stream stream() {
    if (gpu_) return gpu_->stream();
    return host_ ? Stream::host(*host_) : Stream::program_order();
  }
  bool host() const { return host_.has_value() || gpu_.has_value(); }
  /// Null: it is no GPU's.
  GpuStream* gpu() { return gpu_ ? &*gpu_ : nullptr; }

  /// Calls `work()` in the order of the stream.
  template <class F>
  void run(F work) {
    if (gpu_) {
      gpu_->run(std::move(work));
    } else if (host_) {
      host_->run(std::move(work));
    } else {
      work();
    }
  }

 private:
  std::optional<HostStream> host_;
  std::optional<GpuStream> gpu_;
};

/// Poisoned memory of the case's kind.
class Buffer {
 public:
  Buffer(Context& context, const Case& one, std::size_t bytes);
  /// As many bytes as the slots of the case take.
  Buffer(Context& context, const Case& one) : Buffer(context, one, static_cast<std::size_t>(one.depth) * one.bytes) {}

  Slice all() const { return all_; }
  std::span<std::byte> bytes() const { return {all_.data(), all_.bytes()}; }

 private:
  std::unique_ptr<std::byte[]> users_;  // outlives the slice
  Slice all_;
};

/// One of two ranks, with its end of a channel from rank 0 to rank 1.
struct ChannelEnd {
  ChannelEnd(Context& context, const Case& one, ChannelOptions options = {});
  Stream stream() { return order.stream(); }

  const bool first;  ///< this is rank 0
  Order order;
  const Buffer buffer;
  Sender sender;      ///< of rank 0
  Receiver receiver;  ///< of rank 1
};

/// One of two ranks, with its ends of a channel each way.
struct BothEnds {
  BothEnds(Context& context, const Case& one);
  Stream stream() { return order.stream(); }

  const bool first;
  const Rank other;
  Order order;
  const Buffer source;
  const Buffer target;
  Sender sender;
  Receiver receiver;
};

/// The bytes of a slice, for fill, difference and poison.
inline std::span<std::byte> bytes_of(const Slice& slice) { return {slice.data(), slice.bytes()}; }

/// Asserts that every byte of the slot is that of the stamp; then poisons it.
void expect_and_poison(const Slice& slot, const Stamp& stamp);

/// True once the sender knows that the receiver has closed: no further put is accepted. Call it only after as many puts
/// as the receiver has slots, and with a source of more slots than that.
bool is_refused(Sender& sender, Stream stream);

/// The error that `call` throws; a failure of the test if it throws nothing, or something else than a sluice::Error.
template <class F>
std::optional<Error> error_of(const F& call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not a sluice::Error: " << error.what();
  }
  return std::nullopt;
}

/// Asserts that `call` throws an error of this code.
template <class F>
std::optional<Error> expect_code(Code code, const F& call, const char* file = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
  const testing::ScopedTrace trace(file, line, std::string("expected: ") + name(code));
  std::optional<Error> error = error_of(call);
  if (error) {
    EXPECT_EQ(name(error->code()), std::string(name(code))) << error->what();
  }
  return error;
}

/// Asserts that the peer soon reports that a channel has failed with this code.
inline void expect_reported(Context& context, Code code) {
  const auto end = Clock::now() + std::chrono::seconds(10);
  expect_code(code, [&] {
    for (; Clock::now() < end; std::this_thread::sleep_for(std::chrono::microseconds(200))) context.check();
  });
}

/// The resident memory of this process. A sanitizer keeps memory that was freed.
long resident_kib();

/// Holds for `time` that nothing changes: what must never happen does not happen in that time either.
template <class F>
void expect_for(std::chrono::milliseconds time, F holds) {
  const auto end = Clock::now() + time;
  do {
    ASSERT_TRUE(holds());
  } while (Clock::now() < end);
}

/// Waits for what must happen soon, up to `limit`.
template <class F>
void expect_within(std::chrono::milliseconds limit, F happened) {
  const auto end = Clock::now() + limit;
  while (!happened()) {
    ASSERT_LT(Clock::now(), end) << "it did not happen";
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace sluice::test
