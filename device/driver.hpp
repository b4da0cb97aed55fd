// SPDX-License-Identifier: Apache-2.0
// A vendor's driver, as we use it: one implementation a vendor, taken from the machine at run time, so that a program
// starts and does without where there is none.
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
#include "device/kernel_images.hpp"

namespace sluice::device {

/// A call of a driver failed.
class GpuError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A stream's capture has become invalid: there will be no graph.
class InvalidCapture : public GpuError {
 public:
  InvalidCapture() : GpuError("what the stream captures is invalid already: end the capture") {}
};

/// A stream, as its driver sees it now.
struct StreamState {
  int device = 0;             ///< the GPU that it is of
  std::uint64_t capture = 0;  ///< the number of the capture that it is in, which no other has; 0: none
};

/// What a stream does with a 64-bit word, in memory that GPUs reach.
struct WordOp {
  enum class Kind : std::uint8_t { wait, write };
  Kind kind = Kind::wait;
  void* word = nullptr;
  std::uint64_t value = 0;  ///< wait: at least this
};

/// A kernel of ours, and its arguments: the struct that kernels.hpp has for it.
struct Launch {
  Kernel kernel = Kernel::write;
  void* args = nullptr;
  unsigned threads = 1;  ///< of a block
  unsigned blocks = 1;   ///< in x
  unsigned rows = 1;     ///< in y
};

/// The threads of a block that has so many equal things to do: whole warps.
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
  std::uint64_t id = 0;  ///< the driver's, in this process, never used again; 0: not asked for, or it has none
  enum class Got : std::uint8_t {
    whole,   ///< from the driver, by one call
    mapped,  ///< by us, at an address of our choice
    opened,  ///< by another process's handle
    pooled,  ///< out of another process's pool: to unmap it waits for no stream
  };
  Got got = Got::whole;
};

/// What a driver calls memory towards other processes. Zeros: it has no such name.
using GpuHandle = std::array<std::byte, 64>;

/// A piece of a memory pool, as others name it. Address 0: the memory is from none.
struct PoolPiece {
  std::uint64_t process = 0;  ///< base::process_token() of its owner
  std::uint64_t at = 0;       ///< in that process, which allocates nothing else there before all have let go of it
  GpuHandle data{};           ///< for who has the pool

  bool operator==(const PoolPiece& other) const { return process == other.process && at == other.at; }
};

/// The names of a GPU's memory: all that its driver has for it. They travel as they are.
struct GpuNames {
  std::array<std::byte, 16> device{};  ///< which GPU, the same in all processes
  GpuHandle handle{};
  PoolPiece piece;
};

/// All ways in which another process gets at a GPU's memory; the one that maps it picks one.
struct GpuExport {
  GpuNames names;
  base::Fd fd;  ///< of the memory, or of the pool that it is a piece of
};

/// Any thread may call all of it. What fails throws GpuError.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual Stream::Kind kind() const noexcept = 0;
  virtual const char* name() const noexcept = 0;
  /// Empty: there is a GPU that streams of ours can be used on.
  virtual const std::string& why_not() const noexcept = 0;
  virtual int devices() const noexcept = 0;
  virtual base::Facts facts(int device) = 0;
  /// Of the calling thread.
  virtual int current_device() = 0;

  /// Whether the GPU's streams see what a NIC has written into its memory once they see what that wrote later
  /// elsewhere.
  virtual bool orders_writes_of_others(int device) = 0;

  // In the order of a stream. Between `enter` and `leave` the stream's GPU is the calling thread's current one.
  /// @throws InvalidCapture
  virtual StreamState look_at(void* stream) = 0;
  int device_of(void* stream) { return look_at(stream).device; }
  virtual void* enter(int device) = 0;
  virtual void leave(void* entered) noexcept = 0;
  /// In this order, and behind all that the stream was given before; what it wrote before is visible to who sees a word
  /// written.
  virtual void operate(void* stream, std::span<const WordOp> ops) = 0;
  virtual void copy(void* stream, void* to, const void* from, std::size_t bytes) = 0;
  /// `device`: the stream's.
  virtual void launch(int device, void* stream, const Launch& what) = 0;
  /// What `launch` does at first use: a driver loads kernels when all streams are idle.
  virtual void load_kernels(int device) = 0;
  /// Whether that is done.
  virtual bool has_kernels(int device) const noexcept = 0;
  /// Whether kernels on the calling thread's current GPU reach the memory there. Copies may where they do not.
  virtual bool kernels_reach(const void* at) = 0;
  /// Calls it in the stream's order, in a thread of the driver's, where no call of the driver is allowed.
  virtual void call(void* stream, void (*function)(void*), void* argument) = 0;
  virtual void synchronize(void* stream) = 0;

  /// Gives `work` a stream of ours that waits for no other, and returns when what it has enqueued has happened.
  virtual void aside(int device, const std::function<void(void* stream)>& work) = 0;
  /// A stream of ours that waits for no other, for what nobody waits for meanwhile. Of a GPU it is always the same.
  virtual Stream own_stream(int device) = 0;
  /// The driver says that the GPU's context has failed for good: nothing that its streams were given runs any more.
  /// Asked of that stream; false where there is none yet.
  virtual bool lost(int device) noexcept = 0;
  /// Copies now, whatever streams wait for.
  virtual void copy_now(void* to, const void* from, std::size_t bytes) = 0;

  /// Null: it is no GPU's memory.
  virtual std::optional<GpuMemory> find(const void* address) = 0;
  /// At least so many bytes, of whatever.
  virtual GpuMemory allocate(int device, std::size_t bytes) = 0;
  /// Once all streams of its GPU are idle. Disturbs no capture.
  virtual void free(const GpuMemory& memory) noexcept = 0;
  /// Nothing: no other process can be given it.
  virtual std::optional<GpuExport> share(const GpuMemory& memory) = 0;
  /// A piece of a pool is the same, and stays, however often it is mapped.
  virtual GpuMemory map(const GpuExport& what, std::size_t bytes) = 0;
  virtual void unmap(const GpuMemory& memory) noexcept = 0;
  virtual void zero(const GpuMemory& memory) = 0;

  /// How much of host memory from there on the driver reaches without us; 0: none of it.
  virtual std::size_t reached(const void* at) = 0;
  /// Pages of host memory.
  virtual void reach(void* pages, std::size_t bytes) = 0;
  /// Pages of a device's registers. Returns where streams find them.
  virtual void* reach_registers(void* pages, std::size_t bytes) = 0;
  virtual void give_up(void* pages) noexcept = 0;
};

/// A GPU is the calling thread's current one while this lives.
class OnDevice {
 public:
  OnDevice(Driver& driver, int device) : driver_(driver), entered_(driver.enter(device)) {}
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { driver_.leave(entered_); }

 private:
  Driver& driver_;
  void* entered_;
};

/// The vendor's, loaded at first use; null: this build has none.
Driver* driver(Stream::Kind kind);
/// The first that has a GPU; null: none has.
Driver* any_driver();
/// Whether kernels of ours wait for words, and write them, in place of the streams' own operations (SLUICE_GPU_WAITS).
bool words_by_kernels();
/// Behind why streams of a GPU cannot do it.
inline constexpr const char* kKernelsCan = "; with SLUICE_GPU_WAITS=kernel kernels do it, which hold a multiprocessor";
/// All of this build.
std::vector<Driver*> drivers();
/// Those that this process uses already, and so may have memory of: a driver takes long to load.
std::vector<Driver*> drivers_in_use();

}  // namespace sluice::device
