// SPDX-License-Identifier: Apache-2.0
// Collectives that combine: the order of the ranks, functions of the program, and numbers on streams of GPUs.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class Combining : public testing::TestWithParam<Case> {
 public:
  static Peers peers() {
    Peers peers = GetParam().peers();
    peers.limit = 90s;
    // Streams of threads share the hardware queues of a process, where one that waits holds up those behind it.
    if (GetParam().cuda) peers.environment.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS=32");
    return peers;
  }
};

/// On streams of a GPU.
class GpuCombining : public Combining {};

template <class T>
std::span<T> elements(const Slice& slice) {
  return {reinterpret_cast<T*>(slice.data()), slice.bytes() / sizeof(T)};
}

/// Starts it once, between two functions in the order of the stream.
template <class Before, class After>
void start_once(test::Order& order, Collective& collective, Before before, After after) {
  order.run(before);
  collective.start(order.stream());
  collective.wait(order.stream());
  order.run(after);
}

// ---- the order of ranks

/// A number of a rank; sums of these numbers depend on the order.
float summand(std::size_t rank, std::size_t i) {
  std::minstd_rand random(static_cast<unsigned>(rank * 7919 + i + 1));
  random.discard(3);
  const float scale = static_cast<float>(1U << (random() % 24U));
  return std::uniform_real_distribution<float>(-scale, scale)(random);
}

/// From the left to the right, of ranks 0 to `last`.
float left_fold(std::size_t last, std::size_t i) {
  float sum = summand(0, i);
  for (std::size_t rank = 1; rank <= last; ++rank) sum += summand(rank, i);
  return sum;
}

TEST_P(Combining, in_a_fixed_order_gives_the_bits_of_a_serial_sum_whatever_the_count) {
  run_peers(peers(), [](Context& context) {
    const auto size = static_cast<std::size_t>(context.size());
    const auto own = static_cast<std::size_t>(context.rank());
    const CollectiveOptions fixed{.fixed_order = true};
    for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{17}, std::size_t{5000}}) {
      const std::size_t bytes = count * sizeof(float);
      test::Order order(GetParam());
      const Buffer source(context, GetParam(), bytes);
      const Buffer result(context, GetParam(), bytes);
      const auto root = static_cast<Rank>(count % size);
      Collective every = allreduce(context, "every", Op::sum, Number::float32, source.all(), result.all(), fixed);
      Collective up = reduce(context, "up", Op::sum, Number::float32, source.all(), result.all(), root, fixed);
      Collective prefix = scan(context, "prefix", Op::sum, Number::float32, source.all(), result.all(), fixed);
      const auto fill_in = [&, count] {
        for (std::size_t i = 0; i < count; ++i) elements<float>(source.all())[i] = summand(own, i);
      };
      const auto expect = [&, count](std::size_t last) {
        for (std::size_t i = 0; i < count; ++i) {
          const auto bits = std::bit_cast<std::uint32_t>(elements<float>(result.all())[i]);
          ASSERT_EQ(bits, std::bit_cast<std::uint32_t>(left_fold(last, i))) << count << ", " << i;
        }
      };
      for (int round = 0; round < 2; ++round) {
        start_once(order, every, fill_in, [&] { expect(size - 1); });
        start_once(order, up, fill_in, [&] {
          if (context.rank() == root) expect(size - 1);
        });
        start_once(order, prefix, fill_in, [&] { expect(own); });
      }
      context.synchronize(order.stream());
    }
    const Buffer memory(context, GetParam(), 64);
    expect_code(Code::bad_argument, [&] {
      (void)allreduce(context, "other", Op::sum, Number::float32, memory.all(), memory.all(),
                      {.algorithm = "recursive doubling", .fixed_order = true});
    });
  });
}

// ---- functions of the program

/// Products of these depend on the order, but not on how they are grouped.
struct Matrix {
  std::array<std::uint32_t, 4> of;
  bool operator==(const Matrix&) const = default;
};

Matrix product(const Matrix& a, const Matrix& b) {
  return {{a.of[0] * b.of[0] + a.of[1] * b.of[2], a.of[0] * b.of[1] + a.of[1] * b.of[3],
           a.of[2] * b.of[0] + a.of[3] * b.of[2], a.of[2] * b.of[1] + a.of[3] * b.of[3]}};
}

Matrix matrix_of(std::size_t rank, std::size_t i) {
  const auto seed = static_cast<std::uint32_t>(rank * 101 + i * 7 + 3);
  return {{seed, seed * seed + 1, 2 * seed + 5, seed ^ 0x55U}};
}

Matrix product_of(std::size_t last, std::size_t i) {
  Matrix all = matrix_of(0, i);
  for (std::size_t rank = 1; rank <= last; ++rank) all = product(all, matrix_of(rank, i));
  return all;
}

void multiply(const void* in, void* in_out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Matrix first;
    Matrix second;
    std::memcpy(&first, static_cast<const Matrix*>(in) + i, sizeof first);
    std::memcpy(&second, static_cast<Matrix*>(in_out) + i, sizeof second);
    const Matrix result = product(first, second);
    std::memcpy(static_cast<Matrix*>(in_out) + i, &result, sizeof result);
  }
}

TEST_P(Combining, by_a_function_keeps_the_order_of_the_ranks) {
  run_peers(peers(), [](Context& context) {
    const auto size = static_cast<std::size_t>(context.size());
    const auto own = static_cast<std::size_t>(context.rank());
    const Combiner matrices{.combine = multiply, .bytes = sizeof(Matrix)};
    for (const std::size_t count : {std::size_t{1}, std::size_t{1500}}) {
      const std::size_t bytes = count * sizeof(Matrix);
      test::Order order(GetParam());
      const Buffer source(context, GetParam(), bytes);
      const Buffer other(context, GetParam(), bytes);
      const Slice to = count == 1 ? source.all() : other.all();
      const auto root = static_cast<Rank>(size - 1);
      Collective every = allreduce(context, "every", matrices, source.all(), to);
      Collective up = reduce(context, "up", matrices, source.all(), to, root);
      Collective prefix = scan(context, "prefix", matrices, source.all(), to);
      std::vector<std::size_t> parts(size, 0);
      parts[count % size] = bytes;
      const Slice part = other.all().slice(0, parts[own]);
      Collective parted = reduce_scatter(context, "parted", matrices, source.all(), part, parts);
      const auto fill_in = [&, count] {
        for (std::size_t i = 0; i < count; ++i) elements<Matrix>(source.all())[i] = matrix_of(own, i);
      };
      const auto expect = [count](const Slice& result, std::size_t last) {
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(elements<Matrix>(result)[i], product_of(last, i)) << i;
      };
      for (int round = 0; round < 3; ++round) {
        start_once(order, every, fill_in, [&] { expect(to, size - 1); });
        start_once(order, up, fill_in, [&] {
          if (context.rank() == root) expect(to, size - 1);
        });
        start_once(order, prefix, fill_in, [&] { expect(to, own); });
        start_once(order, parted, fill_in, [&] {
          if (part.bytes() > 0) expect(part, size - 1);
        });
      }
      context.synchronize(order.stream());
    }
  });
}

TEST_P(Combining, by_a_commutative_function_may_go_in_rounds) {
  run_peers(peers(), [](Context& context) {
    const auto largest = [](const void* in, void* in_out, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        auto& mine = static_cast<std::uint64_t*>(in_out)[i];
        mine = std::max(mine, static_cast<const std::uint64_t*>(in)[i]);
      }
    };
    test::Order order(GetParam());
    const Buffer memory(context, GetParam(), 64);
    Collective most =
        allreduce(context, "most", {.combine = largest, .bytes = 8, .commutative = true}, memory.all(), memory.all());
    EXPECT_NE(most.describe().find("recursive doubling"), std::string::npos) << most.describe();
    for (std::uint64_t round = 1; round <= 3; ++round) {
      start_once(
          order, most,
          [&, round] {
            for (std::size_t i = 0; i < 8; ++i)
              elements<std::uint64_t>(memory.all())[i] = round * 100 + i * static_cast<std::size_t>(context.rank());
          },
          [&, round] {
            const auto last = static_cast<std::uint64_t>(context.size() - 1);
            for (std::size_t i = 0; i < 8; ++i) {
              EXPECT_EQ(elements<std::uint64_t>(memory.all())[i], round * 100 + i * last);
            }
          });
    }
    context.synchronize(order.stream());
    const auto refused = [&](Combiner combiner) {
      expect_code(Code::bad_argument,
                  [&] { (void)allreduce(context, "bad", std::move(combiner), memory.all(), memory.all()); });
    };
    refused({.combine = {}, .bytes = 8});
    refused({.combine = largest, .bytes = 0});
    refused({.combine = largest, .bytes = 24});
  });
}

TEST_P(Combining, fails_at_all_ranks_if_the_function_throws) {
  if (GetParam().ranks < 2) return;
  run_peers(with_untold(peers()), [](Context& context) {
    const auto throws = [rank = context.rank()](const void*, void*, std::size_t) {
      if (rank == 0) throw std::runtime_error("no such element");
    };
    test::Order order(GetParam());
    const Buffer memory(context, GetParam(), 80);
    Collective all = allreduce(context, "all", {.combine = throws, .bytes = 8}, memory.all(), memory.all());
    const auto error = error_of([&] {
      all.start(order.stream());
      all.wait(order.stream());
      context.synchronize(order.stream());
    });
    ASSERT_TRUE(error);
    EXPECT_NE(std::string(error->what()).find("no such element"), std::string::npos) << error->what();
    if (context.rank() == 0) {
      EXPECT_EQ(name(error->code()), std::string(name(Code::aborted)));
    }
    board().meet(context);
  });
}

TEST_P(Combining, is_not_closed_before_its_function_has_run) {
  if (!GetParam().host || GetParam().ranks != 2) return;
  run_peers(peers(), [](Context& context) {
    test::Order order(GetParam());
    const Buffer memory(context, GetParam(), 8);
    std::atomic<bool> opened{false};
    const auto stands_still = [&](const void*, void*, std::size_t) {
      while (!opened) std::this_thread::yield();
    };
    const Combiner last_step{.combine = stands_still, .bytes = 8, .commutative = true};
    Collective all = allreduce(context, "all", last_step, memory.all(), memory.all());
    all.start(order.stream());
    all.wait(order.stream());
    expect_code(Code::timeout, [&] { all.close(std::chrono::milliseconds(50)); });
    opened = true;
    all.close();
  });
}

// ---- ranks that wait for each other

/// Two collectives, sums among them: even ranks start one first, odd ranks the other.
void start_in_opposite_orders(Progress progress) {
  run_peers(Combining::peers(), [progress](Context& context) {
    constexpr std::size_t kShort = 8;
    constexpr std::size_t kLong = 40'000;
    for (const std::size_t bytes : {kShort, kLong}) {
      test::Order order(Combining::GetParam());
      const Buffer sums(context, Combining::GetParam(), bytes);
      const Buffer data(context, Combining::GetParam(), bytes);
      Collective all =
          allreduce(context, "sums", Op::sum, Number::uint64, sums.all(), sums.all(), {.progress = progress});
      Collective one = broadcast(context, "data", data.all(), 0, {.progress = progress});
      for (std::uint64_t round = 1; round <= 5; ++round) {
        order.run([&, round] {
          std::ranges::fill(elements<std::uint64_t>(sums.all()), round);
          if (context.rank() == 0) fill(data.bytes(), {0, 1, round});
        });
        const bool swaps = (context.rank() + static_cast<Rank>(round)) % 2 == 0;
        (swaps ? one : all).start(order.stream());
        (swaps ? all : one).start(order.stream());
        const bool waits_swapped = swaps && progress == Progress::own_stream;
        (waits_swapped ? one : all).wait(order.stream());
        (waits_swapped ? all : one).wait(order.stream());
        order.run([&, round] {
          for (const std::uint64_t sum : elements<std::uint64_t>(sums.all()))
            ASSERT_EQ(sum, round * static_cast<std::uint64_t>(context.size()));
          EXPECT_EQ(difference(data.bytes(), {0, 1, round}), "");
        });
      }
      context.synchronize(order.stream());
    }
  });
}

TEST_P(Combining, may_be_started_in_opposite_orders) { start_in_opposite_orders(Progress::in_wait); }
TEST_P(Combining, with_streams_of_its_own_may_be_waited_for_in_opposite_orders) {
  start_in_opposite_orders(Progress::own_stream);
}
TEST_P(GpuCombining, may_be_started_in_opposite_orders) { start_in_opposite_orders(Progress::in_wait); }

/// Long messages of two collectives land in one place, one after the other: that is no mistake to SLUICE_CHECK.
TEST_P(Combining, may_use_memory_of_another_collective_at_another_time) {
  Peers checked = peers();
  checked.environment.emplace_back("SLUICE_CHECK=1");
  run_peers(checked, [](Context& context) {
    constexpr std::size_t kBytes = 20'000;
    test::Order order(GetParam());
    const Buffer memory(context, GetParam(), kBytes);
    Collective first = broadcast(context, "first", memory.all(), 0);
    Collective second = broadcast(context, "second", memory.all(), context.size() - 1);
    for (std::uint64_t round = 1; round <= 3; ++round) {
      for (const auto& [all, root] : {std::pair(&first, 0), std::pair(&second, context.size() - 1)}) {
        start_once(
            order, *all,
            [&, round, root = root] {
              if (context.rank() == root) fill(memory.bytes(), {root, 3, round});
            },
            [&, round, root = root] {
              EXPECT_EQ(difference(memory.bytes(), {root, 3, round}), "");
            });
      }
    }
    context.synchronize(order.stream());
  });
}

// ---- GPUs

/// Memory that a collective on a GPU's stream uses: of the GPU, or of the host.
class AnyMemory {
 public:
  AnyMemory(Context& context, std::size_t bytes, bool of_gpu) {
    if (of_gpu) gpus_.emplace(bytes);
    all_ = of_gpu ? context.region(gpus_->data(), bytes).all() : context.allocate(bytes).all();
  }
  const Slice& all() const { return all_; }
  void set(const std::vector<std::byte>& bytes) const {
    if (gpus_)
      gpu_copy(all_.data(), bytes.data(), bytes.size());
    else
      std::ranges::copy(bytes, all_.data());
  }
  std::vector<std::byte> get() const {
    std::vector<std::byte> bytes(all_.bytes());
    if (gpus_)
      gpu_copy(bytes.data(), all_.data(), bytes.size());
    else
      std::copy_n(all_.data(), bytes.size(), bytes.begin());
    return bytes;
  }

 private:
  std::optional<GpuBuffer> gpus_;
  Slice all_;
};

/// Bytes that are numbers of the type, and no NaNs, whose bits a GPU does not keep.
std::vector<std::byte> random_numbers(Number number, std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> all(bytes);
  const auto put = [&](auto value, std::size_t at) { std::memcpy(all.data() + at, &value, sizeof value); };
  std::uniform_real_distribution<double> real(-1000, 1000);
  for (std::size_t at = 0; at < bytes; at += 8) {
    switch (number) {
      case Number::float64: put(real(random), at); break;
      case Number::float32:
        put(std::array{static_cast<float>(real(random)), static_cast<float>(real(random))}, at);
        break;
      case Number::float16:
      case Number::bfloat16:  // numbers of any size, but for infinite ones and NaNs
        put((std::uint64_t{random()} << 32U | random()) & 0xB8FF'B8FF'B8FF'B8FFU, at);
        break;
      default: put(std::uint64_t{random()} << 32U | random(), at);
    }
  }
  return all;
}

struct Numbers {
  Op op;
  Number number;
};

std::vector<Numbers> all_numbers() {
  std::vector<Numbers> all;
  for (const Number number : {Number::int32, Number::uint32, Number::int64, Number::uint64})
    for (const Op op : {Op::sum, Op::product, Op::min, Op::max, Op::bit_and, Op::bit_or, Op::bit_xor})
      all.push_back({op, number});
  for (const Number number : {Number::float32, Number::float64, Number::float16, Number::bfloat16})
    for (const Op op : {Op::sum, Op::product, Op::min, Op::max}) all.push_back({op, number});
  return all;
}

/// Runs a collective on the GPU's stream and on the host, in one layout, and compares the bits.
template <class Make>
void expect_bits_of_host(Context& context, test::Order& order, const std::vector<std::byte>& numbers, bool of_gpu,
                         std::size_t result_bytes, Make make) {
  const AnyMemory source(context, numbers.size(), of_gpu);
  const AnyMemory result(context, result_bytes, of_gpu);
  const AnyMemory hosts(context, numbers.size(), false);
  const AnyMemory hosts_result(context, result_bytes, false);
  Collective on_gpu = make("on the GPU", source.all(), result.all());
  Collective on_host = make("on the host", hosts.all(), hosts_result.all());
  source.set(numbers);
  hosts.set(numbers);
  result.set(std::vector<std::byte>(result_bytes));  // what no result replaces is alike, too
  hosts_result.set(std::vector<std::byte>(result_bytes));
  on_host.start({});
  on_host.wait({});
  board().meet(context);  // a driver may allocate only while no stream waits
  for (int round = 0; round < 3; ++round) {
    on_gpu.start(order.stream());
    on_gpu.wait(order.stream());
  }
  context.synchronize(order.stream());
  EXPECT_EQ(result.get(), hosts_result.get());
  EXPECT_NE(on_gpu.describe().find("on streams of GPU "), std::string::npos) << on_gpu.describe();
  EXPECT_EQ(on_host.describe().find("GPU"), std::string::npos) << on_host.describe();
}

TEST_P(GpuCombining, gives_the_bits_of_the_host_for_all_operations_and_numbers) {
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kBytes = 1200;
    test::Order order(GetParam());
    const std::vector<Numbers> all = all_numbers();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const testing::ScopedTrace trace(__FILE__, __LINE__, i);
      const auto [op, number] = all[i];
      const auto mine =
          random_numbers(number, kBytes, static_cast<unsigned>(i) * 100 + static_cast<unsigned>(context.rank()));
      expect_bits_of_host(context, order, mine, i % 2 == 0, kBytes, [&](auto name, const Slice& from, const Slice& to) {
        return allreduce(context, name, op, number, from, to, {.algorithm = i % 3 == 0 ? "shares" : ""});
      });
    }
  });
}

TEST_P(GpuCombining, reduces_scans_and_scatters_memory_of_gpus_and_of_hosts) {
  run_peers(peers(), [](Context& context) {
    const auto size = static_cast<std::size_t>(context.size());
    test::Order order(GetParam());
    for (const bool of_gpu : {false, true}) {
      for (const std::size_t part : {std::size_t{8}, std::size_t{24'000}}) {
        const std::size_t bytes = size * part;
        const Number number = part == 8 ? Number::bfloat16 : Number::float64;
        const auto mine = random_numbers(number, bytes, static_cast<unsigned>(context.rank() + 1));
        expect_bits_of_host(context, order, mine, of_gpu, bytes, [&](auto name, const Slice& from, const Slice& to) {
          return scan(context, name, Op::sum, number, from, to, {.fixed_order = part == 8});
        });
        expect_bits_of_host(context, order, mine, of_gpu, part, [&](auto name, const Slice& from, const Slice& to) {
          return reduce_scatter(context, name, Op::sum, number, from, to);
        });
        expect_bits_of_host(context, order, mine, of_gpu, bytes, [&](auto name, const Slice& from, const Slice& to) {
          return allreduce(context, name, Op::sum, number, from, to);
        });
        expect_bits_of_host(context, order, mine, of_gpu, context.rank() == 0 ? bytes : 8,
                            [&](auto name, const Slice& from, const Slice& to) {
                              return reduce(context, name, Op::sum, number, from, context.rank() == 0 ? to : Slice(),
                                            0);
                            });
      }
    }
  });
}

TEST_P(GpuCombining, moves_memory_of_gpus) {
  run_peers(peers(), [](Context& context) {
    const auto size = static_cast<std::size_t>(context.size());
    test::Order order(GetParam());
    for (const std::size_t part : {std::size_t{64}, std::size_t{20'000}}) {
      const std::size_t bytes = size * part;
      const auto mine = random_numbers(Number::uint64, bytes, static_cast<unsigned>(context.rank() + 1));
      expect_bits_of_host(context, order, mine, true, bytes, [&](auto name, const Slice& from, const Slice& to) {
        return alltoall(context, name, from, to);
      });
      expect_bits_of_host(context, order, mine, true, bytes, [&](auto name, const Slice& from, const Slice& to) {
        return allgather(context, name, from.slice(0, part), to);
      });
    }
  });
}

TEST_P(GpuCombining, refuses_what_a_gpu_cannot_do_and_changes_nothing) {
  run_peers(peers(), [](Context& context) {
    test::Order order(GetParam());
    const AnyMemory hosts(context, 64, false);
    const AnyMemory gpus(context, 64, true);
    const auto refused = [](auto call) { expect_code(Code::unsupported, call); };
    const auto nothing = [](const void*, void*, std::size_t) {};
    Collective by_function = allreduce(context, "function", {.combine = nothing, .bytes = 8}, hosts.all(), hosts.all());
    refused([&] { by_function.start(order.stream()); });
    Collective own = barrier(context, "own", {.progress = Progress::own_stream});
    refused([&] { own.start(order.stream()); });
    Collective sum = allreduce(context, "sum", Op::sum, Number::uint64, gpus.all(), gpus.all());
    refused([&] { sum.start({}); });
    capture_mode = CaptureMode::of_thread;
    refused([&] { const GpuGraph graph(*order.gpu(), [&] { sum.start(order.stream()); }); });
    std::vector<std::byte> ones(64, std::byte{0});
    for (std::size_t i = 0; i < 64; i += 8) ones[i] = std::byte{1};
    gpus.set(ones);
    board().meet(context);  // a driver may end a capture only while no stream waits
    sum.start(order.stream());
    sum.wait(order.stream());
    context.synchronize(order.stream());
    EXPECT_EQ(gpus.get()[8], static_cast<std::byte>(context.size()));
    by_function.start({});
    by_function.wait({});
  });
}

// ---- cases

std::vector<Case> combining_cases(const std::vector<int>& ranks, bool cuda) {
  std::vector<Case> all = memory_cases();  // with the networks that are named
  for (const Case& one : on(all_grounds(), memory_cases())) all.push_back(one);
  std::set<std::string> names;
  std::erase_if(all, [&](const Case& one) {
    return one.cuda != cuda || (cuda && (one.ground.network || one.ground.polled || one.user)) ||
           !names.insert(one.name()).second;
  });
  return with_ranks(all, ranks);
}

INSTANTIATE_IN_ITS_RANKS(Quick, Combining, testing::ValuesIn(combining_cases({1, 2, 3, 5}, false)), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Combining, full_cases([] {
                           return combining_cases({4, 6, 7, 8, 13}, false);
                         }),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GpuCombining, testing::ValuesIn(combining_cases({1, 2, 3, 5}, true)), CaseName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuCombining);  // without GPUs in the filter

}  // namespace
