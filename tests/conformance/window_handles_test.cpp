// SPDX-License-Identifier: Apache-2.0
// Handles of windows that are not genuine: each is refused with one error, and the owner and its window stay as they
// are.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "tests/conformance/random_seed.hpp"
#include "tests/conformance/windows.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

/// A handle as a forger sees it who knows the sources.
struct Forged {
  char magic[8];
  std::uint64_t job;
  std::byte id[16];
  std::uint64_t offset;
  std::uint64_t bytes;
  std::int32_t rank;
  std::uint32_t unused;
  std::uint64_t sum;

  explicit Forged(const WindowHandle& genuine) { std::memcpy(this, genuine.data(), sizeof *this); }
  /// With a sum that is right.
  WindowHandle handle() {
    sum = base::hash({reinterpret_cast<const char*>(this), offsetof(Forged, sum)});
    WindowHandle plain;
    std::memcpy(plain.data(), this, sizeof *this);
    return plain;
  }
};
static_assert(sizeof(Forged) == sizeof(WindowHandle));

class WindowHandles : public testing::TestWithParam<Case> {
 protected:
  /// Rank 0 owns a window with a counter, of which the others have a handle.
  struct Side {
    explicit Side(Context& in)
        : context(in), memory(in, GetParam(), kBytes), local(in, GetParam(), kWord),
          window(in.rank() == 0 ? in.window(kWindow, memory.all(), 1) : Window()),
          genuine(told_to_all(in.rank() == 0 ? window.handle() : WindowHandle())), target(in.target(genuine)) {
      target.wait_connected();
      board().meet(in);
    }

    WindowHandle told_to_all(WindowHandle handle) const {
      constexpr std::size_t kAt = 10;  // on the board
      for (std::size_t i = 0; i < handle.size() / kWord && context.rank() == 0; ++i)
        board().set(kAt + i, word_at(handle, i));
      board().meet(context);
      for (std::size_t i = 0; i < handle.size() / kWord; ++i) set_word(handle, i, board().word(kAt + i).load());
      return handle;
    }
    /// The target is refused by this rank.
    void expect_refused_here(std::span<const std::byte> handle, const std::string& what) const {
      try {
        static_cast<void>(context.target(handle));
        ADD_FAILURE() << "accepted: " << what;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::bad_argument) << what << ": " << error.what();
      }
    }
    /// The owner has none of these windows.
    void expect_refused_there(const std::vector<WindowHandle>& handles) const {
      std::vector<Target> targets;
      for (const WindowHandle& handle : handles) targets.push_back(context.target(handle));
      for (Target& one : targets) {
        const auto error = expect_code(Code::misuse, [&] { one.wait_connected(); });
        EXPECT_NE(std::string(error ? error->what() : "").find("handle"), std::string::npos);
        expect_code(Code::misuse, [&] {
          one.put({}, local.all(), 0);
          one.flush({});
        });
      }
    }
    /// The window is as it was, and reached by those who have reached it before. All ranks call it.
    void expect_unchanged() {
      board().meet(context);
      if (context.rank() == 0) {
        EXPECT_EQ(unlike_poison(memory.bytes()), "");
        const auto targets = std::to_string(context.size()) + " targets;";
        expect_within(10s, [&] { return window.describe().find(targets) != std::string::npos; });
        EXPECT_EQ(window.count(0), 0U);
      }
      board().meet(context);
      target.notify({}, 0);
      target.flush({});
      board().meet(context);
      if (context.rank() == 0) {
        EXPECT_EQ(window.count(0), static_cast<std::uint64_t>(context.size()));
      }
      board().meet(context);
    }

    static constexpr std::size_t kBytes = 16 * kWord;
    Context& context;
    Buffer memory;
    Buffer local;
    Window window;
    WindowHandle genuine;
    Target target;
  };
};

TEST_P(WindowHandles, with_any_bit_changed_are_refused) {
  run_peers(GetParam().peers(), [](Context& context) {
    Side side(context);
    for (std::size_t bit = 0; bit < 8 * side.genuine.size(); ++bit) {
      WindowHandle other = side.genuine;
      other[bit / 8] ^= std::byte{1} << bit % 8;
      side.expect_refused_here(other, "bit " + std::to_string(bit));
    }
    side.expect_unchanged();
  });
}

TEST_P(WindowHandles, reach_nothing_beyond_their_block) {
  run_peers(GetParam().peers(), [](Context& context) {
    Side side(context);
    Target whole = context.target(side.genuine);
    whole.wait_connected();
    expect_code(Code::bad_argument, [&] { static_cast<void>(whole.fetch_add(Side::kBytes, 1)); });
    expect_code(Code::bad_argument, [&] { whole.put({}, side.local.all().slice(0, 2 * kWord), Side::kBytes - kWord); });
    expect_code(Code::bad_argument, [&] {
      whole.accumulate({}, Op::sum, Number::uint64, side.local.all().slice(0, 2 * kWord), Side::kBytes - kWord);
    });
    whole.close();
    side.expect_unchanged();
  });
}

TEST_P(WindowHandles, that_are_cut_spliced_or_noise_are_refused) {
  const std::uint64_t seed = random_seed();
  run_peers(GetParam().peers(), [seed](Context& context) {
    Side side(context);
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(context.rank()));
    const auto noise = [&](std::size_t bytes) {
      std::vector<std::byte> all(bytes);
      for (std::byte& byte : all) byte = static_cast<std::byte>(random());
      return all;
    };
    const std::vector<std::byte> whole(side.genuine.begin(), side.genuine.end());
    WindowHandle other = side.genuine;  // of another block, and genuine
    if (context.rank() == 0) other = side.window.handle(kWord, kWord);
    other = side.told_to_all(other);
    for (std::uint64_t i = 0; i < 2000 * random_rounds(); ++i) {
      std::vector<std::byte> handle = whole;
      const std::size_t at = random() % whole.size();
      switch (random() % 6) {
        case 0: handle = noise(whole.size()); break;
        case 1: handle = noise(random() % 200); break;
        case 2: handle.resize(at); break;
        case 3: std::fill(handle.begin() + static_cast<std::ptrdiff_t>(at), handle.end(), std::byte{0}); break;
        case 4: std::copy_n(other.begin(), at, handle.begin()); break;
        default:
          for (std::uint64_t n = random() % 8; n < 8; ++n)
            handle[random() % handle.size()] = static_cast<std::byte>(random());
      }
      const bool is_genuine = handle == whole || std::ranges::equal(handle, other);
      if (!is_genuine) side.expect_refused_here(handle, "number " + std::to_string(i));
    }
    side.expect_unchanged();
  });
}

TEST_P(WindowHandles, that_are_forged_are_refused_by_the_owner) {
  const std::uint64_t seed = random_seed();
  run_peers(with_untold(GetParam().peers()), [seed](Context& context) {
    Side side(context);
    if (context.rank() == 1) {
      std::mt19937_64 random(seed);
      std::vector<WindowHandle> handles;
      const auto forge = [&](auto change) {
        Forged forged(side.genuine);
        change(forged);
        handles.push_back(forged.handle());
      };
      for (std::size_t bit = 0; bit < 8 * sizeof Forged::id; ++bit)
        forge([&](Forged& one) { one.id[bit / 8] ^= std::byte{1} << bit % 8; });
      for (int i = 0; i < 30; ++i) {
        forge([&](Forged& one) {
          for (std::byte& byte : one.id) byte = static_cast<std::byte>(random());
        });
      }
      forge([](Forged& one) { one.rank = 1; });  // a rank that has no such window
      for (const std::uint64_t bytes : {Side::kBytes + 1, std::size_t{1} << 40, ~std::size_t{0}})
        forge([&](Forged& one) { one.bytes = bytes; });
      for (const std::uint64_t offset : {kWord, Side::kBytes + 1, ~std::size_t{0} - kWord, ~std::size_t{0}})
        forge([&](Forged& one) { one.offset = offset; });
      side.expect_refused_there(handles);
    }
    side.expect_unchanged();
  });
}

TEST_P(WindowHandles, of_another_job_version_or_rank_are_refused) {
  run_peers(GetParam().peers(), [](Context& context) {
    Side side(context);
    const auto refused = [&](const char* what, auto change) {
      Forged forged(side.genuine);
      change(forged);
      side.expect_refused_here(forged.handle(), what);
    };
    refused("job", [](Forged& one) { ++one.job; });
    refused("version", [](Forged& one) { ++one.magic[7]; });
    for (const std::int32_t rank : {-1, context.size(), 1 << 30})
      refused("rank", [&](Forged& one) { one.rank = rank; });
    Context alone = context.sub({context.rank()});
    if (context.rank() != 0) {
      expect_code(Code::bad_argument, [&] { static_cast<void>(alone.target(side.genuine)); });
    }
    side.expect_unchanged();
  });
}

/// The window of the same name, in the same memory, is another window.
TEST_P(WindowHandles, of_a_window_that_was_made_anew_are_refused) {
  run_peers(with_untold(GetParam().peers()), [](Context& context) {
    Side side(context);
    side.target.close();
    board().meet(context);
    const WindowHandle stale = side.genuine;
    if (context.rank() == 0) {
      side.window.close();
      side.window = context.window(kWindow, side.memory.all(), 1);
      side.genuine = side.window.handle();
    }
    side.genuine = side.told_to_all(side.genuine);
    side.target = context.target(side.genuine);
    side.target.wait_connected();
    if (context.rank() == 1) side.expect_refused_there({stale, stale});
    side.expect_unchanged();
  });
}

/// A window of some ranks, by its handle, is reached from another context of this job too.
TEST_P(WindowHandles, reach_windows_of_other_contexts) {
  run_peers(GetParam().peers(), [](Context& context) {
    Side side(context);
    const Buffer memory(context, GetParam(), 2 * kWord);
    WindowHandle handle{};
    Window window;
    if (context.rank() == 0) {
      window = context.sub({0}).window("alone", memory.all());
      handle = window.handle();
    }
    handle = side.told_to_all(handle);
    {
      Target target = context.target(handle);
      EXPECT_EQ(target.bytes(), 2 * kWord);
      if (context.rank() == 1) {
        EXPECT_EQ(target.fetch_add(kWord, 1), word_at(side.local.bytes(), 0));
      }
    }
    board().meet(context);
    if (context.rank() == 0) {
      EXPECT_EQ(word_at(memory.bytes(), 1), word_at(side.local.bytes(), 0) + 1);
    }
    side.expect_unchanged();
  });
}

std::vector<Case> in_program_order() { return inline_only(of_windows()); }

INSTANTIATE_IN_ITS_RANKS(Quick, WindowHandles, testing::ValuesIn(in_program_order()), CaseName());

}  // namespace
