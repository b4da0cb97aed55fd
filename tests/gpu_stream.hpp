// SPDX-License-Identifier: Apache-2.0
// A stream of a GPU, as a program has it that uses CUDA's driver; or of an emulated one (tests/emucuda).
#pragma once

#include <sluice/stream.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

struct CUgraphExec_st;  // CUgraphExec is a pointer to this

namespace sluice::test {

/// Empty: there is a GPU. Else why not.
const std::string& why_no_gpu();
/// How many this process sees; none: 0. From now on the environment does not change that.
int gpus();
/// True if each of the first two GPUs reaches the memory of the other.
bool gpus_reach_each_other();
/// It is that of tests/emucuda, which tells of a deadlock and aborts.
bool gpu_is_emulated();

/// For which thread GPU 0 is not the one that it uses: what this one allocates, and its streams, are of that.
void use_gpu_of_thread(int gpu);

/// Which streams of the program one waits for: none; the legacy default stream; or it is that itself, or the one that
/// each thread has for itself, and that waits for the legacy one too.
enum class StreamManner { non_blocking, blocking, legacy, per_thread };

/// True if the driver knows the memory at this address.
bool gpu_knows(const void* at);

class GpuStream {
 public:
  explicit GpuStream(StreamManner manner = StreamManner::non_blocking);
  /// A stream of this GPU, whichever the thread uses.
  explicit GpuStream(int gpu);
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  /// Does not wait for what is left on it.
  ~GpuStream();

  /// As one of HIP's where only those are to be used (tests/hip_on_cuda).
  Stream stream() const noexcept;
  /// Calls it in the order of the stream. It may use no stream and no memory of the GPU. Waits for the stream where
  /// that has many such calls ahead: the driver would wait, and meanwhile hold up ranks that are other threads.
  void run(std::function<void()> work);
  /// In the order of the stream, between memory of any kind.
  void copy(void* to, const void* from, std::size_t bytes);
  void synchronize();

 private:
  friend class GpuGraph;
  friend class GpuKernel;
  using Functions = std::vector<std::unique_ptr<std::function<void()>>>;

  void make_room(std::size_t functions);

  CUstream_st* stream_ = nullptr;
  std::size_t ahead_ = 0;          // functions since it was last waited for
  Functions* captured_ = nullptr;  // where functions stay that may run more than once
};

/// The calls that a capture forbids, and in which threads, as in cuThreadExchangeStreamCaptureMode.
enum class CaptureMode { global, of_thread };
/// The mode of all captures of this process. `of_thread` where ranks are its threads: in the mode `global` one rank's
/// capture forbids the others to wait for a stream, for example.
inline CaptureMode capture_mode = CaptureMode::global;

/// Recorded operations of a stream, which can be launched any number of times.
class GpuGraph {
 public:
  /// Captures the operations that `work` gives to `stream`, without doing them. An exception of `work` ends the
  /// capture.
  GpuGraph(GpuStream& stream, const std::function<void()>& work);
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;
  /// When its launches have been waited for.
  ~GpuGraph();

  /// In the order of the stream, and behind the last launch. May wait, as `run`.
  void launch(GpuStream& on);

 private:
  GpuStream::Functions functions_;
  CUgraphExec_st* exec_ = nullptr;
};

/// A kernel of tests/device/programs.cu.
class GpuKernel {
 public:
  /// While no stream waits: the driver would wait for it.
  explicit GpuKernel(const char* name);
  /// In the order of the stream. One block of so many threads; `args` are copied.
  template <class Args>
  void launch(GpuStream& on, Args args, unsigned threads) const {
    launch(on, static_cast<void*>(&args), threads);
  }

 private:
  void launch(GpuStream& on, void* args, unsigned threads) const;
  void* function_ = nullptr;
};

/// Memory of a GPU as a program allocates it: only the driver knows of it.
class GpuBuffer {
 public:
  explicit GpuBuffer(std::size_t bytes);
  GpuBuffer(std::size_t bytes, int gpu);
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;
  ~GpuBuffer();
  std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
};

enum class PoolKind { shareable, unshared };

/// Memory of a pool, as cudaMallocAsync gives it: it has been allocated when this is made.
class PooledBuffer {
 public:
  PooledBuffer(PoolKind kind, std::size_t bytes);
  PooledBuffer(const PooledBuffer&) = delete;
  PooledBuffer& operator=(const PooledBuffer&) = delete;
  /// Frees it, in the order of the stream that allocated it, and waits for that.
  ~PooledBuffer();
  std::byte* data() const noexcept { return data_; }
  /// Destroys the pool. Memory from it stays; later memory is from another pool.
  static void end_pool(PoolKind kind);

 private:
  CUstream_st* order_ = nullptr;
  std::byte* data_ = nullptr;
};

/// Memory of the host that the program has pinned itself.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t bytes);
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer();
  std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
};

/// When a driver says so that refuses something: at once, or when what the stream was given before is done.
enum class Refused { at_once, late };

/// While this lives, the driver does the first `taken` operations that the calling thread gives to streams, and
/// refuses the next `refused`.
class Refusals {
 public:
  Refusals(unsigned taken, unsigned refused, Refused when = Refused::late);
  Refusals(const Refusals&) = delete;
  Refusals& operator=(const Refusals&) = delete;
  ~Refusals();
  /// Only an emulated driver refuses what it could do.
  static bool possible();
};

/// The context of the calling thread's GPU keeps an error from now on, and does nothing more. By an emulated driver
/// alone.
void fail_gpu_for_good();

/// Copies now, whatever streams wait for.
void gpu_copy(void* to, const void* from, std::size_t bytes);

}  // namespace sluice::test
