// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/transport.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "backends/ofi/access.hpp"
#include "backends/ofi/cxi.hpp"
#include "backends/ofi/page_bell.hpp"
#include "backends/ofi/provider.hpp"
#include "backends/ofi/rma.hpp"
#include "backends/ofi/triggered.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "device/retire.hpp"

namespace sluice::backends::ofi {
namespace {

/// Below this a slot is not worth more than one rail, unless the user says so.
constexpr std::size_t kStripedFrom = 64 * 1024;

// What the address of a rank says: which provider, then of each endpoint its network and its name.

void append(Blob& blob, const void* data, std::size_t bytes) {
  const auto length = static_cast<std::uint32_t>(bytes);
  const auto* const from = static_cast<const std::byte*>(data);
  blob.insert(blob.end(), reinterpret_cast<const std::byte*>(&length), reinterpret_cast<const std::byte*>(&length + 1));
  blob.insert(blob.end(), from, from + bytes);
}

void append(Blob& blob, const std::string& text) { append(blob, text.data(), text.size()); }

std::vector<Blob> pieces_of(const Blob& blob) {
  std::vector<Blob> pieces;
  for (std::size_t at = 0; at < blob.size();) {
    std::uint32_t length = 0;
    if (blob.size() - at < sizeof length) throw std::runtime_error("an address that ends too early");
    std::memcpy(&length, blob.data() + at, sizeof length);
    at += sizeof length;
    if (blob.size() - at < length) throw std::runtime_error("an address that ends too early");
    const auto first = blob.begin() + static_cast<std::ptrdiff_t>(at);
    pieces.emplace_back(first, first + length);
    at += length;
  }
  return pieces;
}

std::string text_of(const Blob& blob) { return {reinterpret_cast<const char*>(blob.data()), blob.size()}; }

/// To an endpoint of a peer: from a rail on the same network, if it is known which that is.
Route route_to(const Station& station, const std::string& network, const Blob& name, const Endpoints& ours,
               std::size_t endpoint) {
  const auto& rails = station.rails;
  Rail* chosen = rails[ours.numbers[endpoint % ours.numbers.size()]].get();
  if (chosen->network() != network) {
    const auto same =
        std::find_if(rails.begin(), rails.end(), [&](const auto& rail) { return rail->network() == network; });
    if (same != rails.end()) chosen = same->get();
  }
  return {chosen, chosen->endpoint_to_peer(), chosen->add(name)};
}

/// Descriptors that libfabric opens when it likes. It may hang or fail without a word if there is no room for them.
class Expected {
 public:
  Expected() noexcept = default;
  /// @throws std::runtime_error if there is no room for `more`
  explicit Expected(std::size_t more) : count_(more) {
    const std::size_t all = all_.fetch_add(more) + more;  // some of these are open already
    if (base::make_room_for_descriptors(all) || base::make_room_for_descriptors(more)) return;
    all_.fetch_sub(more);
    throw std::runtime_error(base::lack_of_descriptors(more));
  }
  Expected(Expected&& other) noexcept : count_(std::exchange(other.count_, 0)) {}
  Expected& operator=(Expected&& other) noexcept {
    std::swap(count_, other.count_);
    return *this;
  }
  ~Expected() { all_.fetch_sub(count_); }

 private:
  static inline std::atomic<std::size_t> all_{0};  // of all ranks of this process
  std::size_t count_ = 0;
};

class OfiLink final : public Link {
 public:
  OfiLink(Station& station, Endpoints endpoints, std::vector<Blob> peer, int rails)
      : station_(station), endpoints_(std::move(endpoints)), peer_(std::move(peer)), rails_(rails) {}

  std::size_t rails(const Slots& target) const override {
    if (target.memory.bytes == 0) return 1;
    if (rails_ > 0) return std::min(endpoints_.numbers.size(), static_cast<std::size_t>(rails_));
    return target.slot_bytes < kStripedFrom ? 1 : std::min(endpoints_.numbers.size(), Place::kMostRails);
  }
  std::unique_ptr<Landing> land(const Slots& target, std::span<const Signal> signals) override {
    const bool countable = target.memory.bytes != 0 && target.depth <= CountedLanding::kDeepest;
    if (station_.manner.notice == Notice::counter && countable && in_one_write(target)) {
      if (auto landing = unless_short_of_counters(
              [&] { return std::make_unique<CountedLanding>(station_, endpoints_, target, signals); }))
        return landing;
    }
    return std::make_unique<RmaLanding>(station_, endpoints_, target, signals);
  }
  void arrived(Key&) override {}
  std::unique_ptr<Put> prepare(const Slots& source, device::Watch& watch, Key key) override {
    const Target place = target_of(key);
    find_routes();
    if (can_be_armed(place, source)) {
      if (auto put = unless_short_of_counters(
              [&] { return std::make_unique<TriggeredPut>(station_, there_, source, watch, place); }))
        return put;
    }
    return std::make_unique<RmaPut>(station_, there_, source, watch, place);
  }
  void lost() override {
    const std::lock_guard lock(station_.mutex);
    for (Mover* const mover : there_.movers) mover->peer_lost();
  }
  std::unique_ptr<Offer> offer(const device::Extent& memory) override {
    return std::make_unique<RmaOffer>(station_, memory);
  }
  std::unique_ptr<Access> access(const device::Extent& local, int depth, device::Watch& watch, Key key) override {
    Offered offered;
    if (key.bytes.size() != sizeof offered) throw std::runtime_error("a key of the wrong size");
    std::memcpy(&offered, key.bytes.data(), sizeof offered);
    find_routes();
    return std::make_unique<RmaAccess>(station_, there_, local, depth, watch, offered);
  }

 private:
  /// What `make` makes; null if the NIC has too few counters left for it: then the engine does it.
  template <class Make>
  static auto unless_short_of_counters(Make make) -> decltype(make()) {
    try {
      return make();
    } catch (const std::runtime_error& reason) {
      base::log(base::LogLevel::info, std::string("not by the NIC: ") + reason.what());
      return nullptr;
    }
  }
  /// When something is to be put there: it takes memory and, for a moment, descriptors.
  void find_routes() {
    constexpr std::size_t kOfConnection = 4;  // with tcp: two sockets, and two more while both ends connect at once
    const std::lock_guard lock(station_.mutex);
    std::vector<Route>& routes = there_.routes;
    if (routes.empty() && station_.rails.front()->wait_fd() >= 0)
      expected_ = Expected(kOfConnection * ((peer_.size() - 1) / 2));
    for (std::size_t i = 2 * routes.size() + 1; i + 1 < peer_.size(); i += 2)
      routes.push_back(route_to(station_, text_of(peer_[i]), peer_[i + 1], endpoints_, routes.size()));
  }
  /// The provider reaches it, and a slot is not larger than a message may be.
  bool in_one_write(const Slots& slots) const {
    const std::lock_guard lock(station_.mutex);
    return std::all_of(station_.rails.begin(), station_.rails.end(), [&](const auto& rail) {
      return slots.slot_bytes <= rail->largest_message() && rail->registered_if_reached(slots.memory) != nullptr;
    });
  }
  /// Its arrivals are counted, or it is a word alone; they come in order, whoever rings; and the NIC has entries left.
  bool can_be_armed(const Place& place, const Slots& source) const {
    if (source.memory.bytes != 0 && !in_one_write(source)) return false;
    const std::lock_guard lock(station_.mutex);
    const bool fits = place.notice == Notice::counter || (place.notice == Notice::word && place.slot_bytes == 0);
    return station_.manner.notice == Notice::counter && station_.manner.ordered && fits && place.rails == 1 &&
           TriggeredPut::entries_for(place) <= station_.entries_left;
  }

  Station& station_;
  Endpoints endpoints_;     // those of ours where the peer's puts land
  std::vector<Blob> peer_;  // its address
  Destination there_;
  int rails_;
  Expected expected_;
};

class OfiPin final : public Pin {
 public:
  OfiPin(Station& station, const device::Extent& memory) : station_(station) {
    const std::lock_guard lock(station.mutex);
    for (const auto& rail : station.rails)
      registered_.push_back(rail->registered_if_reached(memory));  // null: it is staged
  }
  ~OfiPin() override {
    const std::lock_guard lock(station_.mutex);
    registered_.clear();
  }

 private:
  Station& station_;
  std::vector<std::shared_ptr<Registration>> registered_;
};

class OfiTransport final : public Transport {
 public:
  OfiTransport(const std::string& name, const Provider& provider, const Settings& settings) : settings_(settings) {
    constexpr std::size_t kOfRail = 16;  // and of the library, at its first
    station_.provider = name;
    station_.patience = settings.patience;
    const auto [devices, near] = choose_devices(provider, settings);
    const std::size_t rails = std::max(static_cast<std::size_t>(settings.rails), devices.size());
    expected_ = Expected(kOfRail * std::min(rails, Place::kMostRails));
    for (std::size_t i = 0; i < std::min(rails, Place::kMostRails); ++i)
      station_.rails.push_back(
          std::make_unique<Rail>(*devices[i % devices.size()], settings.level == 4, settings.stage_all));
    near_ = near == devices.size() ? station_.rails.size() : near;
    station_.manner = choose_manner(station_.rails.front()->info(), settings.level);
    if (station_.manner.notice == Notice::counter) count_entries();
    const auto& opened = station_.rails;
    tells_ = std::all_of(opened.begin(), opened.end(), [](const auto& rail) { return rail->wait_fd() >= 0; });
  }

  Blob address() const override {
    const std::lock_guard lock(station_.mutex);
    Blob blob;
    append(blob, station_.provider);
    for (const auto& rail : station_.rails) {
      const Blob name = rail->name();
      append(blob, rail->network());
      append(blob, name.data(), name.size());
    }
    return blob;
  }
  bool reaches(const Blob& peer, bool) const override {
    const auto pieces = pieces_of(peer);
    return pieces.size() >= 3 && text_of(pieces.front()) == station_.provider;
  }
  std::unique_ptr<Pin> pin(const device::Extent& memory) override { return std::make_unique<OfiPin>(station_, memory); }
  std::unique_ptr<Link> connect(Rank, const Blob& peer) override;
  void try_out(device::Driver& driver) override;
  bool poll() override;
  int rest(std::vector<pollfd>& tellers) override;

 private:
  void count_entries();
  Endpoints shared_with(const std::vector<Blob>& peer) const;

  Settings settings_;
  std::mutex trying_;  // before the station's
  mutable Station station_;
  std::size_t near_ = 0;  // endpoints of smaller numbers are on the nearest devices
  bool tells_ = false;    // every rail, when it may be polled
  bool connected_ = false;
  Expected expected_;
};

/// What the NIC has is for all ranks on it.
void OfiTransport::count_entries() {
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

/// Our endpoints on networks that the peer is on too; `peer`: the pieces of its address. On a network where it has our
/// own address each host is alone (containers have such), unless it is on this host and so has all our addresses.
Endpoints OfiTransport::shared_with(const std::vector<Blob>& peer) const {
  std::vector<std::size_t> all;
  std::vector<std::size_t> open;
  std::vector<std::size_t> shared;
  for (const auto& rail : station_.rails) {
    const std::size_t endpoint = all.size();
    const Blob name = rail->name();
    bool alone = false;
    bool on_both = false;
    for (std::size_t i = 1; i + 1 < peer.size(); i += 2) {
      alone |= same_address(peer[i + 1], name);
      on_both |= text_of(peer[i]) == rail->network();
    }
    all.push_back(endpoint);
    if (!alone) open.push_back(endpoint);
    if (!alone && on_both) shared.push_back(endpoint);
  }
  if (shared.empty()) shared = open.empty() ? all : open;
  const auto near = static_cast<std::size_t>(
      std::count_if(shared.begin(), shared.end(), [&](std::size_t endpoint) { return endpoint < near_; }));
  return {shared, near == 0 ? shared.size() : near};
}

std::unique_ptr<Link> OfiTransport::connect(Rank, const Blob& peer) {
  base::fill_standard_descriptors();  // which the program may have closed since the start
  const std::lock_guard lock(station_.mutex);
  auto pieces = pieces_of(peer);
  Endpoints ours = shared_with(pieces);
  connected_ = true;
  return std::make_unique<OfiLink>(station_, std::move(ours), std::move(pieces), settings_.rails);
}

/// Who rings a page for a GPU. Behind a parked stream nothing can be tried.
void OfiTransport::try_out(device::Driver& driver) {
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

bool OfiTransport::poll() {
  std::vector<std::unique_ptr<ArmedWork>> gone;  // its end takes the mutex itself
  const std::lock_guard lock(station_.mutex);
  bool left = false;
  const auto& rails = station_.rails;
  for (std::size_t i = 0; i < rails.size(); ++i) {
    rails[i]->poll([&](std::uint64_t number) { station_.arrivals.landed(number, i); });
    left |= rails[i]->under_way() > 0 && !tells_;
  }
  for (Attended* one : station_.attended) left |= one->attend();
  for (TickBell* bell : station_.bells) {
    bell->look();
    left |= bell->awaited();
  }
  for (CountedLanding* landing : station_.counted) landing->look();
  for (TriggeredPut* put : station_.triggered) left |= put->look();
  auto& left_work = station_.left_work;
  const auto first_gone =
      std::partition(left_work.begin(), left_work.end(), [](const auto& work) { return !work->look(); });
  std::move(first_gone, left_work.end(), std::back_inserter(gone));
  left_work.erase(first_gone, left_work.end());
  for (WrittenWord& word : station_.written_words) {
    const std::uint64_t value = word.signal->word->value.load(std::memory_order_acquire);
    if (value != std::exchange(word.seen, value)) word.signal->parking->wake();
  }
  return left;
}

// The descriptors are in no set of ours while nobody sleeps: each packet would wake the set.
int OfiTransport::rest(std::vector<pollfd>& tellers) {
  constexpr int kLookMs = 1;  // where nothing tells
  const std::lock_guard lock(station_.mutex);
  if (!connected_) return kNoLimit;
  if (!tells_) return kLookMs;
  const auto& rails = station_.rails;
  if (!std::all_of(rails.begin(), rails.end(), [](const auto& rail) { return rail->may_sleep(); })) return 0;
  for (const auto& rail : rails) tellers.push_back({rail->wait_fd(), POLLIN, 0});
  const bool under_way =
      std::any_of(rails.begin(), rails.end(), [](const auto& rail) { return rail->under_way() > 0; });
  const bool look = under_way || !station_.written_words.empty() || !station_.counted.empty() ||
                    !station_.triggered.empty() || !station_.left_work.empty();
  return look ? kLookMs : kNoLimit;
}

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
