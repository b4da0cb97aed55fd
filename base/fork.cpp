// SPDX-License-Identifier: Apache-2.0
#include "base/fork.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace sluice::base {

constinit WipedPage wiped_page;

namespace {

constexpr std::int64_t kStep = 16;

std::atomic<std::int64_t> g_last{0};  // of this process and its ancestors

void wipe() { wiped_page.process.store(0); }

/// Makes a child find zeros. No file backs a whole page of zeros, so the kernel can wipe it. Kernels before 4.14 and
/// kernels with larger pages cannot: there a handler of the C library's `fork` does.
void wipe_in_children() {
  const bool whole = ::sysconf(_SC_PAGESIZE) == static_cast<long>(sizeof wiped_page);
  if (whole && ::madvise(&wiped_page, sizeof wiped_page, MADV_WIPEONFORK) == 0) return;
  if (::pthread_atfork(nullptr, nullptr, wipe) != 0) throw std::bad_alloc();
}

}  // namespace

std::int64_t this_process() {
  if (const std::int64_t known = process_if_known(); known != 0) return known;
  wipe_in_children();  // first: no child may find the number
  std::int64_t number = 0;
  const std::int64_t next = g_last.fetch_add(kStep) + kStep;
  return wiped_page.process.compare_exchange_strong(number, next) ? next : number;
}

}  // namespace sluice::base
