// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/export.hpp>
#include <sluice/types.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>

struct CUstream_st;   // cudaStream_t is a pointer to this
struct ihipStream_t;  // hipStream_t is a pointer to this

namespace sluice {

/// A point between the items of a HostStream, made by `HostStream::record`. Copies are cheap; any thread may use them.
class SLUICE_EXPORT HostEvent {
 public:
  /// Reached from the start.
  HostEvent() noexcept = default;

  struct Impl;

 private:
  friend class HostStream;
  explicit HostEvent(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

/// A stream without a GPU: a FIFO queue whose items run one after another, in order. The verbs of channels and plans
/// are items of it, and wait there as on a GPU's stream. Callables run in one thread of the stream's own; verbs also in
/// threads that synchronize with the stream, and a short one that waits for nothing in its call.
///
/// Any thread may enqueue, also a callable on the stream itself. Enqueueing on a full queue blocks the caller, except
/// inside the stream, where it never blocks. An idle stream uses no CPU.
///
/// In a child of fork, `run` and `synchronize` throw Error{Code::misuse}, and the destructor returns at once.
class SLUICE_EXPORT HostStream {
 public:
  struct Options {
    /// The most items in the queue, 1 or more; rounded up to a power of two.
    std::size_t capacity = 65536;
    /// The core that the thread runs on; -1: any.
    int cpu = -1;
    /// The longest time for which one wait on this stream may last. A wait that lasts longer fails its channel with
    /// Code::timeout. The limit of the context applies too.
    Timeout timeout = kForever;
    /// If true, the first failed wait stops the stream too, as a callable that throws does (see `run`), until the next
    /// `synchronize`, which throws the failure.
    bool stop_after_failure = false;
    /// A name for messages and the timeline. The text is copied.
    std::string_view name = {};
  };

  /// A stream with the default options. @throws Error{Code::out_of_resources} without memory or without a thread.
  HostStream();
  /// @throws Error{Code::bad_argument} if `capacity` is 0 or there is no core `cpu`; {Code::out_of_resources} without
  ///   memory for the queue, or without a thread.
  explicit HostStream(Options options);

  /// Blocks until all enqueued items have run. A wait that is not fulfilled ends, and its channel fails with
  /// Code::aborted: the stream stops there, and runs no callable behind. An exception of a callable that no
  /// `synchronize` has thrown is a line on stderr, and `run` returns 1. Must not be called inside the stream.
  ~HostStream();
  /// The handles of `Stream::host` stay valid. The stream that was moved from is empty: its `run` and `synchronize`
  /// throw Error{Code::misuse}.
  HostStream(HostStream&&) noexcept;
  /// Destroys the stream that was here, as the destructor does.
  HostStream& operator=(HostStream&&) noexcept;

  /// Enqueues `work()` and returns. `work` is moved in; up to 64 bytes of it need no allocation. If `work()` throws,
  /// the stream stops until the next `synchronize`, which throws the exception. A stopped stream destroys callables in
  /// order without running them. A verb that it reaches moves nothing and fails its channel, or all channels of its
  /// plan, with Code::aborted and the text of the exception, here and at the peer.
  /// @throws Error{Code::misuse} if the stream was moved from, and in a child of fork.
  template <std::invocable F>
  void run(F work) {
    push(Work(std::move(work)));
  }

  /// Blocks until everything that was enqueued before has run, for at most `timeout`. Restarts a stream that has
  /// stopped. A failure of a channel is thrown once, here or by `Context::check`.
  /// @throws the exception of the callable that stopped the stream; else the failure that stopped it; else the oldest
  ///   failure that a verb has met on this stream and that was not thrown yet. Error{Code::timeout}: nothing has
  ///   changed. {Code::misuse} inside the stream, if it was moved from, and in a child of fork.
  void synchronize(Timeout timeout = kForever);

  /// Returns the point behind everything that was enqueued before.
  /// @throws Error{Code::misuse} if the stream was moved from, and in a child of fork.
  HostEvent record();
  /// Later items run only when `event` is reached, for which Options::timeout is the limit. If the stream that recorded
  /// it had stopped there, this stream stops too.
  /// @throws Error{Code::misuse} if the stream was moved from, and in a child of fork.
  void wait(HostEvent event);

  /// True if a wait on this stream has failed since the last `synchronize`: one of `wait`, `put`, or `acquire` where it
  /// has to wait, whose channel has failed. A long callable can check it and return early. Any thread.
  bool failed() const noexcept;

  struct Impl;

 private:
  friend class Stream;

  /// A move-only callable with 64 bytes of its own.
  class Work {
   public:
    template <class F>
    explicit Work(F callable) {
      if constexpr (sizeof(F) <= kBytes && alignof(F) <= alignof(std::max_align_t) &&
                    std::is_nothrow_move_constructible_v<F>) {
        hold(std::move(callable));
      } else {
        hold([on_heap = std::make_unique<F>(std::move(callable))] { (*on_heap)(); });
      }
    }
    Work(Work&& other) noexcept : operations_(std::exchange(other.operations_, nullptr)) {
      if (operations_ != nullptr) operations_->relocate(storage_, other.storage_);
    }
    ~Work() {
      if (operations_ != nullptr) operations_->destroy(storage_);
    }

    void operator()() { operations_->call(storage_); }

   private:
    static constexpr std::size_t kBytes = 64;
    struct Operations {
      void (*call)(void*);
      void (*relocate)(void* to, void* from) noexcept;
      void (*destroy)(void*) noexcept;
    };
    template <class F>
    static constexpr Operations kOperations = {[](void* at) { (*static_cast<F*>(at))(); },
                                               [](void* to, void* from) noexcept {
                                                 ::new (to) F(std::move(*static_cast<F*>(from)));
                                                 static_cast<F*>(from)->~F();
                                               },
                                               [](void* at) noexcept { static_cast<F*>(at)->~F(); }};

    template <class F>
    void hold(F&& callable) {
      ::new (storage_) F(std::forward<F>(callable));
      operations_ = &kOperations<F>;
    }

    const Operations* operations_ = nullptr;
    alignas(std::max_align_t) std::byte storage_[kBytes];
  };

  void push(Work work);

  std::unique_ptr<Impl> impl_;
};

/// A handle of a stream, which it does not own: the stream must outlive the channels and plans that are used on it.
/// Copies are cheap; any thread may use them.
class SLUICE_EXPORT Stream {
 public:
  enum class Kind : std::uint8_t { program_order, host, cuda, hip };

  /// Program order: the calling thread is the stream, and runs each verb inside its call.
  Stream() noexcept = default;
  bool operator==(const Stream&) const noexcept = default;

  static Stream program_order() noexcept { return {}; }
  static Stream host(HostStream& stream) noexcept { return {Kind::host, stream.impl_.get()}; }
  /// A cudaStream_t. nullptr is CUDA's legacy default stream, never program order.
  static Stream cuda(CUstream_st* stream) noexcept { return {Kind::cuda, stream}; }
  /// A hipStream_t. nullptr is HIP's default stream.
  static Stream hip(ihipStream_t* stream) noexcept { return {Kind::hip, stream}; }

  Kind kind() const noexcept { return kind_; }
  /// The pointer that the handle was made from; of a HostStream one of Sluice's own; nullptr in program order.
  void* handle() const noexcept { return handle_; }

 private:
  Stream(Kind kind, void* handle) noexcept : handle_(handle), kind_(kind) {}

  void* handle_ = nullptr;
  Kind kind_ = Kind::program_order;
};

}  // namespace sluice
