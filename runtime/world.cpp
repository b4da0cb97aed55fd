// SPDX-License-Identifier: Apache-2.0
// The start and the end of a rank, and the work of its engine between turns.
#include "runtime/world.hpp"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "base/limit.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "device/copy.hpp"
#include "runtime/kept.hpp"
#include "runtime/report.hpp"

namespace sluice::runtime {
namespace {

using base::Clock;

// Without sluice-run a rank may take this long to end by itself.
constexpr auto kKilledAfter = std::chrono::seconds(5);
constexpr auto kWithoutDescriptors = std::chrono::seconds(5);

backends::Transports open_transports(const Place& place, const base::Env& env) {
  const bool one_host = place.node_size() == place.size;
  const int ip_version = place.roster.several_hosts() ? place.roster.listener_of(place.rank).version : 0;
  std::vector<backends::Backend> rows;
  for (const auto name : base::words_of(env.backends)) {
    if (auto row = backends::find_backend(name)) rows.push_back(std::move(*row));
  }
  if (env.backends.empty()) rows = backends::default_backends(!one_host);
  backends::Transports open;
  for (const auto& row : rows) {
    if (!row.why_not.empty()) continue;
    open.emplace_back(row.name, row.open({env.bounce_max, env.level, env.trigger_entries, env.rails, env.stage_all,
                                          env.nics, env.interface, ip_version, place.node_size(), place.node_rank(),
                                          one_host, env.peer_timeout}));
  }
  return open;
}

/// Which memory of another rank of its host every rank maps: the backend of two ranks is the first of the list that
/// reaches the one from the other.
backends::Transport::Maps what_hosts_map(const Place& place, const backends::Transports& transports) {
  using Maps = backends::Transport::Maps;
  for (const auto& [name, transport] : transports) {
    if (transport->maps != Maps::process || place.mailbox) return transport->maps;
  }
  return Maps::nothing;
}

/// Returns which memory of this rank every other rank maps.
backends::Transport::Maps what_all_map(const Place& place, const backends::Transports& transports) {
  return place.node_size() == place.size ? what_hosts_map(place, transports) : backends::Transport::Maps::nothing;
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

Limits limits_of(const base::Env& env, const Options& options) {
  return {options.timeout.value_or(env.timeout.value_or(kForever)),
          options.connect_timeout.value_or(env.connect_timeout), env.warn};
}

std::chrono::milliseconds check_every(const Limits& limits) {
  constexpr Timeout kOftenest = std::chrono::milliseconds(1);
  const Timeout rarest = std::min<Timeout>(base::step_of(limits.wait), std::chrono::seconds(10));
  Timeout shortest = limits.wait;
  if (limits.warn > Timeout::zero()) shortest = std::min(shortest, limits.warn);
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::clamp(shortest / 8, kOftenest, rarest));
}

}  // namespace

World::World(Place place, const base::Env& env, const Options& options)
    : place_(std::move(place)), transports_(open_transports(place_, env)),
      peers_(place_, env.peer_timeout, transports_, registry_), registry_(engine_, peers_, failures_),
      launcher_fd_(env.launcher_fd), services_{engine_,
                                               registry_,
                                               failures_,
                                               transports_,
                                               limits_of(env, options),
                                               what_all_map(place_, transports_),
                                               what_hosts_map(place_, transports_),
                                               env.check,
                                               check_every(limits_of(env, options)),
                                               place_.rank},
      engine_(*this, {env.engine_cpu, env.engine_poll, place_.mailbox ? place_.mailbox.waker() : nullptr}) {
  base::prepare_copies(env.nontemporal_min, env.nontemporal);
  device::kernel_put_max.store(env.kernel_put_max);
  for (const auto& [name, transport] : transports_) engine_.add(*transport);
}

std::shared_ptr<World> World::open(Place place, const base::Env& env, const Options& options) {
  base::prepare_fences();
  begin_trace(place, env.trace);
  base::Env settings = env;
  if (!options.backends.empty()) settings.backends = options.backends;
  std::shared_ptr<World> world(new World(std::move(place), settings, options), base::DeleteHere());
  if (base::trace::on()) world->services_.track = base::trace::new_track(world->place_.rank, "engine");
  world->engine_.start(world->services_.track);
  return world;
}

World::~World() { end(false); }

void World::end(bool body_failed) noexcept {
  if (!origin_.here()) return;
  {
    const std::lock_guard lock(registry_.mutex());
    if (registry_.ended()) return;
  }
  tell_of_failures(body_failed);
  base::Limit limit(time_to_leave(services_.limits.connect));
  registry_.leave("rank " + std::to_string(place_.rank) + " has ended with the channel open", limit);
  engine_.stop();
  {
    const std::lock_guard lock(registry_.mutex());
    peers_.flush();
    try {
      while (peers_.owes_last_words() && !limit.over()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        (void)peers_.serve();
      }
    } catch (const std::exception& reason) {
      base::log(base::LogLevel::info, std::string("a peer may not know why this rank ends: ") + reason.what());
    }
    peers_.close();
    place_.listener = base::Fd();
    place_.tcp_listener = base::Fd();
    place_.mailbox = Mailbox();
  }
  base::trace::flush();
}

std::vector<std::shared_ptr<const void>> World::pin(const device::Extent& memory) {
  std::vector<std::shared_ptr<const void>> pins;
  for (const auto& [name, transport] : transports_) pins.push_back(transport->pin(memory));
  return pins;
}

void Services::try_out(device::Driver& driver, int gpu) const {
  const device::OnDevice current(driver, gpu);
  for (const auto& [name, transport] : transports) transport->try_out(driver);
}

void World::abort(const std::string& why) {
  const std::lock_guard lock(registry_.mutex());
  registry_.abort(why);
}

void World::tell_of_failures(bool body_failed) {
  if (body_failed) failures_.exceptions()->told = true;  // by the exception that left the body
  const auto untold = failures_.take_untold();
  for (const SharedFailure& failure : untold) {
    base::report_untold("rank " + std::to_string(place_.rank) +
                        ": no call has thrown this: " + failure->error().what());
  }
  const auto is_loss = [](const SharedFailure& failure) { return failure->error().code() == Code::peer_lost; };
  if (!body_failed && !untold.empty() && std::ranges::all_of(untold, is_loss)) report().lost_peer = true;
}

int World::prepare(std::vector<pollfd>& sockets) {
  const std::lock_guard lock(registry_.mutex());
  if (launcher_fd_ >= 0) sockets.push_back({launcher_fd_, 0, 0});  // the end of a pipe is always told
  const int of_peers = peers_.prepare(sockets);
  const int of_ends = registry_.patience();
  return of_peers < 0 || of_ends < 0 ? std::max(of_peers, of_ends) : std::min(of_peers, of_ends);
}

/// False: a descriptor is lacking, and no room can be made for it.
bool World::serve_peers() {
  const bool served = peers_.serve() || (base::make_room_for_descriptors(peers_.lacking()) && peers_.serve());
  if (served) lacks_since_ = {};
  return served;
}

/// The program may close descriptors meanwhile. After 5 s, channels that cannot connect fail.
void World::go_without_descriptors() {
  const auto now = Clock::now();
  if (lacks_since_ == Clock::time_point{}) {
    lacks_since_ = now;
    lack_ = base::lack_of_descriptors(peers_.lacking());
  }
  if (now - lacks_since_ >= kWithoutDescriptors) registry_.give_up_starving(lack_);
  throw std::runtime_error(lack_);
}

void World::serve(std::span<const pollfd> sockets) {
  std::unique_lock lock(registry_.mutex());
  if (registry_.ended()) return;
  try {
    if (launcher_fd_ >= 0 && hung_up(launcher_fd_, sockets)) lose_launcher();
    const bool served = serve_peers();
    registry_.serve();
    peers_.flush();
    if (!served) go_without_descriptors();
    complaint_.clear();
  } catch (const std::exception& reason) {
    // Out of descriptors or memory: logged once, and tried again a little later.
    if (std::exchange(complaint_, reason.what()) != reason.what())
      base::log(base::LogLevel::error, "rank " + std::to_string(place_.rank) + ": " + reason.what());
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  registry_.changed();
}

void World::lose_launcher() {
  launcher_fd_ = -1;
  kill_this_process_after(kKilledAfter);
  base::log(base::LogLevel::error, "rank " + std::to_string(place_.rank) + ": " + kLauncherLost);
  registry_.doom(kLauncherLost);
}

}  // namespace sluice::runtime
