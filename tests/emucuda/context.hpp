// SPDX-License-Identifier: Apache-2.0
// The primary context of a device: its streams, which of them wait for which, and its error, which it keeps.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/emucuda/queue.hpp"
#include "tests/emucuda/settings.hpp"
#include "tests/emucuda/stream.hpp"

namespace emucuda {

class Context {
 public:
  Context(int device, const Settings& with);

  CUcontext handle() { return reinterpret_cast<CUcontext>(this); }
  int device() const { return device_; }

  void retain();
  /// False if it was not retained. The last release waits for all streams and frees all memory.
  bool release();
  bool active() const { return retained_.load() > 0; }

  /// Sticky: once set, every call that uses the context returns it, and no stream does anything.
  CUresult error() const { return static_cast<CUresult>(error_.load()); }
  void fail(CUresult error);

  StreamPtr create_stream(unsigned flags, int priority);
  StreamPtr legacy_stream();
  StreamPtr per_thread_stream();

  /// The legacy stream need not be there yet.
  bool is_legacy(const StreamPtr& stream);

  /// Puts operations behind what the rules say they must wait for, and behind `also`; nothing comes between them. If
  /// the stream captures, they are recorded, and the mark is none. Waits where the stream has too many functions of the
  /// host to run.
  Mark submit(const StreamPtr& stream, Operations operations, const Mark& also);
  Mark submit(const StreamPtr& stream, Work work);
  /// The marks that the stream's next operation waits for, its own last one included.
  Marks before(const StreamPtr& stream);
  /// All that was submitted, to any stream.
  Marks everything();
  CUresult wait(const Marks& marks) const;
  /// As wait, for calls in which CUDA itself waits: if nothing moves for EMUCUDA_DEADLOCK_MS, tells why and aborts.
  CUresult wait_implicitly(const char* call, const Marks& marks);
  CUresult synchronize(const char* call) { return wait_implicitly(call, everything()); }

  /// Takes a place of the device for one more kernel, which keeps it until the kernel ends. False: none is free.
  bool try_to_begin_kernel();
  void end_kernel();

  const Settings& settings;

  std::atomic<std::uint64_t> peers{0};  // a bit for each device whose memory it may use
  std::atomic<unsigned> flags{0};

 private:
  StreamPtr add_stream(unsigned flags, int priority);
  Marks predecessors(const StreamPtr& stream);
  void make_room_for(const Operations& operations, const StreamPtr& stream, std::unique_lock<std::mutex>& submitting);
  void reset();
  [[noreturn]] void tell_who_is_parked(const std::string& call);

  const int device_;
  std::atomic<int> retained_{0};
  std::atomic<std::size_t> resident_{0};
  std::atomic<int> error_{CUDA_SUCCESS};
  std::mutex submitting_;  // also held while waiting for room, so that other threads wait too
  std::mutex mutex_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::array<std::size_t, 2> next_queue_{};  // of streams of the usual priority, and of a higher one
  std::vector<StreamPtr> streams_;           // those that were destroyed as well, until they are idle
  StreamPtr legacy_;
  std::atomic<std::uint64_t> generation_{0};
};

}  // namespace emucuda
