// SPDX-License-Identifier: Apache-2.0
#include "backends/mpi/access.hpp"

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backends/access.hpp"

namespace sluice::backends::mpi {
namespace {

/// Offered memory as the peer gets to know it. Text that follows says why the peer cannot reach it.
struct Offered {
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
};

/// The owner's side.
class OfferedMemory final : private Party {
 public:
  OfferedMemory(Station& station, const device::Extent& memory) : station_(station), memory_(memory) {
    const std::lock_guard lock(station.mutex);
    number_ = station.add(*this);
  }
  ~OfferedMemory() override {
    const std::lock_guard lock(station_.mutex);
    station_.remove(number_);
  }
  OfferedMemory(const OfferedMemory&) = delete;
  OfferedMemory& operator=(const OfferedMemory&) = delete;
  Key key() const { return {bytes_of(Offered{number_, memory_.bytes}), {}, {}}; }

 private:
  /// Never beyond the memory, even if the peer is in error.
  std::byte* room(const Head& head) override {
    const bool inside = head.offset <= memory_.bytes && head.bytes <= memory_.bytes - head.offset;
    return inside ? memory_.data + head.offset : nullptr;
  }

  void deliver(const Head& head, const Address& sender, bool placed) override {
    Head answer{.kind = Head::Kind::refused, .to = head.from, .from = number_, .epoch = head.epoch};
    const std::byte* const at = room(head);
    if (head.kind == Head::Kind::read && at != nullptr) {
      answer.kind = Head::Kind::data;
      answer.bytes = head.bytes;
      return station_.answer(sender, answer, {at, head.bytes});
    }
    if (head.kind == Head::Kind::write && placed) answer.kind = Head::Kind::wrote;
    station_.answer(sender, answer);
  }

  Station& station_;
  device::Extent memory_;
  std::uint64_t number_ = 0;
};

class MpiAccess final : public EngineAccess, private Mover {
 public:
  MpiAccess(Station& station, Destination& there, int depth, device::Watch& watch, const Offered& offered)
      : EngineAccess(unmapped_bounds(offered.bytes), depth, watch, "mpi: carried out by the owner's engine"),
        station_(station), there_(there), offered_(offered), asked_(static_cast<std::size_t>(depth)) {
    const std::lock_guard lock(station.mutex);
    number_ = station.add(*this);
    there.movers.insert(this);
  }
  ~MpiAccess() override {
    const std::lock_guard lock(station_.mutex);
    for (const Asked& one : asked_) station_.awaited -= one.epoch == 0 ? 0 : 1;
    there_.movers.erase(this);
    station_.remove(number_);
  }

 private:
  /// A request that was sent, and has no answer yet.
  struct Asked {
    std::uint64_t epoch = 0;  // 0: there is none
    std::span<std::byte> local;
    bool reads = false;
  };

  bool post(std::uint64_t epoch, const Request& request) override {
    const std::lock_guard lock(station_.mutex);
    if (there_.lost || !there_.suspicion.empty()) return false;
    if (request.local.empty()) {
      over(epoch);
      return true;
    }
    Asked& one = asked_[epoch % asked_.size()];
    one = {epoch, request.local, request.kind == Request::Kind::get};
    ++station_.awaited;
    try {
      station_.send(there_.address,
                    {.kind = one.reads ? Head::Kind::read : Head::Kind::write,
                     .to = offered_.number,
                     .from = number_,
                     .epoch = epoch,
                     .offset = request.offset,
                     .bytes = request.local.size()},
                    one.reads ? std::span<const std::byte>() : std::span<const std::byte>(request.local));
    } catch (const std::runtime_error& reason) {
      forget(one);
      refused(reason.what());
      return false;
    }
    return true;
  }

  void forget(Asked& one) noexcept {
    one = {};
    --station_.awaited;
  }

  std::byte* room(const Head& head) override {
    const Asked& one = asked_[head.epoch % asked_.size()];
    return one.epoch == head.epoch && one.reads && one.local.size() == head.bytes ? one.local.data() : nullptr;
  }

  void deliver(const Head& head, const Address&, bool placed) override {
    Asked& one = asked_[head.epoch % asked_.size()];
    if (head.epoch == 0 || one.epoch != head.epoch) return;
    const bool done = head.kind == (one.reads ? Head::Kind::data : Head::Kind::wrote) && placed;
    if (!done) watch_.fail(Code::closed, "the owner of the memory offers it no more");
    forget(one);
    over(head.epoch);
  }

  void refused(const std::string& why) override { station_.suspect(there_, why); }
  void fail(const std::string& why) override { watch_.fail(Code::transport, "a message over mpi failed: " + why); }
  void give_up() override {
    station_.abandon(number_, [](std::uint64_t) {});
    for (Asked& one : asked_) {
      if (one.epoch == 0) continue;
      const std::uint64_t epoch = one.epoch;
      forget(one);
      over(epoch);
    }
  }

  Station& station_;
  Destination& there_;
  Offered offered_;
  std::vector<Asked> asked_;  // by epoch mod depth
  std::uint64_t number_ = 0;
};

}  // namespace

Offer offer_memory(Station& station, const device::Extent& memory) {
  check_offered(memory);
  if (memory.driver != nullptr) return unreachable(Offered{}, "mpi: memory of a GPU is not offered");
  auto offered = std::make_shared<OfferedMemory>(station, memory);
  Key key = offered->key();
  return {std::move(key), "mpi: offered to requests, which the engine carries out", std::move(offered)};
}

std::unique_ptr<Access> open_access(Station& station, Destination& there, int depth, device::Watch& watch,
                                    const Key& key) {
  return std::make_unique<MpiAccess>(station, there, depth, watch, offered_by<Offered>(key));
}

}  // namespace sluice::backends::mpi
