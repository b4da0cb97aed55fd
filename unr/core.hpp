// SPDX-License-Identifier: Apache-2.0
// A plan of one rank: its messages, its signals, and the channels that carry them.
#pragma once

#include <sluice/channel.hpp>
#include <sluice/context.hpp>
#include <sluice/error.hpp>
#include <sluice/unr.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fork.hpp"
#include "base/limit.hpp"
#include "base/words.hpp"
#include "device/reach.hpp"
#include "unr/messages.hpp"
#include "unr/table.hpp"

namespace sluice::unr {

struct SignalCore {
  Core& plan;
  std::string name;
  int expected = 0;  ///< events, as the program says; 0: it does not
  int sends = 0;     ///< events that were recorded
  int receives = 0;
  std::uint64_t epoch = 1;
  bool triggered = false;             ///< as the host knows
  std::optional<Stream> waited_on;    ///< a wait is enqueued there
  std::vector<std::size_t> outgoing;  ///< routes that must be waited for
  std::vector<std::size_t> incoming;
};

/// Copies between memory of the program and the slot of a channel. Streams keep it until they have carried them out.
struct Packing {
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  Memory slot;
  std::vector<Slice> memory;     // kept
  std::vector<Copy> copies;      // between memory of the host
  std::vector<Copy> gpu_copies;  // the others
  struct GiveBack {
    void operator()(base::Progress* progress) const noexcept { base::give_back(*progress); }
  };
  /// The last epoch for which they were carried out.
  std::unique_ptr<base::Progress, GiveBack> done{&base::take_progress()};
};

/// A channel to a peer.
struct Outgoing {
  Sender end;
  std::shared_ptr<const Packing> packing;  ///< null: the slot is the program's memory
  Key first = 0;                           ///< of its messages
  std::size_t messages = 0;
  std::size_t bytes = 0;
  std::string signal;  ///< of the receiver
};

/// A channel from a peer.
struct Incoming {
  Receiver end;
  std::shared_ptr<const Packing> packing;
  Key first = 0;
  bool landed = false;              ///< in this epoch of its signal, or a wait for that is enqueued
  bool unpacked = false;            ///< or nothing is to be unpacked
  std::uint64_t last_unpacked = 0;  ///< epoch whose unpacking is enqueued
};

/// Text of the error of a put that the receiver's reset does not precede.
std::string early_put_text(Rank receiver, const std::string& signal, std::uint64_t round);

class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(Context& context, std::string name, const Options& options);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Recording.
  Signal add_signal(std::string_view name, int events);
  /// @param peer  -1: there is no message
  void add(bool is_send, const Slice& memory, std::vector<Piece> pieces, Rank peer, Key key, const Signal& signal);
  Key next_exchange();
  void check_recording() const;
  int size() const noexcept { return context_.size(); }
  Rank rank() const noexcept { return context_.rank(); }

  void commit(Stream stream, std::optional<Timeout> timeout);

  void start(Stream stream);
  void wait(SignalCore& signal, Stream stream);
  bool wait_for(SignalCore& signal, Timeout timeout);
  void reset(SignalCore& signal, Stream stream);

  std::uint64_t rounds() const noexcept { return started_; }
  std::size_t puts() const noexcept { return outgoing_.size(); }
  std::string describe() const;
  void close(std::optional<Timeout> timeout);
  void leave() noexcept;

  const base::Origin origin{};

 private:
  enum class State : std::uint8_t { recording, committed, broken, closed };

  /// The open channels.
  std::vector<runtime::ChannelEnd*> ends() const;

  // commit.cpp
  void check_events() const;
  void agree(Stream stream, base::Limit& limit, Timeout stated);
  std::vector<Entry> entries_of(const std::vector<Landing>& landings) const;
  std::vector<Rank> peers() const;
  /// `all`: the sends or the receives.
  void check_direction(Rank peer, bool is_send, const Ordered& all, const std::vector<Entry>& entries) const;
  void open_incoming(const std::vector<Landing>& landings, Stream stream);
  void open_outgoing(Rank peer, const std::vector<Entry>& entries, const Ordered& all, Stream stream);
  void open_put(Rank peer, const Entry& first, const std::vector<std::pair<std::size_t, std::size_t>>& parts,
                Stream stream);
  Packing new_packing(std::size_t bytes) const;
  void add_copies(Packing& packing, const Message& message, std::size_t offset, bool packs, Stream stream) const;
  void reach_from(Stream stream);
  ChannelOptions options_for(Stream stream) const;
  void limit_credit(Outgoing& out) const;

  // rounds.cpp
  void check_committed() const;
  void check_sends_reset() const;
  void check_credits();
  void put(Outgoing& out, Stream stream);
  void carry_out(runtime::ChannelEnd& end, Stream stream, const std::shared_ptr<const Packing>& packing,
                 std::uint64_t epoch) const;
  void unpack(Incoming& in, Stream stream) const;
  void check_put(const SignalCore& signal, const Outgoing& out) const;
  /// The channel refuses a stream here, before anything has changed. Its failure is no refusal.
  static void check_stream(const Incoming& in, Stream stream);
  void await_unpacked(const Incoming& in, base::Limit& limit) const;
  bool await_landed(Incoming& in, bool is_enqueued, base::Limit& limit) const;
  Error closed_by(Rank peer) const { return {Code::closed, rank(), peer, 0, 0, "the peer has closed its plan"}; }
  void check_started(const SignalCore& signal, const char* what) const;
  void check_complete(SignalCore& signal);
  const Message* first_send_of(const SignalCore& signal) const;
  /// Makes a call of a channel. Its error names the signal.
  template <class Call>
  auto named(const SignalCore& signal, Rank peer, Key key, Call call) const;

  Error error(Code code, const std::string& what, Rank peer = -1, Key key = 0, std::uint64_t epoch = 0) const;
  Error error(Code code, const SignalCore& signal, const std::string& what, Rank peer, Key key) const;

  Context context_;
  const std::string name_;
  const Options options_;
  const std::optional<Timeout> reset_within_;
  State state_ = State::recording;
  std::deque<SignalCore> signals_;
  std::vector<Message> sends_;
  std::vector<Message> receives_;
  std::uint32_t exchanges_ = 0;
  Scope scope_;
  device::Reached reached_;  // by streams of a GPU
  bool on_gpu_ = false;
  std::uint64_t started_ = 0;
  Stream started_on_;  // the last round
  std::deque<Outgoing> outgoing_;
  std::deque<Incoming> incoming_;
};

}  // namespace sluice::unr
