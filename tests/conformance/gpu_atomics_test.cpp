// SPDX-License-Identifier: Apache-2.0
// Atomics on windows of a GPU's memory, by kernels on the streams of GPUs.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/gpu_windows.hpp"
#include "tests/conformance/random_seed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

template <class T>
std::span<const std::byte> plain(const std::vector<T>& numbers) {
  return std::as_bytes(std::span(numbers));
}

template <class T>
std::vector<T> numbers_in_gpu(const Slice& slice) {
  const std::vector<std::byte> bytes = bytes_in_gpu(slice);
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

void zero(const GpuSide& side) {
  if (side.context.rank() == 0)
    GpuSide::store(side.memory->slice(), std::vector<std::byte>(side.memory->slice().bytes()));
  board().meet(side.context);
}

class GpuAtomics : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuAtomics);

TEST_P(GpuAtomics, give_each_value_once_also_to_the_owner) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::uint64_t kGpuTimes = 200;
    GpuSide side(context, 4 * kWord, kGpuTimes * kWord);
    zero(side);
    for (std::uint64_t i = 0; i < kGpuTimes; ++i)
      side.target.fetch_add(side.stream(), kWord, 1, side.piece(i * kWord, kWord));
    side.meet();
    // Each rank has seen a rising sequence; together they have seen each value once.
    const auto seen = numbers_in_gpu<std::uint64_t>(side.local.slice());
    EXPECT_TRUE(std::ranges::is_sorted(seen, std::ranges::less_equal()));
    std::uint64_t sum = 0;
    for (const std::uint64_t value : seen) sum += value;
    board().word(kWord).fetch_add(sum);
    board().meet(context);
    const std::uint64_t all = kGpuTimes * static_cast<std::uint64_t>(context.size());
    EXPECT_EQ(board().word(kWord).load(), all * (all - 1) / 2);
    if (context.rank() == 0) {
      EXPECT_EQ(numbers_in_gpu<std::uint64_t>(side.memory->slice()), (std::vector<std::uint64_t>{0, all, 0, 0}));
    }
    side.meet();
  });
}

TEST_P(GpuAtomics, make_a_lock) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::size_t kLock = 0, kCount = 64;
    constexpr std::uint64_t kGpuTimes = 25;
    GpuSide side(context, 128, 2 * kWord);
    zero(side);
    const std::uint64_t me = static_cast<std::uint64_t>(context.rank()) + 1;
    const auto word = [&](std::size_t index) { return word_at(bytes_in_gpu(side.local.slice()), index); };
    const auto take = [&] {
      side.target.compare_swap(side.stream(), kLock, 0, me, side.piece(0, kWord));
      side.flush();
      return word(0) == 0;
    };
    for (std::uint64_t i = 0; i < kGpuTimes; ++i) {
      while (!take()) std::this_thread::yield();
      side.target.get(side.stream(), side.piece(kWord, kWord), kCount);
      side.flush();
      GpuSide::store(side.piece(kWord, kWord), plain(std::vector<std::uint64_t>{word(1) + 1}));
      side.target.put(side.stream(), side.piece(kWord, kWord), kCount);
      side.target.flush(side.stream());
      side.target.swap(side.stream(), kLock, 0, side.piece(0, kWord));
      side.flush();
      ASSERT_EQ(word(0), me);
    }
    board().meet(context);
    side.target.get(side.stream(), side.piece(0, kWord), kCount);
    side.flush();
    EXPECT_EQ(word(0), kGpuTimes * static_cast<std::uint64_t>(context.size()));
    board().meet(context);
  });
}

/// Returns the result of an atomic on a number.
template <class T>
T changed(Op op, T there, T operand) {
  switch (op) {
    case Op::min: return operand < there ? operand : there;
    case Op::max: return operand > there ? operand : there;
    case Op::replace: return operand;
    default: break;
  }
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    if (op == Op::sum) return static_cast<T>(static_cast<Unsigned>(there) + static_cast<Unsigned>(operand));
    if (op == Op::bit_and) return there & operand;
    return op == Op::bit_or ? there | operand : there ^ operand;
  } else {
    return there + operand;
  }
}

template <class T>
std::vector<T> some_numbers(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> numbers(count);
  for (T& number : numbers) {
    if constexpr (std::is_integral_v<T>) {
      number = static_cast<T>(random());
    } else {  // sums of which are exact
      number = static_cast<T>(static_cast<double>(random() % 2048) - 1024);
    }
  }
  if constexpr (std::is_floating_point_v<T>) {
    numbers[0] = std::numeric_limits<T>::denorm_min();  // subnormal numbers are no zeros
    numbers[1] = static_cast<T>(seed % 2 == 0 ? 0.0 : -0.0);
  }
  return numbers;
}

template <class T>
bool same_bits(std::span<const T> found, std::span<const T> expected, std::size_t count) {
  return std::ranges::equal(std::as_bytes(found.first(count)), std::as_bytes(expected.first(count)));
}

/// Each rank changes all numbers by some of its own, whose slice is aligned or not.
template <class T>
void expect_changed(Number number, Op op, std::size_t shift) {
  run_peers(peers_of(GpuAtomics::GetParam()), [=](Context& context) {
    constexpr std::size_t kCount = 1500;  // more than one block has
    const std::size_t bytes = kCount * sizeof(T);
    GpuSide side(context, bytes + kWord, bytes + shift);
    const auto operands = [](Rank rank) { return some_numbers<T>(kCount, static_cast<std::uint64_t>(rank) + 1); };
    std::vector<T> expected = some_numbers<T>(kCount, 99);
    if (context.rank() == 0) GpuSide::store(side.memory->slice().slice(0, bytes), plain(expected));
    GpuSide::store(side.piece(shift, bytes), plain(operands(context.rank())));
    board().meet(context);
    for (Rank rank = 0; rank < context.size(); ++rank) {
      if (op == Op::replace && rank != 1) continue;
      const std::vector<T> theirs = operands(rank);
      for (std::size_t i = 0; i < kCount; ++i) expected[i] = changed(op, expected[i], theirs[i]);
    }
    if (op != Op::replace || context.rank() == 1)
      side.target.accumulate(side.stream(), op, number, side.piece(shift, bytes), 0);
    side.meet();
    if (context.rank() == 0) {
      const auto found = numbers_in_gpu<T>(side.memory->slice().slice(0, bytes));
      EXPECT_TRUE(same_bits<T>(found, expected, kCount))
          << "operation " << static_cast<int>(op) << ", number " << static_cast<int>(number) << ", shift " << shift;
      std::vector<std::byte> poisoned(kWord);
      poison(poisoned);
      EXPECT_EQ(bytes_in_gpu(side.memory->slice().slice(bytes, kWord)), poisoned);
    }
    board().meet(context);
  });
}

template <class T>
void expect_all_changed(Number number) {
  for (const Op op : {Op::sum, Op::min, Op::max, Op::replace, Op::bit_and, Op::bit_or, Op::bit_xor}) {
    const bool bits = op == Op::bit_and || op == Op::bit_or || op == Op::bit_xor;
    if (!bits || std::is_integral_v<T>) expect_changed<T>(number, op, op == Op::max ? 1 : 0);
  }
}

TEST_P(GpuAtomics, change_whole_numbers_of_32_bits) {
  expect_all_changed<std::int32_t>(Number::int32);
  expect_all_changed<std::uint32_t>(Number::uint32);
}
TEST_P(GpuAtomics, change_whole_numbers_of_64_bits) {
  expect_all_changed<std::int64_t>(Number::int64);
  expect_all_changed<std::uint64_t>(Number::uint64);
}
TEST_P(GpuAtomics, change_floating_point_numbers) {
  expect_all_changed<float>(Number::float32);
  expect_all_changed<double>(Number::float64);
}

/// As by processors: if one is NaN, the number in memory stays, but for a sum.
template <class T>
void expect_nans_kept(Number number) {
  run_peers(peers_of(GpuAtomics::GetParam()), [=](Context& context) {
    constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
    const std::vector<T> there{kNan, T{1}, kNan, T{1}, kNan, T{1}}, here{T{2}, kNan, T{0}, kNan, T{2}, kNan};
    const std::size_t two = 2 * sizeof(T);
    GpuSide side(context, 3 * two, 3 * two);
    if (context.rank() == 0) GpuSide::store(side.memory->slice(), plain(there));
    GpuSide::store(side.local.slice(), plain(here));
    board().meet(context);
    if (context.rank() == 1) {
      side.target.accumulate(side.stream(), Op::min, number, side.piece(0, two), 0);
      side.target.accumulate(side.stream(), Op::max, number, side.piece(two, two), two);
      side.target.accumulate(side.stream(), Op::sum, number, side.piece(2 * two, two), 2 * two);
    }
    side.meet();
    if (context.rank() == 0) {
      const auto found = numbers_in_gpu<T>(side.memory->slice());
      EXPECT_TRUE(same_bits<T>(found, there, 4));
      EXPECT_NE(found[4], found[4]);
      EXPECT_NE(found[5], found[5]);
    }
    board().meet(context);
  });
}

TEST_P(GpuAtomics, keep_numbers_that_meet_nan) {
  expect_nans_kept<float>(Number::float32);
  expect_nans_kept<double>(Number::float64);
}

/// A stream of the owner waits for each count, and then reads; the host waits for nothing in between.
TEST_P(GpuAtomics, count_what_is_changed) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::uint64_t kGpuCounted = 15;
    const std::size_t count = 512, bytes = count * kWord;
    GpuSide side(context, bytes, bytes);
    const Memory seen = context.allocate(bytes * kGpuCounted, Space::pinned);
    GpuSide::store(side.local.slice(), plain(std::vector<std::uint64_t>(count, 3)));
    zero(side);
    Memory go = context.allocate(kWord);  // the owner's window by which it says that it has read
    Window read;
    if (context.rank() == 1) read = context.window("read", go.all(), 1);
    Target reader;
    if (context.rank() == 0) reader = context.target(1, "read");
    for (std::uint64_t epoch = 1; epoch <= kGpuCounted; ++epoch) {
      if (context.rank() == 1) {
        if (epoch > 1) read.wait(side.stream(), 0, epoch - 1);
        side.target.accumulate_notify(side.stream(), Op::sum, Number::uint64, side.local.slice(), 0, 1);
      } else {
        side.window.wait(side.stream(), 1, epoch);
        side.gpu->copy(seen.data() + (epoch - 1) * bytes, side.memory->slice().data(), bytes);
        reader.notify(side.stream(), 0);
      }
    }
    context.synchronize(side.stream());
    if (context.rank() == 0) {
      for (std::uint64_t epoch = 1; epoch <= kGpuCounted; ++epoch) {
        const auto all = bytes_of(seen.slice((epoch - 1) * bytes, bytes));
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(word_at(all, i), 3 * epoch) << epoch << ", " << i;
      }
      EXPECT_EQ(side.window.count(1), kGpuCounted);
    }
    side.meet();
  });
}

/// Each rank changes its half of the window, and all of them one word, which they add random numbers to.
TEST_P(GpuAtomics, agree_with_an_oracle) {
  const std::uint64_t seed = random_seed();
  run_peers(peers_of(GetParam()), [seed](Context& context) {
    constexpr std::size_t kWords = 40, kShared = 2 * kWords;
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(context.rank()));
    GpuSide side(context, (kShared + 1) * kWord, 4 * kWords * kWord);
    zero(side);
    const auto own = static_cast<std::size_t>(context.rank()) * kWords;
    std::vector<std::uint64_t> model(kWords);
    std::uint64_t added = 0;
    for (std::uint64_t round = 0; round < 60 * random_rounds(); ++round) {
      const std::size_t at = random() % kWords, there = (own + at) * kWord;
      const std::size_t count = 1 + random() % (kWords - at);
      const std::size_t shift = random() % kWord;  // slices lie at any address
      const Slice old = side.piece(shift, kWord), from = side.piece(kWords * kWord + shift, count * kWord);
      std::uint64_t before = model[at];
      const std::uint64_t value = random();
      std::vector<std::uint64_t> operands(count);
      for (std::uint64_t& operand : operands) operand = random();
      GpuSide::store(from, plain(operands));
      switch (random() % 6) {
        case 0:
          side.target.fetch_add(side.stream(), there, value, old);
          model[at] += value;
          break;
        case 1:
          side.target.swap(side.stream(), there, value, old);
          model[at] = value;
          break;
        case 2: {
          const bool same = random() % 2 == 0;
          side.target.compare_swap(side.stream(), there, same ? before : ~before, value, old);
          if (same) model[at] = value;
          break;
        }
        case 3:
          side.target.put(side.stream(), from, there);
          std::ranges::copy(operands, model.begin() + static_cast<std::ptrdiff_t>(at));
          side.target.flush(side.stream());
          side.target.fetch_add(side.stream(), there, 0, old);  // sees what was put
          before = model[at];
          break;
        case 4:
          side.target.fetch_add(side.stream(), kShared * kWord, value, side.piece(3 * kWords * kWord, kWord));
          side.target.swap(side.stream(), there, before, old);
          added += value;
          break;
        default:
          for (const Op op : {Op::sum, Op::bit_xor, Op::max}) {
            side.target.accumulate(side.stream(), op, Number::uint64, from, there);
            side.target.flush(side.stream());
            for (std::size_t i = 0; i < count; ++i) model[at + i] = changed(op, model[at + i], operands[i]);
          }
          side.target.fetch_add(side.stream(), there, 0, old);
          before = model[at];
      }
      side.flush();
      ASSERT_EQ(word_at(bytes_in_gpu(old), 0), before) << "seed " << seed << ", round " << round;
    }
    const Slice back = side.piece(0, kWords * kWord);
    side.target.get(side.stream(), back, own * kWord);
    board().word(5).fetch_add(added);
    side.meet();
    EXPECT_EQ(numbers_in_gpu<std::uint64_t>(back), model) << "seed " << seed;
    if (context.rank() == 0) {
      EXPECT_EQ(word_at(bytes_in_gpu(side.memory->slice()), kShared), board().word(5).load()) << "seed " << seed;
    }
    board().meet(context);
  });
}

/// A kernel reads and writes host memory of the program.
TEST_P(GpuAtomics, take_numbers_of_the_program) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::size_t kWords = 700;
    GpuSide side(context, kWords * kWord, kWord);
    zero(side);
    std::vector<std::uint64_t> here(kWords + 1);
    const Region region = context.region(here.data(), here.size() * kWord);
    side.gpu->run([&] { std::ranges::fill(here, 5); });  // in the order of the stream
    side.target.accumulate(side.stream(), Op::sum, Number::uint64, region.slice(0, kWords * kWord), 0);
    side.target.flush_local(side.stream());
    side.gpu->run([&] { std::ranges::fill(here, 1000); });
    side.meet();
    side.target.fetch_add(side.stream(), 0, 0, region.slice(kWords * kWord, kWord));
    side.flush();
    EXPECT_EQ(here.back(), 5 * static_cast<std::uint64_t>(context.size()));
    side.meet();
    side.target.close();
  });
}

TEST_P(GpuAtomics, say_what_is_wrong) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    GpuSide side(context, 64, 64);
    zero(side);
    const Stream stream = side.stream();
    Target& target = side.target;
    const Slice word = side.piece(0, kWord);
    expect_code(Code::bad_argument, [&] { target.fetch_add(stream, 60, 1, word); });
    expect_code(Code::bad_argument, [&] { target.swap(stream, 4, 1, word); });
    expect_code(Code::bad_argument, [&] { target.compare_swap(stream, 0, 1, 2, side.piece(0, 4)); });
    expect_code(Code::bad_argument, [&] { target.accumulate(stream, Op::sum, Number::int32, word, 2); });
    expect_code(Code::bad_argument, [&] { target.accumulate(stream, Op::sum, Number::int64, side.piece(0, 12), 0); });
    expect_code(Code::bad_argument, [&] { target.accumulate(stream, Op::bit_or, Number::float32, word, 0); });
    expect_code(Code::bad_argument, [&] { target.accumulate(stream, Op::product, Number::int32, word, 0); });
    expect_code(Code::bad_argument, [&] { target.accumulate(stream, Op::sum, Number::float16, word, 0); });
    expect_code(Code::bad_argument, [&] { target.accumulate_notify(stream, Op::sum, Number::int32, word, 0, 2); });
    capture_mode = CaptureMode::of_thread;
    side.flush();
    expect_code(Code::unsupported,
                [&] { const GpuGraph graph(*side.gpu, [&] { target.fetch_add(stream, 0, 1, word); }); });
    target.accumulate(stream, Op::sum, Number::int32, {}, 0);  // none
    expect_told(target.describe(), "atomics: by kernels on the streams of GPUs that map it");
    side.meet();
    if (context.rank() == 0) {
      EXPECT_EQ(bytes_in_gpu(side.memory->slice()), std::vector<std::byte>(64));
      EXPECT_EQ(side.window.atomics(), AtomicsBy::gpus);
      expect_told(side.window.describe(), "atomics: by kernels on the streams of GPUs that map it");
    }
    side.meet();
  });
}

/// The stream is parked when the owner begins to close the window: its atomics complete first.
TEST_P(GpuAtomics, that_were_enqueued_complete_before_the_window_is_closed) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    GpuSide side(context, 2 * kWord, 3 * kWord);
    GpuSide::store(side.local.slice(), plain(std::vector<std::uint64_t>{3, 4, 99}));
    zero(side);
    side.target.fetch_add(side.stream(), 0, 0,
                          side.piece(2 * kWord, kWord));  // what a first use loads waits for streams
    side.meet();
    if (context.rank() == 0) {
      side.target.close();
      board().await(kGo, 1);
      expect_code(Code::timeout, [&] { side.window.close(50ms); });
      board().set(kGo, 2);
      side.window.close(20s);
      EXPECT_EQ(numbers_in_gpu<std::uint64_t>(side.memory->slice()), (std::vector<std::uint64_t>{13, 4}));
    } else {
      std::atomic<bool> open{false};
      side.gpu->run([&] { open.wait(false); });
      side.target.accumulate(side.stream(), Op::sum, Number::uint64, side.piece(0, 2 * kWord), 0);
      side.target.fetch_add(side.stream(), 0, 10, side.piece(2 * kWord, kWord));
      board().set(kGo, 1);
      board().await(kGo, 2);
      open = true;
      open.notify_one();
      context.synchronize(side.stream());
      EXPECT_EQ(word_at(bytes_in_gpu(side.local.slice()), 2), 3U);
      side.target.close();
    }
    board().meet(context);
  });
}

/// The kernel, the host function that counts, and what is behind them, refused once or for good.
TEST_P(GpuAtomics, that_are_refused_an_operation_leave_windows_that_close) {
  if (!may_refuse_operations()) return;
  run_peers(with_untold(peers_of(GetParam())), [](Context& context) {
    for (const bool counted : {false, true}) {
      for (unsigned taken = 0; taken < 3; ++taken) {
        for (const unsigned refused : {1U, 1000U}) {
          GpuSide side(context, kWord, 2 * kWord);
          const Slice operand = side.piece(0, kWord);
          GpuSide::store(operand, plain(std::vector<std::uint64_t>{5}));
          zero(side);
          side.target.fetch_add(side.stream(), 0, 0, side.piece(kWord, kWord));  // a stream's first use takes more
          side.flush();
          bool failed = false;
          if (context.rank() == 1) {
            const Refusals refusals(taken, refused);
            failed = has_failed([&] {
              if (counted) {
                side.target.accumulate_notify(side.stream(), Op::sum, Number::uint64, operand, 0, 0);
              } else {
                side.target.fetch_add(side.stream(), 0, 5, operand);
              }
            });
          }
          failed |= has_failed([&] { context.synchronize(side.stream()); });
          EXPECT_TRUE(failed || taken != 0 || context.rank() != 1);
          board().meet(context);
          side.target.close(10s);
          if (context.rank() == 0) {
            side.window.close(10s);
            const std::uint64_t found = word_at(bytes_in_gpu(side.memory->slice()), 0);
            EXPECT_EQ(found, taken == 0 ? 0U : 5U) << counted << ", " << taken << ", " << refused;
          }
          board().meet(context);
        }
      }
    }
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuAtomics, testing::ValuesIn(gpu_window_cases(false, 64)), GpuCaseName());

// ---- in an order that is no GPU's

class GpuAtomicsRefused : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuAtomicsRefused);

TEST_P(GpuAtomicsRefused, to_processors) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    GpuSide side(context, 64, 64);
    side.target.wait_connected();
    const Memory old = context.allocate(kWord);
    for (const bool host : {false, true}) {
      HostStream thread;
      Target other = context.target(0, kWindow);
      other.wait_connected();
      const Stream stream = host ? Stream::host(thread) : Stream();
      const auto tell = expect_code(Code::unsupported, [&] { other.swap(stream, 0, 1, old.all()); });
      ASSERT_TRUE(tell);
      expect_told(tell->what(), "processors carry out no atomics there: kernels on streams of GPUs do");
      expect_code(Code::unsupported, [&] { other.fetch_add(stream, 0, 1, old.all()); });
      expect_code(Code::unsupported, [&] { other.compare_swap(stream, 0, 1, 2, old.all()); });
      expect_code(Code::unsupported, [&] { other.accumulate(stream, Op::sum, Number::uint64, old.all(), 0); });
      expect_code(Code::unsupported,
                  [&] { other.accumulate_notify(stream, Op::sum, Number::uint64, old.all(), 0, 0); });
      if (!host) expect_code(Code::unsupported, [&] { static_cast<void>(other.fetch_add(0, 1)); });
      other.flush(stream);
      context.synchronize(stream);  // they did no harm
      expect_told(other.describe(), "atomics: by kernels on the streams of GPUs that map it");
    }
    side.meet();
    if (context.rank() == 0) {
      std::vector<std::byte> poisoned(64);
      poison(poisoned);
      EXPECT_EQ(bytes_in_gpu(side.memory->slice()), poisoned);
      EXPECT_EQ(side.window.count(0), 0U);
    }
    board().meet(context);
  });
}

/// A host stream that is given an atomic before the window is known: the target fails, and nothing has changed.
TEST_P(GpuAtomicsRefused, to_a_host_stream_that_knows_no_better) {
  run_peers(with_untold(peers_of(GetParam())), [](Context& context) {
    const Piece memory(context, GetParam().target, 64);
    poison_in_gpu(memory.slice());
    const Memory old = context.allocate(kWord);
    Window window;
    if (context.rank() == 1) {
      HostStream thread;
      Target target = context.target(0, kWindow);
      target.fetch_add(Stream::host(thread), 0, 1, old.all());
      board().set(kGo, 1);
      const auto tell = expect_code(Code::unsupported, [&] { target.drain(); });
      ASSERT_TRUE(tell);
      expect_told(tell->what(), "processors carry out no atomics there: kernels on streams of GPUs do");
      target.close();
    } else {
      board().await(kGo, 1);
      window = context.window(kWindow, memory.slice());
    }
    board().meet(context);
    if (context.rank() == 0) {
      std::vector<std::byte> poisoned(64);
      poison(poisoned);
      EXPECT_EQ(bytes_in_gpu(memory.slice()), poisoned);
    }
    board().meet(context);
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuAtomicsRefused, testing::ValuesIn(gpu_window_cases(true, 64)), GpuCaseName());

// ---- two GPUs

class GpuAtomicsOfPairs : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuAtomicsOfPairs);

constexpr const char* kUnknownLink = "which is not known to have native atomics for GPU 0";

/// The tests do not know the links between real GPUs. `gpu_is_emulated` starts the driver, so each rank first chooses
/// its GPU.
bool knows_links(const Context& context) {
  if (gpu_is_emulated()) return true;
  if (context.rank() == 0) skipped_here("atomics between two GPUs whose link the tests do not know");
  return false;
}

/// Rank 1 adds to a word of rank 0's GPU, and is refused if `why` says so.
void expect_added(Context& context, const char* why) {
  constexpr std::uint64_t kGpuTimes = 50;
  GpuSide side(context, kWord, kWord);
  zero(side);
  const bool refused = why != nullptr && context.rank() == 1;
  if (refused) {
    const auto tell =
        expect_code(Code::unsupported, [&] { side.target.fetch_add(side.stream(), 0, 1, side.piece(0, kWord)); });
    ASSERT_TRUE(tell);
    expect_told(tell->what(), why);
    expect_told(side.target.describe(), std::string("no atomics: it is memory of another GPU, ") + why);
    side.target.get(side.stream(), side.piece(0, kWord), 0);  // it did no harm
  } else {
    for (std::uint64_t i = 0; i < kGpuTimes; ++i) side.target.fetch_add(side.stream(), 0, 1, side.piece(0, kWord));
  }
  side.meet();
  if (context.rank() == 0) {
    EXPECT_EQ(word_at(bytes_in_gpu(side.memory->slice()), 0), (why == nullptr ? 2 : 1) * kGpuTimes);
  }
  board().meet(context);
}

TEST_P(GpuAtomicsOfPairs, are_atomic_where_the_link_is) {
  run_on_two_gpus(GetParam(), "1,0", [](Context& context) {
    if (knows_links(context)) expect_added(context, by_hip() ? "which kernels of GPU 0 do not reach" : nullptr);
  });
}

TEST_P(GpuAtomicsOfPairs, are_refused_where_the_link_has_none) {
  run_on_two_gpus(GetParam(), "1,0", [](Context& context) {
    if (context.rank() == 1) ::setenv("EMUCUDA_NATIVE_ATOMICS", "0", 1);  // before this process looks
    if (knows_links(context)) expect_added(context, by_hip() ? "which kernels of GPU 0 do not reach" : kUnknownLink);
  });
}

/// Nothing tells of a GPU that is hidden.
TEST_P(GpuAtomicsOfPairs, are_refused_on_a_hidden_gpu) {
  run_on_two_gpus(GetParam(), "1", [](Context& context) {
    if (knows_links(context)) expect_added(context, kUnknownLink);
  });
}

TEST_P(GpuAtomicsOfPairs, refuse_numbers_that_kernels_do_not_reach) {
  if (!gpu_is_emulated()) return skipped_here("memory that kernels do not reach, of real GPUs");
  Peers peers = peers_of(GetParam());
  peers.environment = {"EMUCUDA_PEERS=0"};
  run_peers(peers, [](Context& context) {
    GpuSide side(context, 64, 64);
    zero(side);
    const GpuBuffer apart(64, 1);
    const Region region = context.region(apart.data(), 64);
    const Stream stream = side.stream();
    expect_code(Code::unsupported, [&] { side.target.fetch_add(stream, 0, 1, region.slice(0, kWord)); });
    const auto tell = expect_code(Code::unsupported,
                                  [&] { side.target.accumulate(stream, Op::sum, Number::int64, region.all(), 0); });
    ASSERT_TRUE(tell);
    expect_told(tell->what(), "kernels of GPU 0 do not reach the slice");
    side.meet();
    if (context.rank() == 0) {
      EXPECT_EQ(bytes_in_gpu(side.memory->slice()), std::vector<std::byte>(64));
    }
    board().meet(context);
  });
}

std::vector<GpuCase> cases_of_pairs() {
  std::vector<GpuCase> all;
  for (const Ground& ground : gpu_grounds()) {
    if (ground.name != "shm") continue;
    for (const Whose whose : {Whose::ours, Whose::users}) all.push_back({ground, false, whose, whose});
  }
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuAtomicsOfPairs, testing::ValuesIn(cases_of_pairs()), GpuCaseName());

}  // namespace
