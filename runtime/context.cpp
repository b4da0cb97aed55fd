// SPDX-License-Identifier: Apache-2.0
#include "runtime/context.hpp"

#include <sluice/context.hpp>

#include <algorithm>
#include <map>
#include <new>
#include <unordered_map>

#include "base/fork.hpp"
#include "base/limit.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "base/trace.hpp"
#include "device/host_stream.hpp"
#include "device/retire.hpp"
#include "runtime/handles.hpp"
#include "runtime/plan.hpp"
#include "runtime/target.hpp"
#include "runtime/world.hpp"

namespace sluice {

using detail::ContextAccess;
using runtime::Role;
using runtime::World;

namespace {

/// The contents of a slot as they are sent to the peer. A packet may not hold long ones: those are cut, with a hash.
std::string shortened(std::string_view contents) {
  constexpr std::size_t kMost = 65536;
  if (contents.size() <= kMost) return std::string(contents);
  return std::string(contents.substr(0, kMost)) + " ... hash:" + std::to_string(base::hash(contents));
}

/// A path of names that no other list of names spells.
std::string inside(const std::string& scope, char kind, std::string_view name) {
  return scope + kind + std::to_string(name.size()) + ":" + std::string(name);
}

std::shared_ptr<detail::Block> new_block(const std::shared_ptr<World>& world, Rank rank) {
  auto block = base::make_here<detail::Block>();
  block->world = world;
  block->rank = rank;
  return block;
}

/// The stream raises a word when it comes there: drivers know no limits.
bool passes_in_time(Stream stream, Timeout timeout) {
  const auto passed = std::make_shared<base::Word>();
  auto reaches = std::make_unique<std::shared_ptr<base::Word>>(passed);
  const auto raise = [](void* word) {
    const std::unique_ptr<std::shared_ptr<base::Word>> owned(static_cast<std::shared_ptr<base::Word>*>(word));
    (*owned)->value.store(1, std::memory_order_release);
  };
  device::on_gpu(device::GpuCall(stream), [&](device::Lane lane) { lane.gpu->call(raise, reaches.get()); });
  static_cast<void>(reaches.release());
  base::Parking nobody_wakes;
  nobody_wakes.silence();
  base::Limit limit(timeout);
  while (!base::wait_until(
      nobody_wakes, [&] { return base::reached(*passed, 1); }, limit.next())) {
    if (limit.over()) return false;
  }
  return true;
}

/// The stream's GPU, unless the stream captures: what it is given does not run, and a wait makes the capture invalid.
int gpu_that_runs(device::Driver& driver, Stream stream, Rank rank) {
  try {
    const auto [gpu, capture] = driver.look_at(stream.handle());
    if (capture == 0) return gpu;
  } catch (const device::InvalidCapture&) {  // NOLINT(bugprone-empty-catch): the same mistake
  }
  throw Error(Code::misuse, rank, -1, 0, 0, "the stream captures a graph, which has not run: end the capture first");
}

void synchronize_gpu(Stream stream, Rank rank, Timeout timeout) {
  try {
    device::Driver& driver = *device::driver(stream.kind());
    const device::OnDevice current(driver, gpu_that_runs(driver, stream, rank));
    if (timeout != kForever && !passes_in_time(stream, timeout))
      throw Error(Code::timeout, rank, -1, 0, 0, "the GPU's stream has not passed what it was given before");
    driver.synchronize(stream.handle());
  } catch (const device::GpuError& reason) {
    throw Error(Code::transport, rank, -1, 0, 0, reason.what());
  }
  device::reap();
}

}  // namespace

constexpr std::size_t kMaxName = 4096;       // of a channel or a scope
constexpr std::size_t kMaxPath = 64 * 1024;  // of scopes and sub-contexts in each other: fits into one packet

/// Ranks of a world, in an order of their own, and the scope that keeps their tags apart from those of other contexts.
struct Context::Impl {
  const base::Origin origin;
  std::shared_ptr<World> world;
  std::vector<Rank> ranks;  ///< of the world, by rank of this context; empty: the world's own
  Rank rank = 0;
  int size = 1;
  int node_rank = 0;
  int node_size = 1;
  std::string scope;
  std::mutex mutex;
  std::map<std::string, int> subs;  ///< how often each list of ranks was made a context of
  std::vector<Rank> nodes;          ///< by rank: the first rank of its host; empty: not needed so far

  Rank world_rank(Rank member) const { return ranks.empty() ? member : ranks[static_cast<std::size_t>(member)]; }
  Error error(Code code, Rank peer, Tag tag, const std::string& what) const { return {code, rank, peer, tag, 0, what}; }
  Error bad(const std::string& what) const { return error(Code::bad_argument, -1, 0, what); }
  /// Returns what `take` returns. A lack of resources becomes an error of this kind, which begins with `what`.
  template <class Take>
  auto with_resources(Take take, Code code, Rank peer, Tag tag, const std::string& what) const {
    try {
      return take();
    } catch (const std::bad_alloc&) {
      throw error(code, peer, tag, what + ": more memory than this machine has");
    } catch (const std::runtime_error& reason) {  // of the system, or of a GPU's driver
      throw error(code, peer, tag, what + ": " + reason.what());
    }
  }
  void find_node() {
    const runtime::Place& place = world->place();
    const auto here = [&](Rank member) { return place.roster.same_host(place.rank, member); };
    node_rank = static_cast<int>(std::count_if(ranks.begin(), ranks.begin() + rank, here));
    node_size = static_cast<int>(std::count_if(ranks.begin(), ranks.end(), here));
  }
  Rank node_of(Rank member) {
    const std::lock_guard lock(mutex);
    if (nodes.empty()) {
      std::unordered_map<std::uint32_t, Rank> first;
      std::vector<Rank> all;
      for (Rank next = 0; next < size; ++next)
        all.push_back(first.try_emplace(world->place().roster.host_of(world_rank(next)), next).first->second);
      nodes = std::move(all);
    }
    return nodes[static_cast<std::size_t>(member)];
  }
  std::string checked(std::string path) const {
    if (path.size() > kMaxPath) throw bad("scopes and sub-contexts are nested too deep");
    return path;
  }
};

struct Scope::Impl {
  Context context;
  std::string scope;
  const base::Origin origin{};
};

struct detail::ContextAccess {
  static Context make(std::shared_ptr<World> world) {
    auto impl = base::make_here<Context::Impl>();
    impl->rank = world->place().rank;
    impl->size = world->place().size;
    impl->node_rank = world->place().node_rank();
    impl->node_size = world->place().node_size();
    impl->world = std::move(world);
    return Context(std::move(impl));
  }
  static World& world(Context& context) { return *context.impl_->world; }

  template <class Handle>
  static Handle open(Context::Impl& in, const std::string& scope, Rank peer, Tag tag, Slice memory,
                     const ChannelOptions& options, const void* from) {
    constexpr bool sends = std::is_same_v<Handle, Sender>;
    constexpr Role role = sends ? Role::sender : Role::receiver;
    using Core = std::conditional_t<sends, SenderCore, ReceiverCore>;
    const auto services = in.world->share_services();
    runtime::Opening opening = checked(in, scope, role, peer, tag, std::move(memory), options);
    const auto make = [&] { return base::make_here<Core>(services, std::move(opening)); };
    auto core = in.with_resources(make, Code::out_of_resources, peer, tag, "opening");
    if (services->checks) core->begin_checks(from);
    services->registry.open(*core);
    return ChannelAccess::make<Handle>(std::move(core));
  }
  static Context::Impl& of(const Context& context) { return context.in(); }
  static Window open_window(Context::Impl& in, std::string_view name, Slice memory, std::uint32_t counters,
                            AtomicsOf atomics) {
    memory = SliceAccess::own(std::move(memory));
    if (const std::string why = runtime::why_no_window(memory); !why.empty()) throw in.bad(why);
    if (counters > Window::kMostCounters) throw in.bad("a window of " + std::to_string(counters) + " counters");
    const auto services = in.world->share_services();
    runtime::WindowOpening opening{
        window_scope(in, name),           std::string(name), in.rank, in.ranks, memory, counters, atomics,
        base::hash(in.world->place().job)};
    const auto make = [&] { return base::make_here<runtime::WindowCore>(services, std::move(opening)); };
    auto core = in.with_resources(make, Code::out_of_resources, -1, 0, "making a window");
    services->registry.open(core);
    return ChannelAccess::make_window(std::move(core));
  }
  static Target open_target(Context::Impl& in, Rank peer, std::string scope, std::string name,
                            std::optional<runtime::Block> block) {
    const auto services = in.world->share_services();
    const auto tag = static_cast<Tag>(services->registry.next_id());  // no other target of this rank has it
    ChannelOptions options;
    check(in, peer, tag, {}, options);
    runtime::Opening opening{
        {in.world_rank(peer), std::move(scope), tag, Role::target}, in.rank, peer, {}, options, std::move(name), {}};
    const auto make = [&] { return base::make_here<runtime::TargetCore>(services, std::move(opening), block); };
    auto core = in.with_resources(make, Code::out_of_resources, peer, tag, "opening");
    services->registry.open(*core);
    return ChannelAccess::make<Target>(std::move(core));
  }
  static std::string window_scope(const Context::Impl& in, std::string_view name) {
    if (name.empty() || name.size() > kMaxName)
      throw in.bad("the name of a window has 1 to " + std::to_string(kMaxName) + " characters");
    return in.checked(inside(in.scope, '@', name));
  }
  static Target open_target(Context::Impl& in, std::span<const std::byte> handle) {
    const auto read = runtime::read_handle(handle, base::hash(in.world->place().job));
    if (const auto* const why = std::get_if<std::string>(&read)) throw in.bad(*why);
    const auto& block = std::get<runtime::BlockOfWindow>(read);
    for (Rank peer = 0; peer < in.size; ++peer) {
      if (in.world_rank(peer) == block.world_rank) return open_target(in, peer, block.scope, {}, block.block);
    }
    throw in.bad("a handle of a window of a rank that is not in this context");
  }

 private:
  static runtime::Opening checked(Context::Impl& in, const std::string& scope, Role role, Rank peer, Tag tag,
                                  Slice memory, const ChannelOptions& options) {
    check(in, peer, tag, memory, options);
    memory = SliceAccess::own(std::move(memory));
    runtime::Opening opening{{in.world_rank(peer), scope, tag, role},
                             in.rank,
                             peer,
                             memory,
                             options,
                             std::string(options.name),
                             shortened(options.contents)};
    opening.options.name = opening.options.contents = {};
    if (!options.stream || !device::of_gpu(*options.stream)) return opening;
    const auto try_out = [&] {
      device::Driver& driver = *device::driver(options.stream->kind());
      const int gpu = driver.device_of(options.stream->handle());
      in.world->services().try_out(driver, gpu);
      return gpu;
    };
    opening.gpu = in.with_resources(try_out, Code::bad_argument, peer, tag, "its stream");
    return opening;
  }
  static void check(Context::Impl& in, Rank peer, Tag tag, const Slice& memory, const ChannelOptions& options) {
    const auto bad = [&](const std::string& what) { return in.error(Code::bad_argument, peer, tag, what); };
    if (peer < 0 || peer >= in.size) {
      throw bad("there is no rank " + std::to_string(peer) + " among " + std::to_string(in.size));
    }
    if (options.depth < 1) throw bad("a depth of " + std::to_string(options.depth) + "; it must be 1 or more");
    if (options.rails < 0) throw bad("a negative number of rails");
    if (options.rails > 1)
      throw in.error(Code::unsupported, peer, tag, "a channel cannot choose its rails; SLUICE_RAILS does");
    if (memory.bytes() % static_cast<std::size_t>(options.depth) != 0) {
      throw bad("a slice of " + std::to_string(memory.bytes()) + " bytes is not " + std::to_string(options.depth) +
                " slots of equal size");
    }
    if (options.name.size() > kMaxName) throw bad("a name of more than " + std::to_string(kMaxName) + " characters");
    if (options.stream) device::check_supported(*options.stream, in.rank);
  }
};

Rank Context::rank() const noexcept { return impl_ == nullptr ? -1 : impl_->rank; }
int Context::size() const noexcept { return impl_ == nullptr ? 0 : impl_->size; }
int Context::node_rank() const noexcept { return impl_ == nullptr ? -1 : impl_->node_rank; }
int Context::node_size() const noexcept { return impl_ == nullptr ? 0 : impl_->node_size; }
Rank Context::node_of(Rank rank) const {
  Impl& in = this->in();
  if (rank < 0 || rank >= in.size) throw in.bad("there is no rank " + std::to_string(rank));
  return in.node_of(rank);
}

Context::Impl& Context::in() const { return detail::usable_here(impl_); }
Scope::Impl& Scope::in() const { return detail::usable_here(impl_); }

Memory Context::allocate(std::size_t bytes, Space space, int device) {
  if (bytes == 0) throw in().bad("0 bytes cannot be allocated");
  device::Driver* const gpus = space == Space::host ? nullptr : device::any_driver();
  if (device < -1 || device >= std::max(1, gpus == nullptr ? 0 : gpus->devices()))
    throw in().bad("there is no device " + std::to_string(device));
  const auto allocate = [&] {
    if (gpus != nullptr && space == Space::device)
      return device::allocate_on(*gpus, device < 0 ? gpus->current_device() : device, bytes);
    device::Allocation memory = device::allocate(bytes, true);
    if (gpus != nullptr) device::reach(*gpus, memory.extent());
    return memory;
  };
  auto block = new_block(in().world, in().rank);
  block->allocation =
      in().with_resources(allocate, Code::out_of_resources, -1, 0, "allocating " + std::to_string(bytes) + " bytes");
  block->extent = block->allocation.extent();
  block->space = space;
  block->gpus_here = gpus != nullptr;
  block->pins = in().world->pin(block->extent);
  return Memory(std::move(block));
}

Region Context::region(void* memory, std::size_t bytes) {
  if (memory == nullptr && bytes > 0) throw in().bad("a region without memory");
  auto block = new_block(in().world, in().rank);
  const auto adopt = [&] { return device::adopt(memory, bytes); };
  block->allocation = in().with_resources(adopt, Code::out_of_resources, -1, 0, "the region's memory");
  block->extent = block->allocation.extent();
  block->pins = in().world->pin(block->extent);
  return Region(std::move(block));
}

Sender Context::sender(Rank peer, Tag tag, Slice source, ChannelOptions options) {
  return ContextAccess::open<Sender>(in(), in().scope, peer, tag, std::move(source), options,
                                     __builtin_return_address(0));
}

Receiver Context::receiver(Rank peer, Tag tag, Slice target, ChannelOptions options) {
  return ContextAccess::open<Receiver>(in(), in().scope, peer, tag, std::move(target), options,
                                       __builtin_return_address(0));
}

Sender Scope::sender(Rank peer, Tag tag, Slice source, ChannelOptions options) {
  Context::Impl& context = ContextAccess::of(in().context);
  return ContextAccess::open<Sender>(context, in().scope, peer, tag, std::move(source), options,
                                     __builtin_return_address(0));
}

Receiver Scope::receiver(Rank peer, Tag tag, Slice target, ChannelOptions options) {
  Context::Impl& context = ContextAccess::of(in().context);
  return ContextAccess::open<Receiver>(context, in().scope, peer, tag, std::move(target), options,
                                       __builtin_return_address(0));
}

Plan Context::plan() {
  return detail::PlanAccess::make(base::make_here<detail::PlanCore>(in().world->share_services(), in().rank));
}

Window Context::window(std::string_view name, Slice memory, std::uint32_t counters, AtomicsOf atomics) {
  return ContextAccess::open_window(in(), name, std::move(memory), counters, atomics);
}

Target Context::target(Rank peer, std::string_view name) {
  return ContextAccess::open_target(in(), peer, ContextAccess::window_scope(in(), name), std::string(name), {});
}

Target Context::target(std::span<const std::byte> handle) { return ContextAccess::open_target(in(), handle); }

Scope Context::scope(std::string_view name) {
  if (name.size() > kMaxName) throw in().bad("a scope's name is too long");
  return Scope(std::make_shared<Scope::Impl>(Scope::Impl{*this, in().checked(inside(in().scope, '/', name))}));
}

Context Context::sub(std::initializer_list<Rank> ranks) { return sub(std::span(ranks.begin(), ranks.size())); }

Context Context::sub(std::span<const Rank> ranks) {
  auto sub = base::make_here<Impl>();
  sub->world = in().world;
  sub->size = static_cast<int>(ranks.size());
  sub->rank = -1;
  std::string list;
  for (const Rank member : ranks) {
    const std::string named = "a context of some ranks: rank " + std::to_string(member);
    if (member < 0 || member >= in().size) throw in().bad(named + " does not exist");
    if (std::count(ranks.begin(), ranks.end(), member) > 1) throw in().bad(named + " is named twice");
    if (member == in().rank) sub->rank = static_cast<Rank>(sub->ranks.size());
    sub->ranks.push_back(in().world_rank(member));
    list += std::to_string(member) + ",";
  }
  if (sub->rank < 0) throw in().bad("a context of some ranks is made by those ranks alone");
  sub->find_node();
  const std::lock_guard lock(in().mutex);
  sub->scope = in().checked(inside(in().scope, '#', list + std::to_string(in().subs[list]++)));
  return Context(std::move(sub));
}

void Context::synchronize(Stream stream, Timeout timeout) {
  device::check_supported(stream, in().rank);
  if (stream.kind() == Stream::Kind::host) static_cast<HostStream::Impl*>(stream.handle())->synchronize(timeout);
  if (device::of_gpu(stream)) synchronize_gpu(stream, in().rank, timeout);
  check();
}

Timeout Context::timeout() const { return in().world->services().limits.wait; }
Timeout Context::connect_timeout() const { return in().world->services().limits.connect; }

void Context::check() { in().world->services().failures.check(); }

void Context::abort(std::string_view why) { in().world->abort(std::string(why)); }

namespace runtime {

bool maps_on_host(const Context& context) {
  return ContextAccess::of(context).world->services().maps_on_host != backends::Transport::Maps::nothing;
}

Rank world_rank(const Context& context, Rank rank) { return ContextAccess::of(context).world_rank(rank); }
int world_size(const Context& context) { return ContextAccess::of(context).world->place().size; }

Context open_context(Place place, const base::Env& env, const Options& options) {
  return ContextAccess::make(World::open(std::move(place), env, options));
}

void end_context(Context& context, bool failed) noexcept {
  World& world = ContextAccess::world(context);
  if (failed) base::log(base::LogLevel::info, "rank " + std::to_string(context.rank()) + " ends with a failure");
  world.end(failed);
}

}  // namespace runtime
}  // namespace sluice
