// SPDX-License-Identifier: Apache-2.0
// A collective of one rank: carries out its schedule on streams, again and again.
#pragma once

#include <sluice/channel.hpp>
#include <sluice/collectives.hpp>
#include <sluice/context.hpp>
#include <sluice/error.hpp>
#include <sluice/plan.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fork.hpp"
#include "base/limit.hpp"
#include "collectives/schedule.hpp"
#include "device/gpu.hpp"
#include "device/host_event.hpp"
#include "device/reach.hpp"

namespace sluice::runtime {
class ChannelEnd;
class SharedFate;
}  // namespace sluice::runtime

namespace sluice::collectives {

class Operation {
 public:
  /// Opens the channels of the schedule. `name`: with the kind of the collective.
  Operation(Context& context, std::string name, Schedule schedule, Progress progress);
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation();

  static Collective handle(std::unique_ptr<Operation> operation) { return Collective(std::move(operation)); }
  static Operation* of(const Collective& collective) noexcept { return collective.operation_.get(); }

  void start(Stream stream);
  void wait(Stream stream);
  bool test();
  // On a GPU's stream, between `start` and `wait`: for a thread that watches what the steps wait for.
  /// True if `advance` carries out a step, has none left, or throws.
  bool can_advance() noexcept;
  /// Enqueues the next steps on `stream`, which has reached the start, up to one that waits for a peer. True: all of
  /// them; the stream of `wait` then waits for `stream`.
  bool advance(Stream stream);
  /// The end whose next event lets the next `test` or `advance` go on; null: it is not known.
  const ChannelHandle* awaited() noexcept;
  void wait_connected(std::optional<Timeout> timeout);
  void close(std::optional<Timeout> timeout);
  std::string describe() const;

  const base::Origin origin{};

 private:
  /// `tested`: complete, as a test has found, or enqueued by `advance`, whose stream the
  /// caller orders before what follows; a `wait` may follow.
  enum class State : std::uint8_t { idle, started, tested, broken, closing, closed };
  struct End {
    Sender sender;  // one of the two
    Receiver receiver;
    Slice landed;  // of the last message
    Plan plan;     // on a GPU's stream: of this end alone, since a graph takes the verbs of plans
    ChannelHandle& channel(bool sends) { return sends ? static_cast<ChannelHandle&>(sender) : receiver; }
  };

  void open(std::size_t index);
  runtime::ChannelEnd& end_of(std::size_t message);
  Slice source_of(const Message& message) const;
  void check(State state, const char* verb) const;
  void check_stream(Stream stream) const;
  /// Memory for landings and in between: of a GPU, if the program's is.
  Memory allocate(std::size_t bytes);
  bool combines_numbers() const noexcept;
  /// Before anything waits on the stream: everything is mapped, and kernels are loaded. If it throws, nothing was
  /// started.
  void prepare_for_gpu(Stream stream);
  void map_for_gpu(Stream stream, int gpu);
  /// The stream's capture is `now`; 0: it captures nothing. One that was under way before has ended.
  void note_capture(Stream stream, std::uint64_t now);
  void end_capture();
  void leave_capture() noexcept;
  /// The graph that is captured lacks a step.
  [[noreturn]] void lose_graph(const char* why);
  void reach_from(device::Driver& driver, int gpu);
  Error error(Code code, const std::string& what) const;

  void start_on_own(Stream stream);
  void finish_now();
  /// Enqueues a marker behind the steps. A stream that has reached it reads and writes no memory of this collective for
  /// copies and combinations; what verbs use, channels await when they close.
  void enqueue_marker(Stream stream);
  void mark_behind_error(Stream stream) noexcept;
  bool await_markers(base::Limit& limit);
  /// @throws Error{Code::timeout}, which names an end that has not closed. `stated`: the limit as the error states it.
  void shut(base::Limit& limit, Timeout stated);
  /// Enqueues the steps of `start` or `wait` on the stream. An error in the middle breaks the collective, at all ranks.
  void enqueue_start(Stream stream);
  void enqueue_wait(Stream stream);
  template <class Work>
  void enqueue(Stream stream, Work work);
  void carry_out_until(Stream stream, std::size_t end);
  void break_off(const char* why) noexcept;
  /// In program order: carries out steps up to `end`, as far as none blocks. True: all of them.
  bool go_on(std::size_t end);
  bool would_block(const Step& step);
  void carry_out(Stream stream, const Step& step);
  void carry_out_by_plan(Stream stream, const Step& step);
  /// For a GPU's stream: the step would wait for a peer, or for the engine to copy what has landed.
  bool would_park(const Step& step) noexcept;
  /// The message of a wait has landed, on a GPU's stream, and `would_park` was true: no signal is still to come.
  bool is_being_copied(const Step& step) const noexcept;
  void release(Stream stream, std::uint32_t message);
  void release_deferred(Stream stream);
  void compute(Stream stream, const Step& step);
  void compute_by_function(Stream stream, const Step& step);
  std::byte* at(const Place& place) const;

  /// Memory and words that streams use until they have passed the last marker.
  struct Shared {
    explicit Shared(Schedule of);
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    ~Shared() { base::give_back(passed); }
    /// Calls the program's function. An exception fails the collective.
    void combine(device::Lane lane, std::byte* to, const std::byte* first, const std::byte* second,
                 std::size_t bytes) noexcept;

    const Schedule schedule;
    std::vector<Memory> scratches;
    std::vector<Memory> landings;    // of messages that land aside
    std::vector<std::byte> operand;  // a copy, where the result of the function must replace the other one
    const std::shared_ptr<runtime::SharedFate> fate;
    device::Reached reached;                         // by streams of a GPU
    base::Progress& passed = base::take_progress();  // how many markers
  };

  Context context_;
  Scope scope_;
  Scope ready_scope_;
  const std::string name_;
  const std::shared_ptr<Shared> shared_;
  const Schedule& schedule_ = shared_->schedule;
  const std::shared_ptr<runtime::SharedFate>& fate_ = shared_->fate;
  std::uint64_t markers_ = 0;  // that streams were given
  // The last copy or combination of `start`, and of `wait`, is a marker itself: an item of a stream less.
  std::array<const Step*, 2> last_computed_{};
  bool unmarked_ = false;  // a stream was given work behind its last marker
  std::vector<End> ends_;
  std::vector<std::uint32_t> deferred_releases_;  // messages of the last round that are released in the next one
  std::size_t released_ = 0;                      // of these; others are left if a release throws
  std::unique_ptr<HostStream> own_;               // null: Progress::in_wait
  // The own stream waits for the program's at the first, and the program's for the own at the second; both count
  // starts.
  std::shared_ptr<HostStream::Impl::Turns> ready_ = std::make_shared<HostStream::Impl::Turns>();
  std::shared_ptr<HostStream::Impl::Turns> done_ = std::make_shared<HostStream::Impl::Turns>();
  std::uint64_t starts_ = 0;
  int gpu_of_memory_ = -1;      // that the program's memory is of
  int gpu_ = -1;                // of the streams
  std::uint64_t capture_ = 0;   // the number of the one under way; 0: none
  std::uint64_t captured_ = 0;  // rounds of it
  State state_ = State::idle;
  Stream stream_;             // of the last start
  bool has_started_ = false;  // once
  std::size_t next_ = 0;
};

}  // namespace sluice::collectives
