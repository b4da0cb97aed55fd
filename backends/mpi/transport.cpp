// SPDX-License-Identifier: Apache-2.0
#include "backends/mpi/transport.hpp"

#include <optional>
#include <stdexcept>
#include <utility>

#include "backends/mpi/access.hpp"
#include "backends/mpi/landing.hpp"
#include "backends/mpi/put.hpp"

namespace sluice::backends::mpi {
namespace {

std::optional<Source>& source() {
  static std::optional<Source> given;
  return given;
}

class MpiLink final : public Link {
 public:
  MpiLink(Station& station, const Address& theirs, bool stage_all) : station_(station), stage_all_(stage_all) {
    there_.address = theirs;
    const std::lock_guard lock(station.mutex);
    station.join(there_);
  }
  ~MpiLink() override {
    const std::lock_guard lock(station_.mutex);
    station_.leave(there_);
  }
  MpiLink(const MpiLink&) = delete;
  MpiLink& operator=(const MpiLink&) = delete;

  std::size_t rails(const Slots&) const override { return 1; }
  Landed land(const Slots& target, std::span<const Signal> signals) override {
    return mpi::land(station_, target, signals.front(), is_staged(target));
  }
  void arrived(Key&) override {}
  std::unique_ptr<Put> prepare(const Slots& source, device::Watch& watch, Key key) override {
    return mpi::prepare(station_, there_, source, watch, key, is_staged(source));
  }
  /// Counters are raised by the layer above, since atomics are.
  Offer offer(const device::Extent& memory, const device::Extent&) override { return offer_memory(station_, memory); }
  std::unique_ptr<Access> access(int depth, device::Watch& watch, Key key) override {
    return open_access(station_, there_, depth, watch, key);
  }
  void lost() override {
    const std::lock_guard lock(station_.mutex);
    station_.lose(there_);
  }

 private:
  /// MPI gets no memory of a GPU, whether or not it could take it.
  bool is_staged(const Slots& slots) const noexcept {
    const device::Extent& memory = slots.memory;
    return memory.bytes != 0 &&
           (memory.driver != nullptr || (stage_all_ && (memory.segment == nullptr || memory.segment->sparse)));
  }

  Station& station_;
  Destination there_;
  const bool stage_all_;
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::unique_ptr<Messages> messages, const Settings& settings)
      : station_(std::move(messages)), stage_all_(settings.stage_all) {
    address_ = bytes_of(station_.address());
  }

  bool reaches(const Blob& peer, bool) const override {
    return value_of<Address>(peer).communicator == station_.address().communicator;
  }
  std::shared_ptr<const void> pin(const device::Extent&) override { return nullptr; }
  std::unique_ptr<Link> connect(Rank, const Blob& peer, bool) override {
    auto link = std::make_unique<MpiLink>(station_, value_of<Address>(peer), stage_all_);
    const std::lock_guard lock(station_.mutex);
    connected_ = true;
    return link;
  }
  void try_out(device::Driver&) override {}
  AfterTurn poll() override {
    const std::lock_guard lock(station_.mutex);
    return connected_ ? station_.poll() : AfterTurn::nothing;
  }
  /// MPI has no descriptor that tells of a message. So a message to a rank whose threads all sleep waits this long.
  int rest(std::vector<pollfd>&) override {
    constexpr int kLookMs = 1;
    const std::lock_guard lock(station_.mutex);
    return connected_ ? kLookMs : kNoLimit;
  }

 private:
  Station station_;
  const bool stage_all_;
  bool connected_ = false;
};

}  // namespace

void provide(const Source& given) noexcept { source() = given; }

Backend row() {
  Backend row{"mpi", Reach::named, 0, {}, {}};
  row.why_not = source() ? source()->why_not() : "only programs that are linked with Sluice::mpi have it";
  row.open = [](const Settings& settings) { return open_over(source()->open(), settings); };
  return row;
}

std::unique_ptr<Transport> open_over(std::unique_ptr<Messages> messages, const Settings& settings) {
  return std::make_unique<MpiTransport>(std::move(messages), settings);
}

}  // namespace sluice::backends::mpi
