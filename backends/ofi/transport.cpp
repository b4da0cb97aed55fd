// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/transport.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "backends/ofi/cxi.hpp"
#include "backends/ofi/provider.hpp"
#include "backends/ofi/rma.hpp"

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

class OfiLink final : public Link {
 public:
  OfiLink(Station& station, Routes routes, int rails) : station_(station), routes_(std::move(routes)), rails_(rails) {}

  std::size_t rails(const Slots& target) const override {
    if (target.memory.bytes == 0) return 1;
    if (rails_ > 0) return static_cast<std::size_t>(rails_);
    return target.slot_bytes < kStripedFrom ? 1 : std::min(station_.rails.size(), Place::kMostRails);
  }
  std::unique_ptr<Landing> land(const Slots& target, std::span<const Signal> signals) override {
    if (station_.manner.notice == Notice::counter && target.memory.bytes != 0)
      return std::make_unique<CountedLanding>(station_, target, signals);
    return std::make_unique<RmaLanding>(station_, target, signals);
  }
  void arrived(Key&) override {}
  std::unique_ptr<Put> prepare(const Slots& source, device::Watch& watch, Key key) override {
    Place place;
    if (key.bytes.size() != sizeof place) throw std::runtime_error("a key of the wrong size");
    std::memcpy(&place, key.bytes.data(), sizeof place);
    if (place.rails < 1 || place.rails > Place::kMostRails || place.depth < 1) throw std::runtime_error("a bad key");
    if (can_be_armed(place)) return std::make_unique<TriggeredPut>(station_, routes_, source, watch, place);
    return std::make_unique<RmaPut>(station_, routes_, source, watch, place);
  }

 private:
  /// Its arrivals are counted, or it is a word alone; and the NIC has entries left.
  bool can_be_armed(const Place& place) const {
    const std::lock_guard lock(station_.mutex);
    const bool fits = place.notice == Notice::counter || (place.notice == Notice::word && place.slot_bytes == 0);
    return station_.manner.notice == Notice::counter && fits && place.rails == 1 &&
           TriggeredPut::entries_for(place) <= station_.entries_left;
  }

  Station& station_;
  Routes routes_;
  int rails_;
};

class OfiPin final : public Pin {
 public:
  OfiPin(Station& station, const device::Extent& memory) : station_(station) {
    const std::lock_guard lock(station.mutex);
    for (const auto& rail : station.rails) registered_.push_back(rail->registered(memory));
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
    station_.provider = name;
    const auto devices = choose_devices(provider, settings.domains, settings.one_host);
    const std::size_t rails = settings.rails > 0 ? static_cast<std::size_t>(settings.rails) : devices.size();
    for (std::size_t i = 0; i < std::min(rails, Place::kMostRails); ++i)
      station_.rails.push_back(std::make_unique<Rail>(*devices[i % devices.size()], settings.level == 4));
    station_.manner = choose_manner(station_.rails.front()->info(), settings.level);
    if (station_.manner.notice == Notice::counter) count_entries();
    open_rest();
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
  bool reaches(const Blob& peer) const override {
    const auto pieces = pieces_of(peer);
    return pieces.size() >= 3 && text_of(pieces.front()) == station_.provider;
  }
  std::unique_ptr<Pin> pin(const device::Extent& memory) override { return std::make_unique<OfiPin>(station_, memory); }
  std::unique_ptr<Link> connect(Rank, const Blob& peer) override;
  bool poll() override;
  Rest rest() override;

 private:
  void count_entries();
  void open_rest();
  Route route_to(const std::string& network, const Blob& name, std::size_t endpoint) const;

  Settings settings_;
  mutable Station station_;
  base::Fd rest_;  // readable when a rail may be polled
  bool connected_ = false;
};

/// What the NIC has is for all ranks on it.
void OfiTransport::count_entries() {
  const Rail& rail = *station_.rails.front();
  station_.rings_by_page = pages_work(rail);
  station_.entries_left = settings_.trigger_entries;
  const auto nic = armable(rail);
  if (nic) station_.entries_left = std::min(station_.entries_left, static_cast<int>(*nic) / settings_.node_size);
}

void OfiTransport::open_rest() {
  const auto& rails = station_.rails;
  if (std::any_of(rails.begin(), rails.end(), [](const auto& rail) { return rail->wait_fd() < 0; })) return;
  rest_ = base::Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!rest_) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  for (const auto& rail : rails) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(rest_.get(), EPOLL_CTL_ADD, rail->wait_fd(), &event) != 0)
      throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }
}

/// A rail on the same network, if it is known which that is.
Route OfiTransport::route_to(const std::string& network, const Blob& name, std::size_t endpoint) const {
  const auto& rails = station_.rails;
  Rail* chosen = rails[endpoint % rails.size()].get();
  if (chosen->network() != network) {
    const auto same =
        std::find_if(rails.begin(), rails.end(), [&](const auto& rail) { return rail->network() == network; });
    if (same != rails.end()) chosen = same->get();
  }
  return {chosen, chosen->add(name)};
}

std::unique_ptr<Link> OfiTransport::connect(Rank, const Blob& peer) {
  const std::lock_guard lock(station_.mutex);
  const auto pieces = pieces_of(peer);
  Routes routes;
  for (std::size_t i = 1; i + 1 < pieces.size(); i += 2)
    routes.push_back(route_to(text_of(pieces[i]), pieces[i + 1], routes.size()));
  connected_ = true;
  return std::make_unique<OfiLink>(station_, std::move(routes), settings_.rails);
}

bool OfiTransport::poll() {
  const std::lock_guard lock(station_.mutex);
  bool left = false;
  const auto& rails = station_.rails;
  for (std::size_t i = 0; i < rails.size(); ++i) {
    rails[i]->poll([&](std::uint64_t number) { station_.arrivals.landed(number, i, rails.size()); });
    left |= rails[i]->under_way() > 0 && !rest_;
  }
  for (RmaPut* put : station_.attended) left |= put->attend();
  for (TickBell* bell : station_.bells) bell->look();
  for (CountedLanding* landing : station_.counted) landing->look();
  for (TriggeredPut* put : station_.triggered) left |= put->look();
  for (WrittenWord& word : station_.written_words) {
    const std::uint64_t value = word.signal->word->value.load(std::memory_order_acquire);
    if (value != std::exchange(word.seen, value)) word.signal->parking->wake();
  }
  return left;
}

Rest OfiTransport::rest() {
  constexpr int kLookMs = 1;  // where nothing tells that there is something to poll for
  const std::lock_guard lock(station_.mutex);
  if (!connected_) return {};
  if (!rest_) return {-1, kLookMs};
  const auto& rails = station_.rails;
  if (!std::all_of(rails.begin(), rails.end(), [](const auto& rail) { return rail->may_sleep(); })) return {-1, 0};
  const bool under_way =
      std::any_of(rails.begin(), rails.end(), [](const auto& rail) { return rail->under_way() > 0; });
  return {rest_.get(),
          under_way || !station_.written_words.empty() || !station_.counted.empty() || !station_.triggered.empty()
              ? kLookMs
              : Rest::kNoLimit};
}

}  // namespace

std::vector<Backend> rows() {
  std::vector<Backend> rows;
  for (const Provider& provider : providers()) {
    Backend row;
    const bool own_name = provider.name == "cxi" || provider.name == "emucxi";
    row.name = own_name ? provider.name : "ofi:" + provider.name;
    row.reach = provider.other_hosts ? Reach::network : Reach::named;
    row.level = provider.triggers ? 4 : level_of(*provider.devices.front());
    row.open = [name = row.name, &provider](const Settings& settings) {
      return std::make_unique<OfiTransport>(name, provider, settings);
    };
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace sluice::backends::ofi
