// SPDX-License-Identifier: Apache-2.0
// Puts into windows: ended by a flush and a flag, by post-start-complete-wait, or by fences.
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/rivals/make_mpi.hpp"
#include "apps/common/mpi_world.hpp"

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>

namespace bench {
namespace {

constexpr std::size_t kPayload = 64;  // where the payload begins: the flag has the first cache line of the window
constexpr int kPollsPerProbe = 16;

/// A window with a flag and a payload, in memory that MPI or this program has allocated.
class Window {
 public:
  Window(const Workload& workload, std::size_t payload_bytes, bool user_memory) : peer_(workload.peer) {
    // With MPICH 4.0 on UCX, puts into a smaller window that MPI allocated do not arrive.
    const auto bytes = static_cast<MPI_Aint>(whole_pages(payload_bytes + kPayload));
    if (user_memory) {
      pages_.emplace(static_cast<std::size_t>(bytes));
      memory_ = pages_->data();
      MPI_Win_create(memory_, bytes, 1, MPI_INFO_NULL, world_.communicator(), &window_);
    } else {
      MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, world_.communicator(), static_cast<void*>(&memory_), &window_);
    }
    std::memset(memory_, 0, static_cast<std::size_t>(bytes));
    // The peer must not set the flag before it is zero.
    MPI_Barrier(world_.communicator());
  }
  ~Window() { MPI_Win_free(&window_); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  MPI_Win get() const { return window_; }
  MPI_Comm communicator() const { return world_.communicator(); }
  const std::byte* payload() const { return memory_ + kPayload; }

  void put(const std::byte* from, std::size_t bytes, std::size_t at = 0) const {
    const int count = static_cast<int>(bytes);
    MPI_Put(from, count, MPI_BYTE, peer_, static_cast<MPI_Aint>(kPayload + at), count, MPI_BYTE, window_);
  }

  void flush() const { MPI_Win_flush(peer_, window_); }

  /// Sets the peer's flag, after all flushed puts.
  void set_flag(const std::uint64_t& value) const {
    MPI_Put(&value, 1, MPI_UINT64_T, peer_, 0, 1, MPI_UINT64_T, window_);
    flush();
  }

  /// Polls this rank's flag until it is at least `least`, with a probe now and then: some MPIs move puts only while the
  /// target is inside an MPI function, and MPI_Win_sync does not count as one. With an MPI that writes directly, so
  /// few probes add little to the polling.
  void await_flag(std::uint64_t least) const {
    auto& flag = *reinterpret_cast<std::atomic<std::uint64_t>*>(memory_);
    for (int polls = 1;; ++polls) {
      MPI_Win_sync(window_);
      if (flag.load(std::memory_order_acquire) >= least) return;
      if (polls % kPollsPerProbe == 0) probe();
    }
  }

 private:
  void probe() const {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world_.communicator(), &found, MPI_STATUS_IGNORE);
  }

  apps::MpiWorld world_;
  const int peer_;
  std::optional<Pages> pages_;
  std::byte* memory_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};

/// An access epoch to all ranks, as long as this object lives. MPI_Win_flush needs one.
class LockAll {
 public:
  explicit LockAll(const Window& window) : window_(window.get()) { MPI_Win_lock_all(MPI_MODE_NOCHECK, window_); }
  ~LockAll() { MPI_Win_unlock_all(window_); }
  LockAll(const LockAll&) = delete;
  LockAll& operator=(const LockAll&) = delete;

 private:
  MPI_Win window_;
};

class PutFlushPingPong : public Contender {
 public:
  PutFlushPingPong(const Workload& workload, bool user_memory)
      : workload_(workload), source_(workload.bytes), window_(workload, workload.bytes, user_memory), epoch_(window_) {}

  double run(long count) override {
    return timed_ping_pong(
        workload_, count, [this] { put(); }, [this] { receive(); });
  }

 private:
  void put() {
    compute(workload_, source_.data());
    if (workload_.bytes > 0) {
      window_.put(source_.data(), workload_.bytes);
      window_.flush();
    }
    window_.set_flag(++sent_);
  }
  void receive() {
    window_.await_flag(++received_);
    touch(workload_, window_.payload());
  }

  const Workload workload_;
  Pages source_;
  Window window_;
  LockAll epoch_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

class PutFlushFlood : public Contender {
 public:
  PutFlushFlood(const Workload& workload, bool user_memory)
      : workload_(workload), source_(slots_bytes()), window_(workload, slots_bytes(), user_memory), epoch_(window_) {}

  double run(long count) override {
    return timed_steps(count, [this] {
      ++windows_;
      if (workload_.first) {
        send_window();
      } else {
        receive_window();
      }
    });
  }

 private:
  std::size_t slots_bytes() const { return workload_.bytes * static_cast<std::size_t>(workload_.depth); }
  std::size_t offset(int message) const {
    return static_cast<std::size_t>(message % workload_.depth) * workload_.bytes;
  }

  void send_window() {
    for (int message = 0; message < workload_.window; ++message)
      window_.put(source_.data() + offset(message), workload_.bytes, offset(message));
    window_.flush();
    window_.set_flag(windows_);
    window_.await_flag(windows_);
  }
  void receive_window() {
    window_.await_flag(windows_);
    for (int message = 0; message < workload_.window; ++message) touch(workload_, window_.payload() + offset(message));
    window_.set_flag(windows_);
  }

  const Workload workload_;
  Pages source_;
  Window window_;
  LockAll epoch_;
  std::uint64_t windows_ = 0;
};

class PscwPingPong : public Contender {
 public:
  explicit PscwPingPong(const Workload& workload)
      : workload_(workload), source_(workload.bytes), window_(workload, workload.bytes, false) {
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Comm_group(window_.communicator(), &all);
    MPI_Group_incl(all, 1, &workload_.peer, &peer_);
    MPI_Group_free(&all);
    expose();
  }
  ~PscwPingPong() override {
    // The exposure after the last message is still open: an access without a put ends it.
    MPI_Win_start(peer_, 0, window_.get());
    MPI_Win_complete(window_.get());
    MPI_Win_wait(window_.get());
    MPI_Group_free(&peer_);
  }

  double run(long count) override {
    return timed_ping_pong(
        workload_, count, [this] { put(); }, [this] { receive(); });
  }

 private:
  void put() {
    compute(workload_, source_.data());
    MPI_Win_start(peer_, 0, window_.get());
    window_.put(source_.data(), workload_.bytes);
    MPI_Win_complete(window_.get());
  }
  // Exposes the window again as soon as the message was read, so that the peer's next start does not wait.
  void receive() {
    MPI_Win_wait(window_.get());
    touch(workload_, window_.payload());
    expose();
  }
  void expose() { MPI_Win_post(peer_, 0, window_.get()); }

  const Workload workload_;
  Pages source_;
  Window window_;
  MPI_Group peer_ = MPI_GROUP_NULL;
};

class FencePingPong : public Contender {
 public:
  explicit FencePingPong(const Workload& workload)
      : workload_(workload), source_(workload.bytes), window_(workload, workload.bytes, false) {
    fence();
  }

  double run(long count) override {
    return timed_steps(count, [this] {
      if (workload_.first) put();
      fence();
      if (!workload_.first) answer();
      fence();
      if (workload_.first) touch(workload_, window_.payload());
    });
  }

 private:
  void put() {
    compute(workload_, source_.data());
    window_.put(source_.data(), workload_.bytes);
  }
  void answer() {
    touch(workload_, window_.payload());
    put();
  }
  void fence() { MPI_Win_fence(0, window_.get()); }

  const Workload workload_;
  Pages source_;
  Window window_;
};

}  // namespace

std::unique_ptr<Contender> make_put_flush_ping_pong(const Workload& workload, bool user_memory) {
  return std::make_unique<PutFlushPingPong>(workload, user_memory);
}
std::unique_ptr<Contender> make_pscw_ping_pong(const Workload& workload) {
  return std::make_unique<PscwPingPong>(workload);
}
std::unique_ptr<Contender> make_fence_ping_pong(const Workload& workload) {
  return std::make_unique<FencePingPong>(workload);
}
std::unique_ptr<Contender> make_put_flush_flood(const Workload& workload, bool user_memory) {
  return std::make_unique<PutFlushFlood>(workload, user_memory);
}

}  // namespace bench
