// SPDX-License-Identifier: Apache-2.0
// Reports to ThreadSanitizer: the reads of a put, the writes of an arrival, and the order of streams and channels. In
// builds without it everything here is empty, and nothing is compiled.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_THREAD__)
#define SLUICE_TELLS_OF_RACES 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLUICE_TELLS_OF_RACES 1
#endif
#endif

namespace sluice::base::races {

#ifdef SLUICE_TELLS_OF_RACES

inline constexpr bool kOn = true;

/// Return address of the program's call, for reports of accesses that the call has caused elsewhere.
inline thread_local constinit const void* place = nullptr;

/// In a public function: its caller is the place as long as this lives.
class Called {
 public:
  [[gnu::always_inline]] Called() noexcept : before_(place) { place = __builtin_return_address(0); }
  ~Called() { place = before_; }
  Called(const Called&) = delete;
  Called& operator=(const Called&) = delete;

 private:
  const void* before_;
};

/// Work that is enqueued now and runs in another thread: there its place is the place, and is in all stacks.
class Item {
 public:
  void enqueued() noexcept { place_ = place; }

  class Running {
   public:
    explicit Running(const Item& item) noexcept;
    ~Running();
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    const void* const before_;
  };

 private:
  const void* place_ = nullptr;
};

/// As long as this lives, what the thread does orders it with no other thread. For how a thread is woken: that a stream
/// slept when a program called it must not hide that the program did not wait for the stream.
class NoOrder {
 public:
  NoOrder() noexcept;
  ~NoOrder();
  NoOrder(const NoOrder&) = delete;
  NoOrder& operator=(const NoOrder&) = delete;
};

/// As long as this lives, what the thread loads and stores is not seen. For calls of a network's library, which is not
/// compiled for ThreadSanitizer: some of its loads and stores would be seen, and what orders them would not.
class Unseen {
 public:
  Unseen() noexcept;
  ~Unseen();
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};

/// The slots of one end of a channel. A NIC or another process accesses a slot at a time that no thread sees: after the
/// program has given the slot to the channel, and before the program takes it back. So the access is reported as
/// one of a line of execution of its own (a fiber), which is ordered with nothing else. Processes with more than
/// 32 ends tell nothing of this: fibers make ThreadSanitizer too slow.
class Slots {
 public:
  Slots(int rank, int peer, std::uint64_t tag, bool sends, std::uint64_t depth);
  ~Slots();
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  /// A put that is fired now reads these bytes until its slot is taken back. One thread at a time.
  void reads(std::uint64_t slot, const void* data, std::size_t bytes) noexcept;
  /// The channel may write to the slot from now on.
  void given(std::uint64_t slot) noexcept;
  /// These bytes of the slot have been written since it was given, and by now. `signal`: if threads of this process
  /// have written them, they have called `put_wrote` with it. Takes the slot back. One thread at a time.
  void arrives(std::uint64_t slot, void* data, std::size_t bytes, void* signal) noexcept;
  /// The channel accesses the slot no more.
  void taken_back(std::uint64_t slot) noexcept;
  void all_taken_back() noexcept;

 private:
  struct Slot {
    char given = 0;  // addresses, which are acquired and released
    char accessed = 0;
  };
  struct Fiber;
  struct Access;

  void tell(std::uint64_t slot, const Access& access) noexcept;
  Fiber* own_fiber() const;

  const int rank_, peer_;
  const std::uint64_t tag_, depth_;
  const bool sends_;
  std::atomic_flag busy_;
  bool asked_ = false;
  Fiber* fiber_ = nullptr;
  Slot* const slots_;
};

/// A put reads these bytes now, in this thread.
void put_reads(const void* data, std::size_t bytes) noexcept;
/// An arrival writes these bytes now, in this thread.
void arrival_writes(void* data, std::size_t bytes) noexcept;
/// A put has written its bytes in this thread, and will raise this word.
void put_wrote(void* signal) noexcept;

#else

inline constexpr bool kOn = false;

struct Called {
  [[gnu::always_inline]] Called() noexcept {}
};

struct Item {
  void enqueued() noexcept {}
  struct Running {
    explicit Running(const Item&) noexcept {}
  };
};

struct NoOrder {
  NoOrder() noexcept {}
};

struct Unseen {
  Unseen() noexcept {}
};

struct Slots {
  Slots(int, int, std::uint64_t, bool, std::uint64_t) noexcept {}
  void reads(std::uint64_t, const void*, std::size_t) noexcept {}
  void given(std::uint64_t) noexcept {}
  void arrives(std::uint64_t, void*, std::size_t, void*) noexcept {}
  void taken_back(std::uint64_t) noexcept {}
  void all_taken_back() noexcept {}
};

inline void put_reads(const void*, std::size_t) noexcept {}
inline void arrival_writes(void*, std::size_t) noexcept {}
inline void put_wrote(void*) noexcept {}

#endif

}  // namespace sluice::base::races
