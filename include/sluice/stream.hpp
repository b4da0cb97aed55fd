// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/export.hpp>
#include <sluice/types.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

struct CUstream_st;   // cudaStream_t is a pointer to this
struct ihipStream_t;  // hipStream_t is a pointer to this

namespace sluice {

/// A stream without a GPU: a FIFO that one thread runs in order. Word writes and word waits are ordered in it as on a
/// GPU stream.
///
/// Any thread may enqueue. A full queue blocks who enqueues, as a CUDA stream does, except from inside the stream
/// itself, which never blocks. An idle stream uses no CPU. In a child of fork its calls throw
/// Error{Code::misuse}, and its destructor returns at once.
class SLUICE_EXPORT HostStream {
 public:
  struct Options {
    std::size_t capacity = 65536;  ///< items in the queue, rounded up to a power of two
    int cpu = -1;                  ///< core to run on; -1: any
    Timeout timeout = kForever;    ///< a channel whose wait lasts longer on this stream fails with Code::timeout
    /// The first failed wait stops the stream until the next `synchronize`, which throws the failure. A stopped stream
    /// destroys callables in order without running them. Channels and plans whose verbs it reaches fail with
    /// Code::aborted.
    bool stop_after_failure = false;
  };

  HostStream();
  /// @throws Error{Code::bad_argument} for no capacity or no such core, {Code::out_of_resources} if no thread can be
  /// had.
  explicit HostStream(Options options);

  /// Runs what can run and ends parked waits: their channels fail with Code::aborted. From inside the stream: not
  /// allowed.
  ~HostStream();
  HostStream(HostStream&&) noexcept;
  HostStream& operator=(HostStream&&) noexcept;

  /// Enqueues `work()`; it is moved in, and up to 64 bytes fit without an allocation. What it throws, `synchronize`
  /// throws.
  template <std::invocable F>
  void run(F work) {
    push(Work(std::move(work)));
  }

  /// Blocks until everything enqueued before has run. Restarts a stream that has stopped.
  /// @throws the first exception that the work threw since the last call; else, if the stream had stopped, the failure
  ///   that stopped it.
  void synchronize();

  /// True if a `wait`, `acquire` or `put` on this stream has found its channel failed since the last `synchronize`.
  /// A long callable can check it and return early. Any thread.
  bool failed() const noexcept;

  struct Impl;

 private:
  friend class Stream;

  /// A move-only callable with 64 bytes of its own.
  class Work {
   public:
    Work() noexcept = default;
    template <class F>
    explicit Work(F callable);
    Work(Work&& other) noexcept { take(other); }
    Work& operator=(Work&& other) noexcept {
      if (this != &other) {
        reset();
        take(other);
      }
      return *this;
    }
    ~Work() { reset(); }

    void operator()() { operations_->call(storage_); }

   private:
    struct Operations {
      void (*call)(void*);
      void (*relocate)(void* to, void* from) noexcept;
      void (*destroy)(void*) noexcept;
    };
    static constexpr std::size_t kBytes = 64;
    template <class F>
    static constexpr bool kFits = sizeof(F) <= kBytes &&
                                  alignof(F) <= alignof(std::max_align_t) && std::is_nothrow_move_constructible_v<F>;
    template <class F>
    static const Operations kInPlace;
    template <class F>
    static const Operations kOnHeap;

    void reset() noexcept {
      if (operations_ != nullptr) operations_->destroy(storage_);
      operations_ = nullptr;
    }
    void take(Work& other) noexcept {
      operations_ = std::exchange(other.operations_, nullptr);
      if (operations_ != nullptr) operations_->relocate(storage_, other.storage_);
    }

    const Operations* operations_ = nullptr;
    alignas(std::max_align_t) std::byte storage_[kBytes];
  };

  void push(Work work);
  Impl& in() const;

  std::unique_ptr<Impl> impl_;
};

template <class F>
HostStream::Work::Work(F callable) {
  if constexpr (kFits<F>) {
    ::new (storage_) F(std::move(callable));
    operations_ = &kInPlace<F>;
  } else {
    ::new (storage_) F*(new F(std::move(callable)));
    operations_ = &kOnHeap<F>;
  }
}

template <class F>
const HostStream::Work::Operations HostStream::Work::kInPlace = {[](void* at) { (*static_cast<F*>(at))(); },
                                                                 [](void* to, void* from) noexcept {
                                                                   ::new (to) F(std::move(*static_cast<F*>(from)));
                                                                   static_cast<F*>(from)->~F();
                                                                 },
                                                                 [](void* at) noexcept { static_cast<F*>(at)->~F(); }};

template <class F>
const HostStream::Work::Operations HostStream::Work::kOnHeap = {
    [](void* at) { (**static_cast<F**>(at))(); },
    [](void* to, void* from) noexcept { ::new (to) F*(*static_cast<F**>(from)); },
    [](void* at) noexcept { delete *static_cast<F**>(at); }};

/// A borrowed stream: a handle and its kind. What it names outlives the channels used on it.
class SLUICE_EXPORT Stream {
 public:
  enum class Kind : std::uint8_t { program_order, host, cuda, hip };

  /// Program order: the calling thread is the stream, and each operation has happened when its call returns.
  Stream() noexcept = default;
  bool operator==(const Stream&) const noexcept = default;

  static Stream program_order() noexcept { return {}; }
  static Stream host(HostStream& stream) noexcept { return {Kind::host, stream.impl_.get()}; }
  /// nullptr is CUDA's legacy default stream, never program order.
  static Stream cuda(CUstream_st* stream) noexcept { return {Kind::cuda, stream}; }
  static Stream hip(ihipStream_t* stream) noexcept { return {Kind::hip, stream}; }

  Kind kind() const noexcept { return kind_; }
  void* handle() const noexcept { return handle_; }

 private:
  Stream(Kind kind, void* handle) noexcept : handle_(handle), kind_(kind) {}

  void* handle_ = nullptr;
  Kind kind_ = Kind::program_order;
};

}  // namespace sluice
