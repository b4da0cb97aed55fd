// SPDX-License-Identifier: Apache-2.0
// Contexts of some ranks: their own numbering, their own tags, made by their ranks alone.
#include <algorithm>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class Subcontexts : public testing::TestWithParam<Case> {
 protected:
  static Peers four() {
    Case one = GetParam();
    one.ranks = 4;
    return one.peers();
  }
};

/// Every rank sends to its right neighbour in `context`; `use` distinguishes this use of the tag from others.
void ring(Context& context, const Case& one, Tag tag, std::uint64_t use) {
  const int size = context.size();
  const Rank right = (context.rank() + 1) % size;
  const Rank left = (context.rank() + size - 1) % size;
  const Buffer source(context, one);
  const Buffer target(context, one);
  Sender sender = context.sender(right, tag, source.all());
  Receiver receiver = context.receiver(left, tag, target.all());
  EXPECT_EQ(sender.peer(), right);
  EXPECT_EQ(receiver.peer(), left);
  fill(source.bytes(), {context.rank(), tag, use});
  sender.put({});
  receiver.wait({});
  EXPECT_EQ(difference(target.bytes(), {left, tag, use}), "");
  receiver.release({});
}

TEST_P(Subcontexts, have_their_own_ranks_in_the_order_given) {
  run_peers(four(), [](Context& context) {
    if (context.rank() == 1) return;  // called by its ranks alone
    Context some = context.sub({3, 0, 2});
    const std::array<Rank, 4> expected = {1, -1, 2, 0};
    EXPECT_EQ(some.size(), 3);
    EXPECT_EQ(some.rank(), expected.at(static_cast<std::size_t>(context.rank())));
    ring(some, GetParam(), 1, 1);
  });
}

TEST_P(Subcontexts, tags_do_not_collide_with_those_of_the_whole) {
  run_peers(four(), [](Context& context) {
    const Case& one = GetParam();
    Context part = context.sub({0, 1, 2, 3});
    const Rank right = (context.rank() + 1) % 4;
    const Rank left = (context.rank() + 3) % 4;
    const Buffer source(context, one);
    const Buffer target(context, one);
    // Open in the whole while the same peers use the same tag in the part.
    Sender sender = context.sender(right, 1, source.all());
    Receiver receiver = context.receiver(left, 1, target.all());
    ring(part, one, 1, 2);
    fill(source.bytes(), {context.rank(), 1, 1});
    sender.put({});
    receiver.wait({});
    EXPECT_EQ(difference(target.bytes(), {left, 1, 1}), "");
  });
}

TEST_P(Subcontexts, two_live_at_once) {
  run_peers(four(), [](Context& context) {
    const Rank low = context.rank() / 2 * 2;
    Context pair = context.sub({low, low + 1});
    Context column = context.sub({context.rank() % 2, context.rank() % 2 + 2});
    EXPECT_EQ(pair.rank(), context.rank() % 2);
    EXPECT_EQ(column.rank(), context.rank() / 2);
    ring(pair, GetParam(), 1, 1);
    ring(column, GetParam(), 1, 2);
    ring(context, GetParam(), 1, 3);
  });
}

TEST_P(Subcontexts, the_same_ranks_twice_are_two_contexts) {
  run_peers(four(), [](Context& context) {
    if (context.rank() >= 2) return;
    const Case& one = GetParam();
    Context first = context.sub({0, 1});
    Context second = context.sub({1, 0});
    const Rank other = 1 - context.rank();
    const Buffer source(context, one, 2 * one.bytes);
    const Buffer target(context, one, 2 * one.bytes);
    const auto part = [&](const Buffer& buffer, std::size_t i) { return buffer.all().slice(i * one.bytes, one.bytes); };
    Sender to_second = second.sender(1 - second.rank(), 1, part(source, 1));
    Sender to_first = first.sender(other, 1, part(source, 0));
    Receiver from_first = first.receiver(other, 1, part(target, 0));
    Receiver from_second = second.receiver(1 - second.rank(), 1, part(target, 1));
    fill(bytes_of(part(source, 0)), {context.rank(), 1, 1});
    fill(bytes_of(part(source, 1)), {context.rank(), 1, 2});
    to_first.put({});
    to_second.put({});
    EXPECT_EQ(difference(bytes_of(from_second.wait({})), {other, 1, 2}), "");
    EXPECT_EQ(difference(bytes_of(from_first.wait({})), {other, 1, 1}), "");
  });
}

TEST_P(Subcontexts, of_a_subcontext) {
  run_peers(four(), [](Context& context) {
    if (context.rank() == 0) return;
    Context three = context.sub({3, 2, 1});
    if (three.rank() == 1) return;
    Context two = three.sub({2, 0});
    EXPECT_EQ(two.size(), 2);
    EXPECT_EQ(two.rank(), context.rank() == 1 ? 0 : 1);
    ring(two, GetParam(), 1, 1);
  });
}

TEST_P(Subcontexts, outlive_the_handle_that_they_were_made_from) {
  run_peers(four(), [](Context& context) {
    std::optional<Context> three;
    if (context.rank() < 3) three = context.sub({0, 1, 2});
    if (context.rank() >= 2) return;
    Context two = three->sub({0, 1});
    three.reset();
    ring(two, GetParam(), 1, 1);
  });
}

TEST_P(Subcontexts, refuse_lists_that_make_no_sense) {
  run_peers(four(), [](Context& context) {
    expect_code(Code::bad_argument, [&] { context.sub({0, 1, 2, 3, 4}); });
    expect_code(Code::bad_argument, [&] { context.sub({0, 1, 2, 3, -1}); });
    expect_code(Code::bad_argument, [&] { context.sub({0, 1, 2, 3, 0}); });
    expect_code(Code::bad_argument, [&] { context.sub({(context.rank() + 1) % 4}); });  // without itself
  });
}

/// Every nesting makes what tells the tags apart longer, and that has to fit into one packet.
TEST_P(Subcontexts, nested_too_deep_are_one_clear_error_and_the_deepest_works) {
  run_peers(GetParam().peers(), [](Context& context) {
    Context deepest = context;
    const auto error = expect_code(Code::bad_argument, [&] {
      for (int i = 0; i < 10'000; ++i) deepest = deepest.sub({0, 1});
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->rank(), context.rank());
    EXPECT_NE(std::string(error->what()).find("nested too deep"), std::string::npos) << error->what();
    expect_code(Code::bad_argument, [&] { deepest.scope("one that does not fit any more"); });
    ring(deepest, GetParam(), 1, 1);
    ring(context, GetParam(), 1, 2);
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Subcontexts, testing::ValuesIn(on(grounds(), {Case{}})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Subcontexts, full_cases([] {
                           return with_sizes(on(all_grounds(), memory_cases()), {0, 4097});
                         }),
                         CaseName());

}  // namespace
