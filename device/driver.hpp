// SPDX-License-Identifier: Apache-2.0
// A vendor's driver: one implementation for each vendor, loaded at run time, so that programs also run on machines
// without it.
#pragma once

#include <sluice/stream.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/facts.hpp"
#include "base/fd.hpp"

namespace sluice::device {

/// A call of a driver failed.
struct GpuError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A stream's capture has become invalid, so that it yields no graph.
struct InvalidCapture : GpuError {
  InvalidCapture() : GpuError("what the stream captures is invalid already: end the capture") {}
};

/// State of a stream, from its driver.
struct StreamState {
  int device = 0;             ///< the stream's GPU
  std::uint64_t capture = 0;  ///< unique number of its current capture; 0: none
};

/// An operation of a stream on a 64-bit word, in memory that GPUs reach.
struct WordOp {
  enum class Kind : std::uint8_t { wait, write };
  Kind kind = Kind::wait;
  void* word = nullptr;
  std::uint64_t value = 0;  ///< wait: at least this
};

/// The kernels of kernels.hpp.
enum class Kernel {
  write,
  small_puts,
  few_puts,
  operate,
  acquire,
  put,
  begin_put,
  copy,
  end_put,
  wait,
  release,
  reduce,
  change
};
inline constexpr std::array kKernelNames{"sluice_write",   "sluice_small_puts", "sluice_few_puts",  "sluice_operate",
                                         "sluice_acquire", "sluice_put",        "sluice_begin_put", "sluice_copy",
                                         "sluice_end_put", "sluice_wait",       "sluice_release",   "sluice_reduce",
                                         "sluice_change"};

// The compiled kernels, which are part of the library, for the GPUs that the build was configured for.
/// A fat binary for cuModuleLoadData; empty if this build has no CUDA part.
std::span<const std::byte> cuda_kernels() noexcept;
/// A bundle of code objects for hipModuleLoadData; empty if this build has no HIP part.
std::span<const std::byte> hip_kernels() noexcept;

/// A kernel of ours, and its arguments: its struct in kernels.hpp.
struct Launch {
  Kernel kernel = Kernel::write;
  void* args = nullptr;
  unsigned threads = 1;  ///< of a block
  unsigned blocks = 1;   ///< in x
  unsigned rows = 1;     ///< in y
};

/// Returns the threads of a block for this many equal tasks: whole warps.
constexpr unsigned threads_for(std::size_t things) noexcept {
  constexpr std::size_t kWarp = 32;
  constexpr std::size_t kMost = 1024;
  return static_cast<unsigned>(std::clamp((things + kWarp - 1) / kWarp * kWarp, kWarp, kMost));
}

/// A whole allocation of a GPU's memory.
struct GpuMemory {
  int device = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t id = 0;  ///< the driver's, unique in this process for ever; 0: none, or not looked up
  enum class Got : std::uint8_t {
    whole,   ///< from the driver, by one call
    mapped,  ///< by us, at an address of our choice
    opened,  ///< with another process's handle
    pooled,  ///< a piece of another process's pool: its unmapping waits for no stream
  };
  Got got = Got::whole;
};

/// A driver's name of memory for other processes. Zeros: none.
using GpuHandle = std::array<std::byte, 64>;

/// Name of a piece of a memory pool for other processes. Address 0: the memory is of no pool.
struct PoolPiece {
  std::uint64_t process = 0;  ///< base::process_token() of its owner
  std::uint64_t at = 0;  ///< in that process, which reuses the address only after all others have unmapped the piece
  GpuHandle data{};      ///< for processes that have imported the pool

  bool operator==(const PoolPiece& other) const { return process == other.process && at == other.at; }
};

/// Identifier of a GPU, the same in all processes.
using GpuId = std::array<std::byte, 16>;

/// All names that a driver has for a GPU's memory. Processes send them as bytes.
struct GpuNames {
  GpuId device{};
  GpuHandle handle{};
  PoolPiece piece;
};

/// All ways in which another process can map a GPU's memory; that process picks one.
struct GpuExport {
  GpuNames names;
  base::Fd fd;  ///< of the memory, or of its pool
};

/// Any thread may call every function. A function that fails throws GpuError.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual Stream::Kind kind() const noexcept = 0;
  virtual const char* name() const noexcept = 0;
  /// Returns why no GPU can be used; empty: one can.
  virtual const std::string& why_not() const noexcept = 0;
  virtual int devices() const noexcept = 0;
  virtual base::Facts facts(int device) = 0;
  /// Returns the calling thread's GPU.
  virtual int current_device() = 0;
  virtual GpuId id_of(int device) const = 0;
  /// True if atomics of kernels on `device`, in memory of GPU `of` that they reach, are atomic with those of all other
  /// GPUs there.
  virtual bool atomic_in(int device, const GpuId& of) = 0;

  /// True if the GPU's streams that see a NIC's later write elsewhere see its earlier writes into the GPU's memory too.
  virtual bool orders_writes_of_others(int device) = 0;

  // Operations in the order of a stream. Between `enter` and `leave` the stream's GPU is the calling thread's current
  // one.
  /// @throws InvalidCapture
  virtual StreamState look_at(void* stream) = 0;
  int device_of(void* stream) { return look_at(stream).device; }
  virtual void* enter(int device) = 0;
  virtual void leave(void* entered) noexcept = 0;
  /// Enqueues the operations in this order. A reader that sees a written word sees all earlier writes of the stream.
  virtual void operate(void* stream, std::span<const WordOp> ops) = 0;
  virtual void copy(void* stream, void* to, const void* from, std::size_t bytes) = 0;
  /// `device`: the stream's GPU.
  virtual void launch(int device, void* stream, const Launch& what) = 0;
  /// Loads the kernels, as the first `launch` would: a driver waits for that until all streams are idle.
  virtual void load_kernels(int device) = 0;
  /// True once the kernels are loaded.
  virtual bool has_kernels(int device) const noexcept = 0;
  /// True if kernels on the calling thread's current GPU reach the memory. Copies may reach more.
  virtual bool kernels_reach(const void* at) = 0;
  /// Calls the function in the stream's order, in a thread of the driver, where calls of the driver are forbidden.
  virtual void call(void* stream, void (*function)(void*), void* argument) = 0;
  virtual void synchronize(void* stream) = 0;

  /// Gives `work` a stream of ours that waits for no other, and returns when the enqueued work has completed.
  virtual void aside(int device, const std::function<void(void* stream)>& work) = 0;
  /// Returns a stream of ours that waits for no other, for work that no thread waits for; each GPU has one.
  virtual Stream own_stream(int device) = 0;
  /// True if the GPU's context has failed for good, so that its streams run nothing any more. The state of `own_stream`
  /// tells; false before its first use.
  virtual bool lost(int device) noexcept = 0;
  /// Copies now, even while streams are parked.
  virtual void copy_now(void* to, const void* from, std::size_t bytes) = 0;

  /// Empty: the address is in no GPU's memory.
  virtual std::optional<GpuMemory> find(const void* address) = 0;
  /// Allocates at least so many bytes, which are not zeroed.
  virtual GpuMemory allocate(int device, std::size_t bytes) = 0;
  /// Frees the memory once all streams of its GPU are idle. Disturbs no capture.
  virtual void free(const GpuMemory& memory) noexcept = 0;
  /// Empty: no other process can map the memory.
  virtual std::optional<GpuExport> share(const GpuMemory& memory) = 0;
  /// Maps another process's memory. All mappings of a piece of a pool are one, until the last is unmapped.
  virtual GpuMemory map(const GpuExport& what, std::size_t bytes) = 0;
  virtual void unmap(const GpuMemory& memory) noexcept = 0;
  virtual void zero(const GpuMemory& memory) = 0;

  /// Returns how many bytes of host memory from there on the driver reaches without `reach`.
  virtual std::size_t reached(const void* at) = 0;
  enum class Pages : std::uint8_t { memory, registers };
  /// Gives the driver pages of host memory, or of a device's registers. Returns the address that streams use; for
  /// memory it is `pages`.
  virtual void* reach(void* pages, std::size_t bytes, Pages what) = 0;
  virtual void give_up(void* pages) noexcept = 0;
};

/// While it lives, a GPU is the calling thread's current one.
class OnDevice {
 public:
  OnDevice(Driver& driver, int device) : driver_(driver), entered_(driver.enter(device)) {}
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() { driver_.leave(entered_); }

 private:
  Driver& driver_;
  void* entered_;
};

/// Returns the vendor's driver, loaded at first use; null: this build has none.
Driver* driver(Stream::Kind kind);
/// Returns the first driver that has a GPU; null: none has.
Driver* any_driver();
/// True if kernels of ours wait for words, and write them, in place of the streams' own operations (SLUICE_GPU_WAITS).
bool words_by_kernels();
/// End of the text why a GPU's streams cannot wait for words.
inline constexpr const char* kKernelsCan = "; with SLUICE_GPU_WAITS=kernel kernels do it, which hold a multiprocessor";
/// Returns all drivers of this build.
std::vector<Driver*> drivers();
/// Returns the drivers that this process uses already, and so may have memory of: loading a driver takes long.
std::vector<Driver*> drivers_in_use();

}  // namespace sluice::device
