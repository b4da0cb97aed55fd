// SPDX-License-Identifier: Apache-2.0
// The whole driver: devices, contexts, handles; and the checks at the start of every call of the API.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tests/emucuda/addresses.hpp"
#include "tests/emucuda/capture.hpp"
#include "tests/emucuda/context.hpp"
#include "tests/emucuda/handles.hpp"
#include "tests/emucuda/settings.hpp"

namespace emucuda {

struct Event;
struct Function;
struct Module;
struct Physical;
struct Pool;

class Driver {
 public:
  CUresult initialise();
  /// Not in a child of the process that did it: threads do not survive a fork, nor does CUDA.
  bool initialised() const;

  int devices() const { return static_cast<int>(contexts_.size()); }
  bool is_device(int device) const { return device >= 0 && device < devices(); }
  Context& context_of(int device) { return *contexts_[static_cast<std::size_t>(device)]; }
  /// Null if the handle is none of a context.
  Context* context_of(CUcontext handle) const;
  /// Ordinals of the machine, of which CUDA_VISIBLE_DEVICES may show some.
  int machine_ordinal(int device) const { return visible_[static_cast<std::size_t>(device)]; }
  std::optional<int> device_of_machine_ordinal(int ordinal) const;
  const Settings& settings() const { return settings_; }

  /// For copies, `pieces` may also be plain host memory, with no range. None: the address is not good for the device.
  std::optional<Pieces> copyable(std::uintptr_t address, std::size_t bytes, int device) const;
  /// For all else that a device does: memory that it may reach itself.
  std::optional<Pieces> reachable(std::uintptr_t address, std::size_t bytes, int device) const;
  bool may_reach(const Range& range, int device) const;

  /// Fresh memory of a device in this process's window, or null.
  RangePtr place(Kind kind, std::shared_ptr<Block> block, Context& context, int device);
  /// Takes it out of the window.
  void displace(const Range& range);
  /// Displaces a pool's memory that `call` frees; aborts the process if others have it still imported.
  void displace_of_pool(const char* call, const Range& range);
  /// All memory and streams of a context that ends.
  void forget(Context& context);

  Addresses addresses;
  Captures captures;
  Handles<Stream> streams;
  Handles<Event> events;
  Handles<Module> modules;
  Handles<Function> functions;
  Handles<Physical> physical;
  Handles<Pool> pools;
  Handles<Graph> graphs;
  Handles<GraphExec> graph_execs;

 private:
  CUresult find_devices();

  std::mutex mutex_;
  std::atomic<int> pid_{0};
  Settings settings_;
  std::vector<int> visible_;
  std::vector<std::unique_ptr<Context>> contexts_;
};

/// It is never destroyed: threads of streams may be at work when the process ends.
Driver& driver();

/// True in a host function or a kernel, where no call is allowed.
bool& in_stream_function();
/// See emucuda_given; of the calling thread.
struct Given {
  unsigned long long calls = 0;
  unsigned long long argument_bytes = 0;
};
Given& given();
/// The stack of this thread's contexts; the last is current.
std::vector<Context*>& current_contexts();

/// The first check of each call: the driver is initialised; the device exists; the calling thread has a context.
CUresult use_driver();
CUresult use_device(int device);
CUresult use_context(Context*& context);
/// For calls that CUDA calls potentially unsafe while there is a capture.
CUresult use_context_unsafely(Context*& context);
/// The stream behind a handle; the default streams are the current context's. Its work is recorded if it
/// captures.
CUresult use_stream(CUstream handle, StreamPtr& stream, IfCapturing what = IfCapturing::record);

}  // namespace emucuda
