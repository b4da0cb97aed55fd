// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/counting.hpp"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <set>
#include <vector>

#include "tests/peers.hpp"

// ---- allocations and locks: malloc and pthread_mutex_lock are replaced by functions that count and call glibc's

namespace {
std::atomic<std::uint64_t> g_allocations{0};
thread_local std::uint64_t g_locks = 0;
std::atomic<int (*)(pthread_mutex_t*)> g_mutex_lock{nullptr};
}  // namespace

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) && defined(__GLIBC__)
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the names are glibc's own
extern "C" {
void* libc_malloc(std::size_t bytes) __asm__("__libc_malloc");
void* libc_calloc(std::size_t count, std::size_t bytes) __asm__("__libc_calloc");
void* libc_realloc(void* memory, std::size_t bytes) __asm__("__libc_realloc");
void* libc_memalign(std::size_t alignment, std::size_t bytes) __asm__("__libc_memalign");

void* malloc(std::size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return libc_memalign(alignment, bytes);
}

extern const char program_begin asm("__executable_start");  // of the program's own code, as the linker places it
extern const char program_end asm("etext");
int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  auto* lock = g_mutex_lock.load(std::memory_order_relaxed);
  if (lock == nullptr) {
    lock = reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
    g_mutex_lock.store(lock, std::memory_order_relaxed);
  }
  const auto* const caller = static_cast<const char*>(__builtin_return_address(0));
  if (caller >= &program_begin && caller < &program_end) ++g_locks;
  return lock(mutex);
}
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
#endif

namespace sluice::test {

std::uint64_t allocations() noexcept { return g_allocations.load(std::memory_order_relaxed); }
std::uint64_t locks() noexcept { return g_locks; }

// ---- system calls: a parent traces each (ptrace), between two marker calls

namespace {

constexpr long kMark = SYS_getpgid;
constexpr std::uint64_t kBegin = 0x51'0001;
constexpr std::uint64_t kEnd = 0x51'0002;
constexpr std::uint64_t kBeginSteps = 0x51'0003;
constexpr std::uint64_t kBeginWatch = 0x51'0004;

/// Shared with the child.
struct SharedPage {
  std::atomic<int> steps{0};  ///< 1 while it is to be stepped
  std::array<const void*, 2> watched{};
};
SharedPage* g_shared = nullptr;

/// Runs in the child, under the tracer's eyes.
[[noreturn]] void be_traced(const std::function<int()>& work) {
  if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(errno == 0 ? 255 : 254);
  ::raise(SIGSTOP);
  std::exit(work());
}

/// Follows the child until its end.
class Tracer {
 public:
  Tracer(pid_t child, Others others) : child_(child), others_(others) {}

  SystemCalls follow() {
    int status = 0;
    for (pid_t who; (who = ::waitpid(-1, &status, __WALL)) > 0;) {
      if (who != child_) {
        if (WIFSTOPPED(status)) let_other_go_on(who, status);
        continue;
      }
      if (!WIFSTOPPED(status)) break;
      after_stop(status);
    }
    calls_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (!seen_end_ && calls_.why_not.empty()) calls_.why_not = "the tracer saw no system call at all";
    return calls_;
  }

 private:
  void after_stop(int status) {
    const int signal = WSTOPSIG(status);
    if (first_) {
      first_ = false;
      const long of_others = others_ == Others::stand_still ? PTRACE_O_TRACECLONE : 0;
      ::ptrace(PTRACE_SETOPTIONS, child_, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | of_others);
      go_on(0);
    } else if (signal == (SIGTRAP | 0x80)) {
      look();
      go_on(0);
    } else if (status >> 8 == (SIGTRAP | PTRACE_EVENT_CLONE << 8)) {
      go_on(0);
    } else if (signal == SIGTRAP && watching_) {
      count_accesses();
      go_on(0);
    } else if (signal == SIGTRAP && stepping_) {
      stepping_ = g_shared->steps.load() != 0;
      if (stepping_) count_instruction();
      go_on(0);
    } else {
      go_on(signal);
    }
    if (stepping_) return;
    for (const pid_t other : held_) ::ptrace(PTRACE_SYSCALL, other, nullptr, 0);
    held_.clear();
  }

  void let_other_go_on(pid_t other, int status) {
    const int signal = WSTOPSIG(status);
    const bool of_call = signal == (SIGTRAP | 0x80);
    const bool of_tracing = of_call || signal == SIGSTOP || signal == SIGTRAP;
    if (of_call && is_wait(other) && stepping_) return held_.push_back(other);
    ::ptrace(PTRACE_SYSCALL, other, nullptr, of_tracing ? 0 : signal);
  }
  /// The thread stands before or behind a call in which it sleeps, and seldom holds a lock that the traced one wants.
  bool is_wait(pid_t other) {
    constexpr std::array kWaits{SYS_futex,       SYS_ppoll,           SYS_pselect6,
                                SYS_epoll_pwait, SYS_clock_nanosleep, SYS_nanosleep};
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, other, sizeof info, &info) <= 0) return false;
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return waiting_.erase(other) != 0;
    const bool waits = std::ranges::find(kWaits, static_cast<long>(info.entry.nr)) != kWaits.end();
    if (waits) waiting_.insert(other);
    return waits;
  }

  void go_on(long signal) const { ::ptrace(stepping_ ? PTRACE_SINGLESTEP : PTRACE_SYSCALL, child_, nullptr, signal); }

  void look() {
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, child_, sizeof info, &info) <= 0) {
      calls_.why_not = "PTRACE_GET_SYSCALL_INFO is not there";
      return;
    }
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return;
    const bool mark = static_cast<long>(info.entry.nr) == kMark;
    if (mark && info.entry.args[0] == kBeginSteps) {
      stepping_ = true;
    } else if (mark && info.entry.args[0] == kBeginWatch) {
      watch(true);
    } else if (mark && info.entry.args[0] == kBegin) {
      counting_ = true;
    } else if (mark && info.entry.args[0] == kEnd) {
      counting_ = false;
      seen_end_ = true;
      if (watching_) watch(false);
    } else if (counting_ && calls_.count++ == 0) {
      calls_.first = static_cast<long>(info.entry.nr);
    }
  }

#if defined(__x86_64__)
  /// The next one.
  void count_instruction() {
    ++calls_.instructions;
    user_regs_struct registers{};
    if (::ptrace(PTRACE_GETREGS, child_, nullptr, &registers) != 0) return;
    std::array<std::uint8_t, sizeof(long)> bytes{};
    const long word = ::ptrace(PTRACE_PEEKTEXT, child_, registers.rip, nullptr);
    std::memcpy(bytes.data(), &word, sizeof word);
    calls_.locked += is_locked(bytes) ? 1 : 0;
    calls_.fetches += is_fetch(bytes) ? 1 : 0;
  }
  /// A lock prefix (F0), xchg with memory (86, 87), or mfence (0F AE F0). Intel's Software Developer's Manual,
  /// volume 2.
  static bool is_locked(const std::array<std::uint8_t, sizeof(long)>& bytes) {
    const std::size_t at = behind_prefixes(bytes);
    const bool exchanges = (bytes[at] == 0x86 || bytes[at] == 0x87) && bytes[at + 1] >> 6 != 3;
    return bytes[at] == 0xF0 || exchanges || (bytes[at] == 0x0F && bytes[at + 1] == 0xAE && bytes[at + 2] == 0xF0);
  }
  /// `prefetchw` is 0F 0D /1.
  static bool is_fetch(const std::array<std::uint8_t, sizeof(long)>& bytes) {
    const std::size_t at = behind_prefixes(bytes);
    return bytes[at] == 0x0F && bytes[at + 1] == 0x0D && (bytes[at + 2] >> 3) % 8 == 1;
  }
  static std::size_t behind_prefixes(const std::array<std::uint8_t, sizeof(long)>& bytes) {
    std::size_t at = 0;
    for (; at < 4 && (bytes[at] == 0x66 || bytes[at] == 0xF2 || bytes[at] == 0xF3 || bytes[at] >> 4 == 4); ++at) {
    }
    return at;
  }
  void set_debug_register(std::size_t which, std::uint64_t value) {
    const auto at = offsetof(user, u_debugreg) + which * sizeof(user::u_debugreg[0]);
    if (::ptrace(PTRACE_POKEUSER, child_, at, value) != 0)
      calls_.why_not = std::string("no debug registers: ") + std::strerror(errno);
  }
  /// Bits 0 and 2 switch registers 0 and 1 on; their fields from bits 16 and 20 say: loads and stores (11), of 8 bytes
  /// (10). Intel's Software Developer's Manual, volume 3, 18.2.4.
  void watch(bool on) {
    constexpr std::uint64_t kBoth = 0b101 | 0b1011'1011ULL << 16;
    for (std::size_t i = 0; on && i < g_shared->watched.size(); ++i)
      set_debug_register(i, reinterpret_cast<std::uintptr_t>(g_shared->watched[i]));
    set_debug_register(7, on ? kBoth : 0);
    watching_ = on && calls_.why_not.empty();
  }
  void count_accesses() {
    constexpr std::size_t kStatus = 6;
    const auto at = offsetof(user, u_debugreg) + kStatus * sizeof(user::u_debugreg[0]);
    const long status = ::ptrace(PTRACE_PEEKUSER, child_, at, nullptr);
    for (std::size_t i = 0; i < calls_.accesses.size(); ++i)
      calls_.accesses[i] += (static_cast<std::uint64_t>(status) >> i) & 1U;
    set_debug_register(kStatus, 0);
  }
#else
  void count_instruction() { ++calls_.instructions; }
  void watch(bool) { calls_.why_not = "words are watched on x86-64"; }
  void count_accesses() {}
#endif

  pid_t child_;
  Others others_;
  bool first_ = true;
  bool stepping_ = false;
  bool watching_ = false;
  bool counting_ = false;
  bool seen_end_ = false;
  std::set<pid_t> waiting_;  // other threads, in a call in which they sleep
  std::vector<pid_t> held_;  // of these, those that stand still
  SystemCalls calls_;
};

}  // namespace

void begin_counting() noexcept { ::syscall(kMark, kBegin); }
void end_counting() noexcept { ::syscall(kMark, kEnd); }

void begin_stepping() noexcept {
  g_shared->steps.store(1);
  ::syscall(kMark, kBeginSteps);
}
void end_stepping() noexcept {
  g_shared->steps.store(0);
  end_counting();
}
void begin_watching(const void* first, const void* second) noexcept {
  g_shared->watched = {first, second};
  ::syscall(kMark, kBeginWatch);
}
void end_watching() noexcept { end_counting(); }

SystemCalls count_system_calls(const std::function<int()>& work, Others others) {
  std::fflush(nullptr);
  if (g_shared == nullptr) {
    void* const page = ::mmap(nullptr, sizeof *g_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return {.why_not = std::string("mmap: ") + std::strerror(errno)};
    g_shared = ::new (page) SharedPage;
  }
  const pid_t child = ::fork();
  if (child == 0) be_traced(work);
  if (child < 0) return {.why_not = std::string("fork: ") + std::strerror(errno)};
  return Tracer(child, others).follow();
}

}  // namespace sluice::test
