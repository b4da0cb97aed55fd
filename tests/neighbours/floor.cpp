// SPDX-License-Identifier: Apache-2.0
// The machine's floor for KokkosComm's benchmarks: bytes are copied from private memory into memory that both ranks
// map, and then a flag is raised. No flow control, no queue, no requests. Rows as Google Benchmark prints them.
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kLine = 64;

/// A rank's memory, which the other rank writes to: a flag, and the targets behind it.
struct Segment {
  std::atomic<std::uint64_t>* flag;
  char* target;
};

class Pair {
 public:
  explicit Pair(std::size_t bytes) : source_(bytes, 'x') {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    void* mine = nullptr;
    MPI_Win_allocate_shared(static_cast<MPI_Aint>(kLine + bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &window_);
    std::memset(mine, 0, kLine + bytes);
    own_ = segment(rank);
    peer_ = segment(1 - rank);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() { MPI_Win_free(&window_); }

  void put(std::size_t bytes, int count) {
    for (int i = 0; i < count; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * bytes;
      std::memcpy(peer_.target + at, source_.data() + at, bytes);
    }
    peer_.flag->store(++put_, std::memory_order_release);
  }
  void wait() {
    ++waited_;
    while (own_.flag->load(std::memory_order_acquire) < waited_) {
    }
  }

  int rank = 0;

 private:
  Segment segment(int of) const {
    MPI_Aint bytes = 0;
    int unit = 0;
    char* at = nullptr;
    MPI_Win_shared_query(window_, of, &bytes, &unit, &at);
    return {reinterpret_cast<std::atomic<std::uint64_t>*>(at), at + kLine};
  }

  std::vector<char> source_;
  MPI_Win window_ = MPI_WIN_NULL;
  Segment own_{}, peer_{};
  std::uint64_t put_ = 0, waited_ = 0;
};

/// The mean of the times that the slower rank takes, as KokkosComm's benchmarks take them.
template <class Cycle>
void measure(const std::string& row, int rank, Cycle cycle) {
  constexpr double kSeconds = 0.2;
  double sum = 0;
  long count = 0;
  for (int i = 0; i < 20; ++i) cycle();
  for (; sum < kSeconds && count < 200'000; ++count) {
    const double begin = MPI_Wtime();
    cycle();
    const double took = MPI_Wtime() - begin;
    double slower = 0;
    MPI_Allreduce(&took, &slower, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    sum += slower;
  }
  if (rank == 0) std::printf("%s/manual_time %.3f us\n", row.c_str(), sum / static_cast<double>(count) * 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const std::string name = argc > 1 ? argv[1] : "";
  if (name == "bench_latency") {
    for (std::size_t bytes = 1; bytes <= 1U << 21U; bytes *= 8) {
      Pair pair(bytes);
      measure("bench_KC_MpiSpace/" + std::to_string(bytes), pair.rank, [&] {
        if (pair.rank == 0) pair.put(bytes, 1);
        pair.wait();
        if (pair.rank == 1) pair.put(bytes, 1);
      });
    }
  } else if (name == "bench_channel_p2p") {
    for (int pairs = 1; pairs <= 16; pairs *= 2) {
      for (std::size_t bytes = 1; bytes <= 1U << 23U; bytes = bytes < 1U << 21U ? 8 * bytes : 4 * bytes) {
        Pair pair(bytes * static_cast<std::size_t>(pairs));
        measure("benchmark_channel_p2p/bytes:" + std::to_string(bytes) + "/operation_pairs:" + std::to_string(pairs),
                pair.rank, [&] {
                  pair.put(bytes, pairs);
                  pair.wait();
                });
      }
    }
  }
  MPI_Finalize();
  return name == "bench_latency" || name == "bench_channel_p2p" ? 0 : 2;
}
