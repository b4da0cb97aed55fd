// SPDX-License-Identifier: Apache-2.0
// A rank's start and end, its failures, and what its engine does between turns.
#include "runtime/world.hpp"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "base/log.hpp"
#include "base/text.hpp"
#include "device/copy.hpp"

namespace sluice::runtime {
namespace {

using base::Clock;

/// Deadline of the thread for leaving channels open: see `time_to_leave`.
thread_local std::optional<Clock::time_point> leaves_by;

constexpr auto kPoisonEvery = std::chrono::milliseconds(10);
constexpr int kLookMax = 16;
// Without sluice-run a rank may take this long to end by itself.
constexpr auto kKilledAfter = std::chrono::seconds(5);
constexpr int kKernelsMs = 10;  // how often to look at what kernels count
constexpr auto kWithoutDescriptors = std::chrono::seconds(5);
constexpr int kClosingMs = 10;  // how often to ask whether a GPU is lost whose work a closing end waits for

std::vector<std::pair<std::string, std::unique_ptr<backends::Transport>>> open_transports(const Place& place,
                                                                                          const base::Env& env) {
  const bool one_host = place.node_size == place.size;
  const int ip_version = place.roster.several_hosts() ? place.roster.listener_of(place.rank).version : 0;
  std::vector<backends::Backend> rows;
  for (const auto name : base::words_of(env.backends)) {
    if (auto row = backends::find_backend(name)) rows.push_back(std::move(*row));
  }
  if (env.backends.empty()) rows = backends::default_backends(!one_host);
  std::vector<std::pair<std::string, std::unique_ptr<backends::Transport>>> open;
  for (const auto& row : rows) {
    if (!row.why_not.empty()) continue;
    open.emplace_back(
        row.name, row.open({env.bounce_max, env.level, env.trigger_entries, env.rails, env.stage_all, env.nics,
                            env.interface, ip_version, place.node_size, place.node_rank, one_host, env.peer_timeout}));
  }
  return open;
}

void begin_trace(const Place& place, const std::string& file) {
  if (file.empty()) return;
  base::trace::start(file, place.job);
  base::trace::set_rank(place.rank);
}

bool hung_up(int fd, std::span<const pollfd> sockets) {
  const auto found = std::find_if(sockets.begin(), sockets.end(), [fd](const pollfd& one) { return one.fd == fd; });
  return found != sockets.end() && (found->revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
}

/// A timer of the kernel's: threads of ours may hang. This is the one place where the library ends a process, as
/// PR_SET_PDEATHSIG ends the children of sluice-run.
void kill_this_process_after(std::chrono::seconds time) {
  sigevent kill{};
  kill.sigev_notify = SIGEV_SIGNAL;
  kill.sigev_signo = SIGKILL;
  timer_t timer{};
  const itimerspec once{{}, {time.count(), 0}};
  if (timer_create(CLOCK_MONOTONIC, &kill, &timer) != 0 || timer_settime(timer, 0, &once, nullptr) != 0) raise(SIGKILL);
}

}  // namespace

Clock::time_point deadline_after(Timeout timeout) noexcept {
  const auto now = Clock::now();
  return timeout > Clock::time_point::max() - now ? Clock::time_point::max() : now + timeout;
}

Timeout time_to_leave(Timeout most) noexcept {
  constexpr Timeout kLeaving = std::chrono::seconds(5);
  const auto now = Clock::now();
  if (!leaves_by || now > *leaves_by + kLeaving) leaves_by = now + std::min(most, kLeaving);
  return std::max<Timeout>(*leaves_by - now, Timeout::zero());
}

void begin_anew() noexcept { leaves_by.reset(); }

World::World(Place place, const base::Env& env, const Options& options)
    : place_(std::move(place)), limits_{options.timeout.value_or(env.timeout.value_or(kForever)),
                                        options.connect_timeout.value_or(env.connect_timeout), env.warn},
      transports_(open_transports(place_, env)), peers_(place_, env.peer_timeout, transports_, *this),
      launcher_fd_(env.launcher_fd),
      engine_(*this, {env.engine_cpu, env.engine_poll, place_.mailbox ? place_.mailbox.waker() : nullptr}) {
  device::nontemporal_min.store(env.nontemporal_min);
  device::kernel_put_max.store(env.kernel_put_max);
  for (const auto& [name, transport] : transports_) engine_.add(*transport);
  constexpr Timeout kOftenest = std::chrono::milliseconds(1);
  const Timeout rarest = std::min<Timeout>(base::step_of(limits_.wait), std::chrono::seconds(10));
  Timeout shortest = limits_.wait;
  if (limits_.warn > Timeout::zero()) shortest = std::min(shortest, limits_.warn);
  ask_every_ = std::chrono::duration_cast<std::chrono::milliseconds>(std::clamp(shortest / 8, kOftenest, rarest));
}

std::shared_ptr<World> World::open(Place place, const base::Env& env, const Options& options) {
  base::prepare_fences();
  begin_trace(place, env.trace);
  base::Env settings = env;
  if (!options.backends.empty()) settings.backends = options.backends;
  std::shared_ptr<World> world(new World(std::move(place), settings, options), base::DeleteHere());
  if (base::trace::on()) world->track_ = base::trace::new_track(world->place_.rank, "engine");
  world->engine_.start(world->track_);
  return world;
}

World::~World() { end(); }

void World::leave() noexcept {
  std::unique_lock lock(mutex_);
  if (ended_) return;
  for (auto& [id, end] : ends_) end->leave("rank " + std::to_string(place_.rank) + " has ended with the channel open");
  for (auto& [id, end] : ends_) begin_closing(*end);
  engine_.wake();
  base::Limit limit(time_to_leave(limits_.connect));
  const auto is_over = [this](auto& entry) { return over(*entry.second); };
  const auto all_over = [&] { return partings_.empty() && std::all_of(ends_.begin(), ends_.end(), is_over); };
  while (!all_over() && !limit.over()) {
    changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
  std::vector<std::shared_ptr<ChannelEnd>> still_used;  // somebody may yet write into their memory
  for (auto& [id, end] : ends_) {
    if (!end->over()) still_used.push_back(end->weak_from_this().lock());
    end->peer_let_go();
  }
  ended_ = true;
  changed_.notify_all();
  lock.unlock();
  for (auto& end : still_used) keep_for_ever(std::move(end));
}

void World::end() noexcept {
  if (!origin_.here()) return;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
  }
  leave();
  engine_.stop();
  {
    const std::lock_guard lock(mutex_);
    peers_.flush();
    peers_.close();
    place_.listener = base::Fd();
    place_.tcp_listener = base::Fd();
    place_.mailbox = Mailbox();
  }
  base::trace::flush();
}

std::vector<std::unique_ptr<backends::Pin>> World::pin(const device::Extent& memory) {
  std::vector<std::unique_ptr<backends::Pin>> pins;
  for (const auto& [name, transport] : transports_) pins.push_back(transport->pin(memory));
  return pins;
}

void World::try_out(device::Driver& driver, int gpu) {
  const device::OnDevice current(driver, gpu);
  for (const auto& [name, transport] : transports_) transport->try_out(driver);
}

backends::Signal World::take_word(Rank peer, Standing standing) {
  const std::lock_guard lock(mutex_);
  return peers_.at(peer).words.take(standing);
}

void World::give_back_word(Rank peer, const backends::Signal& word) {
  const std::lock_guard lock(mutex_);
  peers_.at(peer).words.give_back(word);
}

void World::record(const Error& error) {
  base::log(base::LogLevel::info, error.what());
  const std::lock_guard lock(failures_mutex_);
  failures_.push_back(error);
  failure_count_.store(failures_.size(), std::memory_order_release);
}

void World::check() {
  if (failure_count_.load(std::memory_order_acquire) == 0) return;
  std::unique_lock lock(failures_mutex_);
  if (failures_.empty()) return;
  const Error oldest = std::move(failures_.front());
  failures_.pop_front();
  failure_count_.store(failures_.size(), std::memory_order_release);
  lock.unlock();
  throw Error(oldest);
}

void World::notice_failure(const ChannelEnd& end, Code code, const std::string& what, bool tell_peer) noexcept {
  {
    const std::lock_guard lock(failures_mutex_);
    notices_.push_back({end.id, code, what, tell_peer});
  }
  failing_.store(true);
  engine_.wake();
}

void World::abort(const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, end] : ends_) end->fail(Code::aborted, why);
}

int World::prepare(std::vector<pollfd>& sockets) {
  const std::lock_guard lock(mutex_);
  if (launcher_fd_ >= 0) sockets.push_back({launcher_fd_, 0, 0});  // the end of a pipe is always told
  int patience = peers_.prepare(sockets);
  const auto at_most = [&](int limit) { patience = patience < 0 ? limit : std::min(patience, limit); };
  if (failing_.load()) at_most(static_cast<int>(kPoisonEvery.count()));
  if (asks_for_streams()) at_most(static_cast<int>(ask_every_.count()));
  const auto closes_on_gpu = [](const auto& entry) { return entry.second->gpus() != nullptr && entry.second->closing; };
  if (std::any_of(ends_.begin(), ends_.end(), closes_on_gpu)) at_most(kClosingMs);
  const auto is_counted = [](const auto& entry) { return entry.second->counted(); };
  if (std::any_of(ends_.begin(), ends_.end(), is_counted)) at_most(kKernelsMs);
  if (!partings_.empty()) at_most(1);
  for (const auto& [id, end] : ends_) {
    if (!end->beyond_final() && (!end->closed_by_peer || end->peer_told) && !end->owes_key()) continue;
    // A peer that closes waits for streams of ours, perhaps long.
    at_most(look_ms_);
    look_ms_ = std::min(2 * look_ms_, kLookMax);
    return patience;
  }
  look_ms_ = 1;
  return patience;
}

/// False: a descriptor is lacking, and no room can be made for it.
bool World::serve_peers() {
  const bool served = peers_.serve() || (base::make_room_for_descriptors(peers_.lacking()) && peers_.serve());
  if (served) lacks_since_ = {};
  return served;
}

/// Descriptors may be closed meanwhile. After 5 s channels fail that cannot connect.
void World::go_without_descriptors() {
  const auto now = Clock::now();
  if (lacks_since_ == Clock::time_point{}) {
    lacks_since_ = now;
    lack_ = base::lack_of_descriptors(peers_.lacking());
  }
  if (now - lacks_since_ >= kWithoutDescriptors) {
    for (auto& [id, end] : ends_) {
      const bool starves = Peers::starves(peers_.at(end->opening.key.world_peer));
      if (starves && !end->connected()) end->fail(Code::out_of_resources, lack_);
    }
    peers_.give_up_starving(lack_);
  }
  throw std::runtime_error(lack_);
}

void World::serve(std::span<const pollfd> sockets) {
  std::unique_lock lock(mutex_);
  if (ended_) return;
  try {
    if (launcher_fd_ >= 0 && hung_up(launcher_fd_, sockets)) lose_launcher();
    const bool served = serve_peers();
    send_failures();
    let_go();
    repeat_poison();
    ask_for_streams();
    peers_.flush();
    if (!served) go_without_descriptors();
    complaint_.clear();
  } catch (const std::exception& reason) {
    // Out of descriptors or memory: said once, and tried again a little later.
    if (std::exchange(complaint_, reason.what()) != reason.what())
      base::log(base::LogLevel::error, "rank " + std::to_string(place_.rank) + ": " + reason.what());
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  changed_.notify_all();
}

void World::lose_launcher() {
  launcher_fd_ = -1;
  launcher_lost_ = true;
  kill_this_process_after(kKilledAfter);
  base::log(base::LogLevel::error, "rank " + std::to_string(place_.rank) + ": " + kLauncherLost);
  for (auto& [id, end] : ends_) end->fail(Code::aborted, kLauncherLost);
}

bool World::asks_for_streams() const {
  return std::any_of(ends_.begin(), ends_.end(), [](const auto& entry) { return entry.second->gpus() != nullptr; });
}

void World::ask_for_streams() {
  const auto now = Clock::now();
  for (auto& [id, end] : ends_) {
    if (end->gpus() != nullptr || end->counted()) end->ask_for_stream(now);
  }
}

void World::repeat_poison() {
  if (!failing_.load() || Clock::now() < poison_due_) return;
  poison_due_ = Clock::now() + kPoisonEvery;
  failing_.store(false);  // before the scan: what fails during it is not forgotten
  bool any = false;
  for (auto& [id, end] : ends_) {
    if (!end->failed()) continue;
    end->poison_again();
    end->forget_refused_rings();
    any = true;
  }
  if (any) failing_.store(true);
}

}  // namespace sluice::runtime
