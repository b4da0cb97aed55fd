// SPDX-License-Identifier: Apache-2.0
// A collective of one rank: carries out its schedule on streams, again and again.
#pragma once

#include <sluice/channel.hpp>
#include <sluice/collectives.hpp>
#include <sluice/context.hpp>
#include <sluice/error.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fork.hpp"
#include "base/limit.hpp"
#include "collectives/schedule.hpp"
#include "device/host_event.hpp"

namespace sluice::runtime {
class SharedFate;
}

namespace sluice::collectives {

class Operation {
 public:
  /// Opens the channels of the schedule. `name`: with the kind of the collective.
  Operation(Context& context, std::string name, Schedule schedule, Progress progress);
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation();

  static Collective handle(std::unique_ptr<Operation> operation) { return Collective(std::move(operation)); }

  void start(Stream stream);
  void wait(Stream stream);
  bool test();
  void wait_connected(std::optional<Timeout> timeout);
  void close(std::optional<Timeout> timeout);
  std::string describe() const;

  const base::Origin origin{};

 private:
  enum class State : std::uint8_t { idle, started, broken, closing, closed };
  struct End {
    Sender sender;  // one of the two
    Receiver receiver;
    Slice landed;  // of the last message
    ChannelHandle& channel(bool sends) { return sends ? static_cast<ChannelHandle&>(sender) : receiver; }
  };

  void open(std::size_t index);
  Slice source_of(const Message& message) const;
  void check(State state, const char* verb) const;
  void check_stream(Stream stream) const;
  Error error(Code code, const std::string& what) const;

  void start_on_own(Stream stream);
  void finish_now();
  /// Behind the steps that a stream was given: when it has come here, it uses nothing of this collective any more.
  void enqueue_marker(Stream stream);
  bool await_markers(base::Limit& limit);
  bool shut(base::Limit& limit);
  /// Enqueues the steps up to `end` on the stream. An error in the middle breaks the collective, at all ranks.
  void enqueue(Stream stream, std::size_t end);
  void break_off(const char* why) noexcept;
  /// In program order: carries out steps up to `end`, as far as none blocks. True: all of them.
  bool go_on(std::size_t end);
  bool would_block(const Step& step);
  void carry_out(Stream stream, const Step& step);
  void compute(Stream stream, const Step& step);
  std::byte* at(const Place& place) const;

  /// What streams use until they have passed the last steps.
  struct Shared {
    Shared() = default;
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    ~Shared() { base::give_back(passed); }
    std::vector<Memory> scratches;
    std::vector<Memory> landings;                    // of messages that land aside
    base::Progress& passed = base::take_progress();  // how many markers
  };

  Context context_;
  Scope scope_;
  Scope ready_scope_;
  const std::string name_;
  const Schedule schedule_;
  const std::shared_ptr<runtime::SharedFate> fate_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::uint64_t markers_ = 0;  // that streams were given
  std::vector<End> ends_;
  std::unique_ptr<HostStream> own_;        // null: Progress::in_wait
  std::shared_ptr<HostEvent::Impl> done_;  // on `own_`
  State state_ = State::idle;
  Stream stream_;             // of the last start
  bool has_started_ = false;  // once
  std::size_t next_ = 0;
};

}  // namespace sluice::collectives
