// SPDX-License-Identifier: Apache-2.0
// The handle, and the collectives that move bytes.
#include <sluice/collectives.hpp>

#include <algorithm>
#include <utility>

#include "collectives/alltoall.hpp"
#include "collectives/make.hpp"
#include "runtime/handles.hpp"

namespace sluice {

using collectives::Maker;
using collectives::Operation;
using collectives::Part;
using collectives::Place;
using collectives::Share;

Collective::Collective() noexcept = default;
Collective::Collective(Collective&&) noexcept = default;
Collective& Collective::operator=(Collective&&) noexcept = default;
Collective::~Collective() = default;
Collective::Collective(std::unique_ptr<Operation> operation) noexcept : operation_(std::move(operation)) {}

void Collective::start(Stream stream) { detail::usable_here(operation_).start(stream); }
void Collective::wait(Stream stream) { detail::usable_here(operation_).wait(stream); }
bool Collective::test() { return detail::usable_here(operation_).test(); }
void Collective::wait_connected(std::optional<Timeout> timeout) {
  detail::usable_here(operation_).wait_connected(timeout);
}
void Collective::close(std::optional<Timeout> timeout) { detail::usable_here(operation_).close(timeout); }
std::string Collective::describe() const { return detail::usable_here(operation_).describe(); }

namespace collectives {

Maker::Maker(Context& context, const char* kind, std::string_view name, const CollectiveOptions& options)
    : schedule(context.rank(), context.size()), context_(context), kind_(kind), name_(name), wanted_(options.algorithm),
      progress_(options.progress), fixed_order_(options.fixed_order), chooser_(context) {
  constexpr std::size_t kMaxName = 4000;
  check(!name.empty() && name.size() <= kMaxName, "the name has 1 to " + std::to_string(kMaxName) + " characters");
  schedule.contents = kind + chooser_.fingerprint();
}

void Maker::check(bool holds, const std::string& what) const {
  if (!holds)
    throw Error(Code::bad_argument, schedule.rank, -1, 0, 0, std::string(kind_) + " '" + name_ + "': " + what);
}

void Maker::check_rank(Rank rank, const char* what) const {
  check(rank >= 0 && rank < schedule.size, std::string("there is no ") + what + " " + std::to_string(rank));
}

std::size_t Maker::choose(std::initializer_list<std::string_view> names, std::size_t best, const std::string& why) {
  std::size_t chosen = best;
  if (!wanted_.empty()) {
    std::string known;
    for (const auto name : names) known += (known.empty() ? "'" : ", '") + std::string(name) + "'";
    const auto* const found = std::ranges::find(names, wanted_);
    check(found != names.end(), "no algorithm '" + wanted_ + "', but " + known);
    chosen = static_cast<std::size_t>(found - names.begin());
  }
  schedule.algorithm = names.begin()[chosen];
  schedule.contents += ", algorithm '" + schedule.algorithm + "'";
  if (!wanted_.empty())
    schedule.algorithm += " (as named)";
  else if (!why.empty())
    schedule.algorithm += " (" + why + ")";
  return chosen;
}

void Maker::use(const Levels& levels) {
  const std::string text = ", levels: " + text_of(levels);
  schedule.algorithm += text;
  schedule.contents += text;
}

Collective Maker::make() {
  schedule.acquire_all();
  return Operation::handle(
      std::make_unique<Operation>(context_, std::string(kind_) + " '" + name_ + "'", std::move(schedule), progress_));
}

namespace {

constexpr std::string_view kByPuts = "puts";

/// Where the parts of the ranks lie in a slice, one behind the other.
std::vector<Share> shares_of(const Maker& maker, std::size_t all, std::span<const std::size_t> bytes) {
  const auto size = static_cast<std::size_t>(maker.schedule.size);
  std::vector<Share> shares(size);
  if (bytes.empty()) {
    maker.check(all % size == 0, std::to_string(all) + " bytes are no " + std::to_string(size) + " parts of one size");
    for (std::size_t i = 0; i < size; ++i) shares[i] = {i * (all / size), all / size};
    return shares;
  }
  maker.check(bytes.size() == size,
              "sizes of " + std::to_string(bytes.size()) + " parts, for " + std::to_string(size) + " ranks");
  std::size_t offset = 0;
  for (std::size_t i = 0; i < size; ++i) {
    shares[i] = {offset, bytes[i]};
    offset += bytes[i];
  }
  maker.check(offset == all,
              "the parts have " + std::to_string(offset) + " bytes, and the slice " + std::to_string(all));
  return shares;
}

/// The root's side of gather and scatter: a part of `all` for each rank, in the order of ranks.
std::vector<Part> parts_of(Maker& maker, const Slice& all, const Slice& mine, std::span<const std::size_t> bytes) {
  const std::vector<Share> shares = shares_of(maker, all.bytes(), bytes);
  const auto own = static_cast<std::size_t>(maker.schedule.rank);
  maker.check(shares[own].bytes == mine.bytes(), "the part of this rank has " + std::to_string(mine.bytes()) +
                                                     " bytes, and its place " + std::to_string(shares[own].bytes));
  const Place place = maker.schedule.user(all);
  std::vector<Part> parts;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const bool in_place = i == own && mine.data() == all.data() + shares[i].offset;
    maker.check(i != own || in_place || !overlap(mine, all), "what it reads and what it writes overlap");
    if (!in_place) parts.push_back({static_cast<Rank>(i), 0, place + shares[i].offset, shares[i].bytes});
  }
  return parts;
}

std::vector<Part> parts_of(Maker& maker, std::span<const Block> blocks) {
  std::vector<Part> parts;
  for (const Block& block : blocks) {
    maker.check_rank(block.peer, "rank");
    const bool is_new =
        std::ranges::none_of(parts, [&](const Part& part) { return part.peer == block.peer && part.tag == block.tag; });
    maker.check(is_new, "two blocks of rank " + std::to_string(block.peer) + " have tag " + std::to_string(block.tag));
    parts.push_back({block.peer, block.tag, maker.schedule.user(block.slice), block.slice.bytes()});
  }
  return parts;
}

/// The blocks of this rank to itself have partners of their size.
void check_own(const Maker& maker, std::span<const Part> from, std::span<const Part> to) {
  for (const Part& source : from) {
    if (source.peer != maker.schedule.rank) continue;
    maker.check(std::ranges::any_of(to,
                                    [&](const Part& target) {
                                      return target.peer == source.peer && target.tag == source.tag &&
                                             target.bytes == source.bytes;
                                    }),
                "no block of this rank gets the " + std::to_string(source.bytes) + " bytes with tag " +
                    std::to_string(source.tag));
  }
}

void alltoall_by_puts(Schedule& schedule, Place sources, Place targets, std::size_t bytes, bool in_place) {
  std::vector<Part> sends;
  std::vector<Part> receives;
  for (Rank rank = 0; rank < schedule.size; ++rank) {
    if (in_place && rank == schedule.rank) continue;
    const std::size_t offset = static_cast<std::size_t>(rank) * bytes;
    sends.push_back({rank, 0, sources + offset, bytes});
    receives.push_back({rank, 0, targets + offset, bytes});
  }
  exchange(schedule, sends, receives, in_place);
}

int most_members(const Sets& sets) {
  std::size_t most = 0;
  for (int set = 0; set < sets.count(); ++set) most = std::max(most, sets.members(set).size());
  return static_cast<int>(most);
}

/// Algorithms that use nodes are candidates only if there are several nodes of several ranks.
Choice predict_alltoall(const Chooser& chooser, const Sets& groups, int ranks, std::size_t bytes, int batch,
                        bool in_place) {
  const Model within = chooser.within();
  const Model between = chooser.between();
  const int nodes = chooser.nodes().count();
  const int of_node = most_members(chooser.nodes());
  const int of_group = most_members(groups);
  const int groups_of_node = (groups.count() + nodes - 1) / nodes;
  const bool several = nodes > 1 && of_node > 1;
  return chooser.choose(std::to_string(bytes) + " bytes for each of " + std::to_string(ranks) + " ranks",
                        {{"puts", between.puts(ranks, bytes, in_place)},
                         {"pairwise", between.stepwise(ranks, bytes, 1), !in_place},
                         {"batched", between.stepwise(ranks, bytes, batch), !in_place},
                         {"hierarchical", by_leaders(within, between, nodes, of_node, bytes), several},
                         {"multileader", by_leaders(within, between, groups.count(), of_group, bytes), several},
                         {"node-aware", by_places(within, between, nodes, of_node, bytes), several},
                         {"locality-aware", by_places(within, between, groups.count(), of_group, bytes), several},
                         {"multileader, locality-aware",
                          by_leaders_and_places(within, between, nodes, groups_of_node, of_group, bytes), several}});
}

void choose_alltoall(Maker& maker, const Slice& from, const Slice& to, bool in_place) {
  constexpr int kSets = 4;  // of a node, as in MPI Advance
  Schedule& schedule = maker.schedule;
  enum Way { by_puts, pairwise, batched, hierarchical, multileader, node_aware, locality_aware, both };
  const std::size_t bytes = from.bytes() / static_cast<std::size_t>(schedule.size);
  const Chooser& chooser = maker.chooser();
  const Sets& nodes = chooser.nodes();
  const Sets groups = split(nodes, kSets);
  if (in_place) schedule.contents += ", in place";  // the choice depends on it
  const Choice choice = predict_alltoall(chooser, groups, schedule.size, bytes, kBatch, in_place);
  const auto way = static_cast<Way>(maker.choose({kByPuts, "pairwise", "batched", "hierarchical", "multileader",
                                                  "node-aware", "locality-aware", "multileader, locality-aware"},
                                                 choice.best, choice.why));
  const Place sources = schedule.user(from);
  const Place targets = schedule.user(to);
  if (bytes == 0) return schedule.finish();
  if (way == by_puts) return alltoall_by_puts(schedule, sources, targets, bytes, in_place);
  if (way == pairwise || way == batched) {
    maker.check(!in_place, "this algorithm does not work in place");
    return stepwise_alltoall(schedule, sources, targets, bytes, way == pairwise ? 1 : kBatch);
  }
  schedule.contents += nodes.text();
  const Route route = way == hierarchical     ? by_leaders(nodes)
                      : way == multileader    ? by_leaders(groups)
                      : way == node_aware     ? by_places(nodes)
                      : way == locality_aware ? by_places(groups)
                                              : by_leaders_and_places(groups, nodes);
  routed_alltoall(schedule, sources, targets, bytes, route);
}

}  // namespace

}  // namespace collectives

using collectives::check_own;
using collectives::exchange;
using collectives::kByPuts;
using collectives::parts_of;

Collective barrier(Context& context, std::string_view name, CollectiveOptions options) {
  Maker maker(context, "barrier", name, options);
  const int ways = maker.chooser().between().best_ways(context.size());
  maker.choose("dissemination");
  maker.schedule.contents += ", ways: " + std::to_string(ways);
  maker.schedule.algorithm += ", ways: " + std::to_string(ways) + " (the fastest by the model)";
  collectives::dissemination(maker.schedule, ways);
  return maker.make();
}

Collective broadcast(Context& context, std::string_view name, const Slice& data, Rank root, CollectiveOptions options) {
  Maker maker(context, "broadcast", name, options);
  maker.check_rank(root, "root");
  maker.schedule.contents += " from rank " + std::to_string(root);
  const auto size = static_cast<std::size_t>(context.size());
  const collectives::Chooser& chooser = maker.chooser();
  const collectives::Model model = chooser.between();
  const collectives::Levels levels = model.levels_to_broadcast(context.size(), data.bytes());
  const collectives::Time by_shares =
      model.shared_broadcast(context.size(), data.bytes()) + model.reading_broadcast_by_shares(data.bytes());
  const collectives::Choice choice =
      chooser.choose(std::to_string(data.bytes()) + " bytes, " + std::to_string(size) + " ranks",
                     {{"binomial tree", model.binomial_broadcast(context.size(), data.bytes())},
                      {"shares", by_shares},
                      {"level tree", model.level_broadcast(context.size(), data.bytes(), levels)}});
  const std::size_t chosen = maker.choose({"binomial tree", "shares", "level tree"}, choice.best, choice.why);
  maker.schedule.contents += ", " + std::to_string(data.bytes()) + " bytes";
  const Place place = maker.schedule.user(data);
  if (chosen == 0) {
    collectives::binomial_broadcast(maker.schedule, place, data.bytes(), root);
  } else if (chosen == 2) {
    maker.use(levels);
    collectives::level_broadcast(maker.schedule, place, data.bytes(), root, levels);
  } else {
    std::vector<Share> shares(size);
    for (std::size_t i = 0; i < size; ++i) {
      shares[i].offset = data.bytes() / size * i;
      shares[i].bytes = i + 1 < size ? data.bytes() / size : data.bytes() - shares[i].offset;
    }
    collectives::shared_broadcast(maker.schedule, place, shares, root);
  }
  return maker.make();
}

Collective gather(Context& context, std::string_view name, const Slice& mine, const Slice& all, Rank root,
                  std::span<const std::size_t> bytes, CollectiveOptions options) {
  Maker maker(context, "gather", name, options);
  maker.check_rank(root, "root");
  maker.choose(kByPuts);
  maker.schedule.contents += " to rank " + std::to_string(root);
  std::vector<Part> to;
  if (context.rank() == root) to = parts_of(maker, all, mine, bytes);
  const Part from{root, 0, maker.schedule.user(mine), mine.bytes()};
  exchange(maker.schedule, {&from, 1}, to);
  return maker.make();
}

Collective scatter(Context& context, std::string_view name, const Slice& all, const Slice& mine, Rank root,
                   std::span<const std::size_t> bytes, CollectiveOptions options) {
  Maker maker(context, "scatter", name, options);
  maker.check_rank(root, "root");
  maker.choose(kByPuts);
  maker.schedule.contents += " from rank " + std::to_string(root);
  std::vector<Part> from;
  if (context.rank() == root) from = parts_of(maker, all, mine, bytes);
  const Part to{root, 0, maker.schedule.user(mine), mine.bytes()};
  exchange(maker.schedule, from, {&to, 1});
  return maker.make();
}

Collective allgather(Context& context, std::string_view name, const Slice& mine, const Slice& all,
                     std::span<const std::size_t> bytes, CollectiveOptions options) {
  Maker maker(context, "allgather", name, options);
  maker.choose(kByPuts);
  const std::vector<Part> to = parts_of(maker, all, mine, bytes);
  std::vector<Part> from;
  const Place place = maker.schedule.user(mine);
  for (Rank rank = 0; rank < context.size(); ++rank) from.push_back({rank, 0, place, mine.bytes()});
  exchange(maker.schedule, from, to);
  return maker.make();
}

Collective alltoall(Context& context, std::string_view name, const Slice& from, const Slice& to,
                    CollectiveOptions options) {
  Maker maker(context, "alltoall", name, options);
  maker.check(from.bytes() == to.bytes(),
              "from " + std::to_string(from.bytes()) + " bytes to " + std::to_string(to.bytes()));
  const auto size = static_cast<std::size_t>(context.size());
  maker.check(from.bytes() % size == 0,
              std::to_string(from.bytes()) + " bytes are no " + std::to_string(size) + " parts of one size");
  const bool in_place = from.bytes() > 0 && from.data() == to.data();
  maker.check(in_place || !collectives::overlap(from, to), "what it reads and what it writes overlap");
  collectives::choose_alltoall(maker, from, to, in_place);
  return maker.make();
}

Collective alltoall(Context& context, std::string_view name, std::span<const Block> from, std::span<const Block> to,
                    CollectiveOptions options) {
  Maker maker(context, "alltoall", name, options);
  maker.choose(kByPuts);
  bool aside = false;
  for (const Block& source : from)
    for (const Block& target : to) aside |= collectives::overlap(source.slice, target.slice);
  const std::vector<Part> sends = parts_of(maker, from);
  const std::vector<Part> receives = parts_of(maker, to);
  check_own(maker, sends, receives);
  check_own(maker, receives, sends);
  exchange(maker.schedule, sends, receives, aside);
  return maker.make();
}

}  // namespace sluice
