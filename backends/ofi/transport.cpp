// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/transport.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "backends/ofi/access.hpp"
#include "backends/ofi/by_counter.hpp"
#include "backends/ofi/expected.hpp"
#include "backends/ofi/landing.hpp"
#include "backends/ofi/page_bell.hpp"
#include "backends/ofi/paths.hpp"
#include "backends/ofi/provider.hpp"
#include "backends/ofi/rma.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "device/retire.hpp"

namespace sluice::backends::ofi {
namespace {

/// Below this a slot is not worth more than one rail, unless the user says so.
constexpr std::size_t kStripedFrom = 64 * 1024;

class OfiLink final : public Link {
 public:
  OfiLink(Station& station, Address ours, Address theirs, bool here, std::size_t near, int rails)
      : station_(station), paths_(find_paths(station, there_, std::move(ours), std::move(theirs), here, near)),
        rails_(rails) {
    paths = paths_.get();
  }

  std::size_t rails(const Slots& target) const override {
    const std::size_t most = paths_->endpoints().numbers.size();
    if (target.memory.bytes == 0) return 1;
    if (rails_ > 0) return std::min(most, static_cast<std::size_t>(rails_));
    return target.slot_bytes < kStripedFrom ? 1 : std::min(most, Place::kMostRails);
  }
  Landed land(const Slots& target, std::span<const Signal> signals) override {
    const bool countable = target.memory.bytes != 0 && target.depth <= kMostCounted;
    try {
      if (station_.manner.notice == Notice::counter && countable && in_one_write(target))
        return land_counted(station_, there_, paths_->endpoints(), target, signals);
    } catch (const std::runtime_error& reason) {
      say_not_by_nic(reason);
    }
    return land_uncounted(station_, there_, paths_->endpoints(), target, signals);
  }
  void arrived(Key&) override {}
  std::unique_ptr<Put> prepare(const Slots& source, device::Watch& watch, Key key) override {
    const Target place = target_of(key);
    try {
      if (can_be_armed(place, source)) return fire_by_nic(station_, there_, source, watch, place);
    } catch (const std::runtime_error& reason) {
      say_not_by_nic(reason);
    }
    return std::make_unique<RmaPut>(station_, there_, source, watch, place);
  }
  void lost() override {
    paths_->lost();
    const std::lock_guard lock(station_.mutex);
    *there_.lost = true;
    for (Mover* const mover : there_.movers) mover->peer_lost();
  }
  Offer offer(const device::Extent& memory, const device::Extent& counters) override {
    return offer_memory(station_, there_, memory, counters);
  }
  std::unique_ptr<Access> access(int depth, device::Watch& watch, Key key) override {
    return open_access(station_, there_, depth, watch, key);
  }

 private:
  /// The NIC has too few counters left: the engine does it instead.
  static void say_not_by_nic(const std::runtime_error& reason) {
    base::log(base::LogLevel::info, std::string("not by the NIC: ") + reason.what());
  }
  /// The provider reaches it, and a slot is not larger than a message may be.
  bool in_one_write(const Slots& slots) const {
    const std::lock_guard lock(station_.mutex);
    return std::ranges::all_of(station_.rails, [&](const auto& rail) {
      return slots.slot_bytes <= rail->largest_message() && rail->registered_if_reached(slots.memory) != nullptr;
    });
  }
  /// True if arrivals are counted, or it is a word alone; they arrive in order; and the NIC has entries left.
  bool can_be_armed(const Place& place, const Slots& source) const {
    if (source.memory.bytes != 0 && !in_one_write(source)) return false;
    const std::lock_guard lock(station_.mutex);
    const bool fits = place.notice == Notice::counter || (place.notice == Notice::word && place.slot_bytes == 0);
    return station_.manner.notice == Notice::counter && station_.manner.ordered && fits && place.rails == 1 &&
           entries_for(place) <= station_.entries_left;
  }

  Station& station_;
  Destination there_;
  std::unique_ptr<Paths> paths_;
  int rails_;
};

void say_left_out(const Devices& devices) {
  std::string names;
  for (std::size_t i = Place::kMostRails; i < devices.size(); ++i)
    names += (names.empty() ? "" : ", ") + candidate(*devices[i]).name;
  if (names.empty()) return;
  base::log(base::LogLevel::warn, "not used, as a rank uses " + std::to_string(Place::kMostRails) +
                                      " network devices at most: " + names + " (SLUICE_NICS chooses)");
}

class OfiTransport final : public Transport {
 public:
  OfiTransport(const std::string& name, const Provider& provider, const Settings& settings) : settings_(settings) {
    constexpr std::size_t kOfRail = 16;  // and of the library, at its first
    station_.provider = name;
    station_.patience = settings.patience;
    const auto [devices, near] = choose_devices(provider, settings);
    say_left_out(devices);
    const std::size_t rails =
        std::min(std::max(static_cast<std::size_t>(settings.rails), devices.size()), Place::kMostRails);
    expected_ = expect_descriptors(kOfRail * rails);
    for (std::size_t i = 0; i < rails; ++i)
      station_.rails.push_back(
          std::make_unique<Rail>(*devices[i % devices.size()], settings.level == 4, settings.stage_all));
    near_ = near == devices.size() ? station_.rails.size() : near;
    station_.manner = choose_manner(station_.rails.front()->info(), settings.level);
    if (station_.manner.notice == Notice::counter) count_entries();
    tells_ = std::ranges::all_of(station_.rails, [](const auto& rail) { return rail->wait_fd() >= 0; });
    address_ = pack(own_address());
  }

  bool reaches(const Blob& peer, bool) const override { return unpack(peer).provider == station_.provider; }
  std::shared_ptr<const void> pin(const device::Extent& memory) override {
    auto pin = new_pin(station_);
    const std::lock_guard lock(station_.mutex);
    for (const auto& rail : station_.rails) pin->push_back(rail->registered_if_reached(memory));
    return pin;
  }
  std::unique_ptr<Link> connect(Rank, const Blob& peer, bool here) override {
    base::fill_standard_descriptors();  // which the program may have closed since the start
    auto link = std::make_unique<OfiLink>(station_, own_address(), unpack(peer), here, near_, settings_.rails);
    const std::lock_guard lock(station_.mutex);
    connected_ = true;
    return link;
  }

  /// Tries out how a page is rung for a GPU. Behind a parked stream nothing can be tried.
  void try_out(device::Driver& driver) override {
    const std::lock_guard one_at_a_time(trying_);
    const auto known = [&] {
      const std::lock_guard lock(station_.mutex);
      return !station_.rings_by_page || station_.ringers;
    };
    if (known() || device::any_parked()) return;
    Ringers ringers;
    try {
      ringers = choose_ringers(driver, *station_.rails.front(), station_.mutex);
    } catch (const std::runtime_error& reason) {
      base::log(base::LogLevel::info, std::string("rung by the engine: ") + reason.what());
    }
    const std::lock_guard lock(station_.mutex);
    station_.ringers = ringers;
  }

  AfterTurn poll() override {
    std::vector<std::unique_ptr<ArmedWork>> gone;  // its end takes the mutex itself
    const std::lock_guard lock(station_.mutex);
    bool left = false;
    bool awaits = false;
    const auto& rails = station_.rails;
    for (std::size_t i = 0; i < rails.size(); ++i) {
      rails[i]->poll([&](std::uint64_t number) { station_.arrivals.landed(number, i); });
      left |= rails[i]->under_way() > 0 && !tells_;
    }
    left |= station_.attend();
    for (TickBell* bell : station_.bells) {
      const bool was_rung = bell->look();
      if (!bell->awaited()) continue;
      awaits = true;
      left |= was_rung;
    }
    for (CountedLanding* landing : station_.counted) look(*landing);
    for (TriggeredPut* put : station_.triggered) left |= look(*put);
    auto& left_work = station_.left_work;
    const auto first_gone =
        std::partition(left_work.begin(), left_work.end(), [](const auto& work) { return !work->look(); });
    std::move(first_gone, left_work.end(), std::back_inserter(gone));
    left_work.erase(first_gone, left_work.end());
    station_.written_words.look();
    return left ? AfterTurn::work : awaits ? AfterTurn::words : AfterTurn::nothing;
  }

  // The descriptors are in no set of ours while the engine is awake: each packet would wake the set.
  int rest(std::vector<pollfd>& tellers) override {
    constexpr int kLookMs = 1;  // where nothing tells
    const std::lock_guard lock(station_.mutex);
    if (!connected_) return kNoLimit;
    if (!tells_) return kLookMs;
    const auto& rails = station_.rails;
    if (!std::ranges::all_of(rails, [](const auto& rail) { return rail->may_sleep(); })) return 0;
    for (const auto& rail : rails) tellers.push_back({rail->wait_fd(), POLLIN, 0});
    const bool under_way = std::ranges::any_of(rails, [](const auto& rail) { return rail->under_way() > 0; });
    const bool must_look = under_way || !station_.written_words.empty() || !station_.counted.empty() ||
                           !station_.triggered.empty() || !station_.left_work.empty();
    return must_look ? kLookMs : kNoLimit;
  }

 private:
  /// All ranks on a NIC share its entries.
  void count_entries() {
    const Rail& rail = *station_.rails.front();
    station_.rings_by_page = pages_work(rail);
    station_.entries_left = settings_.trigger_entries.value_or(std::numeric_limits<int>::max());
    const auto nic = armable(rail);
    if (nic) {
      station_.entries_left = std::min(station_.entries_left, static_cast<int>(*nic) / settings_.node_size);
    } else if (station_.rings_by_page && !settings_.trigger_entries) {
      station_.entries_left = 0;  // a NIC that does not say may hang when it has none left
    }
  }

  Address own_address() const {
    const std::lock_guard lock(station_.mutex);
    Address address{station_.provider, {}};
    for (const auto& rail : station_.rails) {
      const Registration& flushes = rail->flushes();
      address.endpoints.push_back({rail->device(), rail->network(), ip_of(rail->info()), rail->name(rail->endpoint()),
                                   flushes.spot(flushes.data)});
    }
    return address;
  }

  Settings settings_;
  std::mutex trying_;  // before the station's
  mutable Station station_;
  std::size_t near_ = 0;  // endpoints of smaller numbers are on the nearest devices
  bool tells_ = false;    // every rail, when it may be polled
  bool connected_ = false;
  Expected expected_;
};

}  // namespace

std::vector<Backend> rows() {
  std::vector<Backend> rows;
  for (const Provider& provider : providers()) {
    Backend row;
    row.name = backend_name(provider);
    row.reach = provider.other_hosts ? Reach::network : Reach::named;
    row.level = provider.triggers ? 4 : level_of(*provider.devices.front());
    row.open = [name = row.name, &provider](const Settings& settings) {
      return std::make_unique<OfiTransport>(name, provider, settings);
    };
    rows.push_back(std::move(row));
  }
  if (!why_no_shm().empty()) rows.push_back({"ofi:shm", Reach::named, 0, why_no_shm(), {}});
  return rows;
}

}  // namespace sluice::backends::ofi
