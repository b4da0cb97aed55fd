// SPDX-License-Identifier: Apache-2.0
#include "tests/emucuda/driver.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/emucuda/backoff.hpp"
#include "tests/emucuda/emucuda.hpp"
#include "tests/emucuda/kernel.hpp"
#include "tests/emucuda/start.hpp"

namespace emucuda {

Driver& driver() {
  static Driver& only = *new Driver;
  return only;
}

bool& in_stream_function() {
  thread_local bool inside = false;
  return inside;
}

Given& given() {
  thread_local Given own;
  return own;
}

std::vector<Context*>& current_contexts() {
  thread_local std::vector<Context*> stack;
  return stack;
}

// --- set-up ----------------------------------------------------------------------------------------------------------

CUresult Driver::initialise() {
  const std::lock_guard lock(mutex_);
  if (pid_ != 0) return initialised() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
  if (const CUresult error = start()) return error;
  const auto settings = settings_from_environment();
  if (!settings) return CUDA_ERROR_INVALID_VALUE;
  settings_ = *settings;
  if (!settings_.kernels.empty() && !load_kernels(settings_.kernels)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = find_devices()) return error;
  if (!addresses.open()) return CUDA_ERROR_OUT_OF_MEMORY;
  for (int device = 0; device < static_cast<int>(visible_.size()); ++device) {
    contexts_.push_back(std::make_unique<Context>(device, settings_));
  }
  pid_ = ::getpid();
  return CUDA_SUCCESS;
}

/// As the driver reads the list: it ends at the first entry that is no device.
CUresult Driver::find_devices() {
  visible_.clear();
  const int present = static_cast<int>(settings_.devices);
  const char* const listed = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!listed) {
    for (int device = 0; device < present; ++device) visible_.push_back(device);
  } else {
    std::istringstream list(listed);
    for (int device = 0; list >> device && device >= 0 && device < present; list.ignore(1, ','))
      visible_.push_back(device);
  }
  return visible_.empty() || visible_.size() > 64 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

bool Driver::initialised() const { return pid_ == ::getpid(); }

Context* Driver::context_of(CUcontext handle) const {
  for (const auto& context : contexts_) {
    if (context->handle() == handle) return context.get();
  }
  return nullptr;
}

std::optional<int> Driver::device_of_machine_ordinal(int ordinal) const {
  for (std::size_t i = 0; i < visible_.size(); ++i) {
    if (visible_[i] == ordinal) return static_cast<int>(i);
  }
  return std::nullopt;
}

// --- memory ----------------------------------------------------------------------------------------------------------

bool Driver::may_reach(const Range& range, int device) const {
  if (range.on_host() || range.granted(device)) return true;
  if (range.kind == Kind::mapped || range.kind == Kind::pool) return false;
  const std::uint64_t peers = contexts_[static_cast<std::size_t>(device)]->peers;
  return range.device == device || (peers >> range.device & 1) != 0;
}

std::optional<Pieces> Driver::reachable(std::uintptr_t address, std::size_t bytes, int device) const {
  auto pieces = addresses.pieces(address, bytes);
  if (!pieces) return std::nullopt;
  for (const Piece& piece : *pieces) {
    if (!may_reach(*piece.range, device)) return std::nullopt;
  }
  return pieces;
}

std::optional<Pieces> Driver::copyable(std::uintptr_t address, std::size_t bytes, int device) const {
  if (address == 0) return std::nullopt;
  if (!addresses.in_window(address) && !addresses.overlaps(address, bytes)) {
    return Pieces{{nullptr, reinterpret_cast<char*>(address), bytes}};
  }
  auto pieces = addresses.pieces(address, bytes);
  if (!pieces) return std::nullopt;
  for (const Piece& piece : *pieces) {
    // Copies of the other kinds go through the driver, peer access or not.
    const bool needs_access = piece.range->kind == Kind::mapped || piece.range->kind == Kind::pool;
    if (needs_access && !may_reach(*piece.range, device)) return std::nullopt;
  }
  return pieces;
}

RangePtr Driver::place(Kind kind, std::shared_ptr<Block> block, Context& context, int device) {
  constexpr std::size_t kAlignment = 4096;
  auto range = std::make_shared<Range>();
  range->kind = kind;
  range->bytes = block->bytes();
  const bool again = kind == Kind::pool && settings_.pools_recycle;
  range->base = again ? addresses.reserve_again(range->bytes, kAlignment) : addresses.reserve(range->bytes, kAlignment);
  range->alias = block->alias();
  range->device = device;
  range->context = &context;
  range->block = std::move(block);
  range->access = std::uint64_t{1} << device;
  if (range->base == 0) return nullptr;
  return range;
}

void Driver::displace(const Range& range) {
  addresses.remove(range);
  if (range.imported) range.block->let_go();
  if (range.kind == Kind::host) {
    ::munmap(reinterpret_cast<void*>(range.base), range.bytes);
  } else if (range.kind != Kind::registered && range.kind != Kind::mapped) {
    addresses.unreserve(range.base);
  }
}

void Driver::displace_of_pool(const char* call, const Range& range) {
  // A killed process releases its blocks a little after its peers have noticed.
  constexpr std::chrono::seconds kDying{10};
  const auto limit = std::chrono::steady_clock::now() + kDying;
  Backoff backoff;
  while (!range.imported && range.block->held_by_others()) {
    if (std::chrono::steady_clock::now() > limit) {
      std::fprintf(stderr, "emucuda: %s frees memory of a pool that another process has imported still\n", call);
      std::abort();
    }
    backoff.pause();
  }
  displace(range);
}

void Driver::forget(Context& context) {
  for (const RangePtr& range : addresses.all()) {
    if (range->context == &context) displace(*range);
  }
  captures.forget(context);
  graph_execs.forget_if([&](const GraphExec& exec) { return &exec.graph->context == &context; });
  graphs.forget_if([&](const Graph& graph) { return &graph.context == &context; });
  streams.forget_if([&](const Stream& stream) { return &stream.context == &context; });
}

// --- the beginning of every call -------------------------------------------------------------------------------------

CUresult use_driver() {
  ++given().calls;
  if (in_stream_function()) return CUDA_ERROR_NOT_PERMITTED;
  return driver().initialised() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult use_device(int device) {
  if (const CUresult error = use_driver()) return error;
  return driver().is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult use_context(Context*& context) {
  if (const CUresult error = use_driver()) return error;
  if (current_contexts().empty() || !current_contexts().back()) return CUDA_ERROR_INVALID_CONTEXT;
  context = current_contexts().back();
  return context->active() ? context->error() : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult use_context_unsafely(Context*& context) {
  if (const CUresult error = use_context(context)) return error;
  return driver().captures.use_unsafely();
}

namespace {

/// See emucuda_refuse.
struct Refusals {
  unsigned taken = 0;
  unsigned refused = 0;
  bool at_once = false;

  bool next() {
    if (refused == 0) return false;
    if (taken > 0) return --taken, false;
    return --refused, true;
  }
};

Refusals& refusals() {
  thread_local Refusals own;
  return own;
}

}  // namespace

CUresult use_stream(CUstream handle, StreamPtr& stream, IfCapturing what) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  if (!handle || handle == CU_STREAM_LEGACY) {
    stream = context->legacy_stream();
  } else if (handle == CU_STREAM_PER_THREAD) {
    stream = context->per_thread_stream();
  } else {
    stream = driver().streams.find(handle);
  }
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = stream->context.error()) return error;
  if (what == IfCapturing::record && refusals().next()) {
    if (!refusals().at_once) stream->context.wait(stream->context.before(stream));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (what == IfCapturing::record && stream->refuses_next()) return CUDA_ERROR_OUT_OF_MEMORY;
  return driver().captures.use(stream, what);
}

}  // namespace emucuda

extern "C" {

void emucuda_refuse(unsigned taken, unsigned refused, int at_once) {
  emucuda::refusals() = {taken, refused, at_once != 0};
}

void emucuda_refuse_of(CUstream handle, unsigned taken) {
  if (const emucuda::StreamPtr stream = emucuda::driver().streams.find(handle)) stream->refused_in = taken + 1;
}

unsigned long long emucuda_submitted(CUstream handle) {
  const emucuda::StreamPtr stream = emucuda::driver().streams.find(handle);
  return stream != nullptr ? stream->submitted.load() : 0;
}

int emucuda_parked(CUstream handle) {
  const emucuda::StreamPtr stream = emucuda::driver().streams.find(handle);
  return stream != nullptr && stream->parked_at != 0 ? 1 : 0;
}

int emucuda_awaited(CUstream handle) {
  const emucuda::StreamPtr stream = emucuda::driver().streams.find(handle);
  return stream != nullptr && stream->awaited != 0 ? 1 : 0;
}

void emucuda_fail(CUresult error) {
  if (!emucuda::current_contexts().empty()) emucuda::current_contexts().back()->fail(error);
}

void emucuda_given(unsigned long long* calls, unsigned long long* argument_bytes) {
  *calls = emucuda::given().calls;
  *argument_bytes = emucuda::given().argument_bytes;
}
}
